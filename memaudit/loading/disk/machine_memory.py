"""How much memory this machine, or the container that it pretends to be, has to give."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_AVAILABLE = re.compile(r"^MemAvailable:\s+(\d+) kB$", re.MULTILINE)


def available_memory(*, system: Path = Path("/")) -> int:
    """Bytes that could be asked for without swapping; what is unknown is no limit."""
    said = _AVAILABLE.search(_text(system / "proc/meminfo"))
    known = [int(said[1]) << 10] if said else [_physical()]
    return min([*known, *_group_limits(system)])


def _group_limits(system: Path) -> Iterator[int]:
    """The limits of the control groups of this process, and of those around them."""
    groups = system / "sys/fs/cgroup"
    places = {groups, groups / "memory"}
    for line in _text(system / "proc/self/cgroup").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controllers not in ("", "memory"):
            continue
        own = (groups / controllers).joinpath(*path.strip("/").split("/"))
        places |= {own, *(p for p in own.parents if p.is_relative_to(groups))}
    for place in places:
        for name in ("memory.max", "memory.limit_in_bytes"):
            text = _text(place / name).strip()
            if text.isdecimal():  # "max" stands for none
                yield int(text)


def _physical() -> int:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):  # no such question on this system
        return sys.maxsize


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
