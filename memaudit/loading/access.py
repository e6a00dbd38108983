"""What the user allows when a source is opened, and how much memory there is for it."""

from __future__ import annotations

import math
import os
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from memaudit.errors import ArgumentError, SourceError, clean

#: A stage, what is done, and what there is to do.
Progress = Callable[[str, int, int], None]
#: Seconds to wait for a hub, or for the process that reads a pickle.
DEFAULT_TIMEOUT = 60.0
LONGEST_TIMEOUT = 86_400.0
_SIZE = re.compile(r"\s*(\d+)\s*([kmgt]?)(?:i?b)?\s*", re.IGNORECASE)
_UNITS = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}


@dataclass(frozen=True, slots=True)
class Limits:
    """How large the parts of a source may be, in bytes or pieces."""

    #: A million empty tensors take a minute to parse; the headers of real models are far smaller.
    max_header: int = 16 << 20
    max_tensors: int = 100_000
    #: Weights of one source; 0 stands for a terabyte, or the memory of this machine where the
    #: format has to be read whole.
    max_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Access:
    """What may be done to open a source; every default is the safe one.

    `timeout` None leaves the patience to whoever waits.
    """

    allow_pickle: bool = False
    trust_remote_code: bool = False
    offline: bool = False
    timeout: float | None = None
    limits: Limits = Limits()
    #: False where only a few tensors of mapped files are wanted: nothing is hashed from end to end.
    whole: bool = True
    progress: Progress | None = field(default=None, compare=False, repr=False)

    def seconds(self) -> float:
        """Seconds to wait."""
        return DEFAULT_TIMEOUT if self.timeout is None else self.timeout

    def advance(self, stage: str, done: int, total: int) -> None:
        """Report how far a stage is."""
        if self.progress is not None:
            self.progress(stage, done, total)


#: What is allowed when nobody says anything.
SAFE = Access()
LIMITS = tuple(f.name for f in fields(Limits))
#: The keyword arguments of `scan` and `load` that make an Access.
ACCESS = ("allow_pickle", "trust_remote_code", "offline", "timeout", *LIMITS)


def access_from(options: dict[str, Any], *, progress: Progress | None = None) -> Access:
    """The Access that keyword arguments request; what is left out keeps its safe default."""
    flags = {name: _flag(name, options.get(name)) for name in ACCESS[:2]}
    limits = {name: _size(name, options[name]) for name in LIMITS if options.get(name) is not None}
    offline = _flag("offline", options.get("offline")) or offline_by_environment()
    timeout = options.get("timeout")
    return Access(
        **flags,
        offline=offline,
        timeout=None if timeout is None else _seconds(timeout),
        limits=Limits(**limits),
        progress=progress,
    )


def offline_by_environment() -> bool:
    """Whether HF_HUB_OFFLINE forbids the network, in the words that huggingface_hub takes."""
    return os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE")


def _flag(name: str, value: Any) -> bool:
    if value is None or isinstance(value, bool):
        return bool(value)
    raise ArgumentError(f"{name} is {clean(value)!r}", hint="give True or False")


def _seconds(value: Any) -> float:
    good = isinstance(value, int | float) and not isinstance(value, bool)
    if not good or not math.isfinite(value) or not 0 < value <= LONGEST_TIMEOUT:
        hint = f"give seconds above 0, at most {LONGEST_TIMEOUT:.0f}"
        raise ArgumentError(f"timeout is {clean(value)}", hint=hint)
    return float(value)


def _size(name: str, value: Any) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    match = _SIZE.fullmatch(value) if isinstance(value, str) and len(value) < 40 else None
    if match is None or int(match[1]) == 0:
        hint = "give a positive whole number, or a size such as 64M"
        raise ArgumentError(f"{name} is {clean(value)!r}", hint=hint)
    return int(match[1]) << _UNITS[match[2].lower()]


# -- How much memory this machine, or the container that it pretends to be, has to give.

_AVAILABLE = re.compile(r"^MemAvailable:\s+(\d+) kB$", re.MULTILINE)
#: Where a container finds its own limit, in control groups of version 2 and of version 1.
_LIMITS = ("sys/fs/cgroup/memory.max", "sys/fs/cgroup/memory/memory.limit_in_bytes")


def available_memory(*, system: Path = Path("/")) -> int:
    """Bytes that could be allocated without swapping; what is unknown is no limit."""
    stated = _AVAILABLE.search(_text(system / "proc/meminfo"))
    limits = [text for name in _LIMITS if (text := _text(system / name).strip()).isdecimal()]
    return min([int(stated[1]) << 10 if stated else sys.maxsize, *map(int, limits)])


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""


# -- How many bytes of weights may be opened.

_SIZE_UNITS = ("bytes", "KB", "MB", "GB", "TB")
#: Mapped files take no memory, but are hashed from end to end: no model of today is larger.
LARGEST_MAPPED = 1 << 40


def require_room(size: int, access: Access, *, mapped: bool = True) -> None:
    """Raise E_LIMIT when a source's weights have more bytes than may be opened.

    Unless the user says how many, files that are not `mapped` must fit into memory.
    """
    stated = access.limits.max_bytes
    most = stated or (LARGEST_MAPPED if mapped else available_memory())
    if size <= most:
        return
    fits = "the limit is" if stated or mapped else "this machine has memory for"
    raise SourceError(
        "E_LIMIT",
        f"the weights take {human_size(size)}, and {fits} {human_size(most)}",
        hint=f"on a machine with enough memory, raise it with --set max_bytes={_option(size)}",
        stage="open",
    )


def human_size(size: int) -> str:
    """A number of bytes as people say it, in powers of 1024."""
    unit = _unit(size)
    return f"{size / (1 << 10 * unit):.1f} {_SIZE_UNITS[unit]}" if unit else f"{size} bytes"


def _option(size: int) -> str:
    """The size rounded up, as the option takes it: 6G."""
    unit = _unit(size)
    return f"{-(-size >> 10 * unit)}{('', 'K', 'M', 'G', 'T')[unit]}"


def _unit(size: int) -> int:
    return min((max(size, 1).bit_length() - 1) // 10, len(_SIZE_UNITS) - 1)
