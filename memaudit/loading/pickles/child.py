"""The process in which pickles are read that name foreign objects: it may do next to nothing.

It is started with its limits and reads the pickles from stdin, each behind its length. Its answer
is one JSON object on stdout: a description, or the refusal.
"""

from __future__ import annotations

import codecs
import gc
import json
import os
import sys
from typing import TYPE_CHECKING, Any, NoReturn

from memaudit.errors import SourceError
from memaudit.loading.pickles.describing import describe

if TYPE_CHECKING:
    from collections.abc import Mapping

try:
    import resource
except ImportError:  # not on this system: the clock of the parent is the only limit
    resource = None

#: Bytes of a pickle's length.
LENGTH = 8


def main() -> NoReturn:
    """Read, describe, answer, and end without any clean-up that an attacker could have a say in."""
    order = json.loads(sys.argv[-1])
    codecs.lookup("raw-unicode-escape")  # loaded now: no file can be opened later
    gc.disable()  # cycles are part of an attack; nothing lives long enough to be collected
    confine(order)
    try:
        answer = _answer(order)
    except (MemoryError, RecursionError):
        answer = {"exhausted": True}
    _write(json.dumps(answer).encode("ascii"))
    os._exit(0)


def confine(order: Mapping[str, Any]) -> None:
    """Give up everything that reading a pickle does not need."""
    if resource is None:
        return
    limits = {
        "RLIMIT_CORE": 0,
        "RLIMIT_FSIZE": 0,
        "RLIMIT_NPROC": 0,
        "RLIMIT_NOFILE": 3,
        "RLIMIT_CPU": order["seconds"],
        "RLIMIT_AS": _occupied() + order["memory"],
    }
    for name, most in limits.items():
        kind = getattr(resource, name, None)
        if kind is None:
            continue
        hard = resource.getrlimit(kind)[1]
        if hard != resource.RLIM_INFINITY:
            most = min(most, hard)
        try:
            resource.setrlimit(kind, (most, most))
        except (OSError, ValueError):  # some systems know a limit and do not take it
            continue


def _occupied() -> int:
    """The addresses that the interpreter itself takes, where the system tells."""
    try:
        with open("/proc/self/statm", encoding="ascii") as stream:
            return int(stream.read().split()[0]) * resource.getpagesize() if resource else 0
    except (OSError, ValueError, IndexError):
        return 0


def _answer(order: Mapping[str, Any]) -> dict[str, Any]:
    pickles = [_read(int.from_bytes(_read(LENGTH), "little")) for _ in range(order["pickles"])]
    try:
        return describe(pickles, inert=True, max_tensors=order["max_tensors"])
    except SourceError as error:
        return {"refused": {"code": error.code, "fact": error.fact, "hint": error.hint}}


def _read(length: int) -> bytes:
    found = sys.stdin.buffer.read(length)
    if len(found) != length:  # whoever started this process is gone
        os._exit(1)
    return found


def _write(answer: bytes) -> None:
    while answer:
        answer = answer[os.write(1, answer) :]
