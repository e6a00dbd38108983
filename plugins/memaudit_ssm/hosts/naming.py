"""Names of scans that people can type: wrappers stripped, every name once."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

from memaudit.errors import clean

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from memaudit_ssm.hosts.keys import ScanKeys

#: What training wrappers put in front of every name.
WRAPPERS = re.compile(r"^(?:(?:module|_orig_mod|state_dict|model|net)\.)+")
NAMELESS = "mixer"


def module_names(prefixes: Iterable[str]) -> dict[str, str]:
    """Prefix → the module's name; where stripping made two alike, the whole prefix stays.

    Prefixes may be alike too once they are made safe to print: then a number tells them apart.
    """
    every = list(dict.fromkeys(prefixes))
    short = {prefix: clean(WRAPPERS.sub("", prefix)).rstrip(".") or NAMELESS for prefix in every}
    often = Counter(short.values())
    names: dict[str, str] = {}
    taken: set[str] = set()
    for number, prefix in enumerate(every):
        name = short[prefix]
        if often[name] > 1:
            name = clean(prefix).rstrip(".") or name
        names[prefix] = fresh(name, taken, number)
    return names


def scan_names(name: str, scans: Sequence[ScanKeys], directions: Sequence[int]) -> list[str]:
    """One name for every direction of a module; a module with one scan gives it its own name."""
    if sum(directions) == 1:
        return [name]
    names: list[str] = []
    for scan, count in zip(scans, directions, strict=True):
        if scan.merged:
            names += [f"{name}.scan{k}" for k in range(count)]
        else:
            names.append(f"{name}.scan_{scan.letter}" if scan.letter else f"{name}.scan")
    return names


def fresh(name: str, taken: set[str], number: int) -> str:
    """The name, or a longer one when it is taken; it is taken afterwards."""
    while name in taken:
        name = f"{name}_{number}"
    taken.add(name)
    return name
