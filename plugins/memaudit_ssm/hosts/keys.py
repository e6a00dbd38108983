"""Recognising the tensors of selective scans by their names, whatever stands in front of them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

#: A mixer of Mamba-1; models that scan both ways spell the other way A_b_log, D_b, dt_proj_b.
PLAIN = re.compile(r"^(?P<prefix>(?:.*\.)?)A(?:_(?P<letter>[a-z]))?_log\Z")
#: All directions of a scan over a picture in one tensor.
MERGED = re.compile(r"^(?P<prefix>(?:.*\.)?)A_logs\Z")
#: Norms of dt, B or C between x_proj and the scan: their form is not stored in the file.
NORM = re.compile(r"^(?P<prefix>(?:.*\.)?)(?:dt|[bBcC])_?(?:layer_?)?norms?(?:\.|\Z)")
#: Names that speak of a recurrence, in this family and in others.
ALIKE = re.compile(
    r"(?:^|\.)(?:A(?:_[a-z])?_logs?|dt_bias|dt_projs?(?:_[a-z])?[._](?:weight|bias)"
    r"|nu_log|theta_log|Lambda(?:_re|_im)?|log_A_real|inv_dt|log_dt|log_step|time_decay"
    r"|recurrent_param|recurrent_kernel|(?:weight|w)_hh(?:_l[0-9]+)?(?:_reverse)?)\Z"
)
#: A block of the original Mamba language model.
BLOCK = re.compile(r"^(?P<root>(?:.*\.)?)layers\.(?P<number>[0-9]+)\.")


@dataclass(frozen=True, slots=True)
class ScanKeys:
    """The names of one scan's tensors: role → key in the checkpoint.

    Roles are A_log, D, dt_weight, dt_bias, x_weight and, where there is one, x_bias. A `merged`
    scan has a first axis of directions; else `letter` tells the directions of a module apart.
    """

    prefix: str
    merged: bool
    letter: str
    keys: dict[str, str]


@dataclass(frozen=True, slots=True)
class Found:
    """The scans among some names, and why others that begin like one are none."""

    scans: tuple[ScanKeys, ...]
    refused: dict[str, str]


def find_scans(names: Collection[str]) -> Found:
    """Every selective scan among the names, in the order of their first tensor."""
    known = set(names)
    normed = {match["prefix"]: name for name in names if (match := NORM.match(name))}
    scans: list[ScanKeys] = []
    refused: dict[str, str] = {}
    for name in names:
        keys = _keys_of(name)
        if keys is None:
            continue
        missing = [key for role, key in keys.keys.items() if role != "x_bias" and key not in known]
        if missing:
            ends = ", ".join(key.removeprefix(keys.prefix) for key in missing)
            later = "Mamba-2, which needs its whole model; " if _is_dual(keys, known) else ""
            refused[name] = f"{later}without {ends}"
        elif keys.prefix in normed:
            norm = normed[keys.prefix].removeprefix(keys.prefix)
            refused[name] = f"{norm} stands between x_proj and the scan"
        else:
            there = {role: key for role, key in keys.keys.items() if key in known}
            scans.append(ScanKeys(keys.prefix, keys.merged, keys.letter, there))
    return Found(tuple(scans), refused)


def lookalikes(names: Iterable[str]) -> list[str]:
    """The names that speak of a recurrence."""
    return [name for name in names if ALIKE.search(name)]


def is_language_model(names: Collection[str], scans: Iterable[ScanKeys]) -> bool:
    """Whether these are the names of the original Mamba language model, which runs as a whole."""
    known = set(names)
    roots = {match["root"] if (match := BLOCK.match(scan.prefix)) else None for scan in scans}
    if len(roots) != 1 or None in roots:
        return False
    root = next(iter(roots))
    tables = {f"{root}embedding.weight", f"{root}embeddings.weight"}
    if not tables & known or f"{root}norm_f.weight" not in known:
        return False
    # In a hybrid, some blocks have attention in the place of the scan.
    blocks = {m[0] for name in names if (m := BLOCK.match(name)) and m["root"] == root}
    return all(f"{block}mixer.A_log" in known for block in blocks)


def _is_dual(keys: ScanKeys, known: Collection[str]) -> bool:
    """Whether the tensors beside this A are those of Mamba-2."""
    return f"{keys.prefix}dt_bias" in known and f"{keys.prefix}in_proj.weight" in known


def _keys_of(name: str) -> ScanKeys | None:
    """The keys that a scan with this A must have."""
    if match := MERGED.match(name):
        ends = ("Ds", "dt_projs_weight", "dt_projs_bias", "x_proj_weight", "x_proj_bias")
        return _joined(match["prefix"], name, ends, merged=True, letter="")
    match = PLAIN.match(name)
    if match is None:
        return None
    letter = match["letter"] or ""
    way = f"_{letter}" if letter else ""
    ends = (f"D{way}", f"dt_proj{way}.weight", f"dt_proj{way}.bias")
    ends += (f"x_proj{way}.weight", f"x_proj{way}.bias")
    return _joined(match["prefix"], name, ends, merged=False, letter=letter)


def _joined(
    prefix: str, first: str, ends: tuple[str, ...], *, merged: bool, letter: str
) -> ScanKeys:
    roles = ("D", "dt_weight", "dt_bias", "x_weight", "x_bias")
    keys = {role: prefix + end for role, end in zip(roles, ends, strict=True)}
    return ScanKeys(prefix, merged, letter, {"A_log": first, **keys})
