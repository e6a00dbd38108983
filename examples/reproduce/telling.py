"""What the runner prints, as wide as the terminal is."""

from __future__ import annotations

import shutil
import textwrap
from typing import Any

from examples.reproduce import catalog
from examples.reproduce.page import verdict_of
from examples.reproduce.row import Verdict

#: The width of the names in the list, and the fewest columns of a terminal.
NAME, NARROW = 20, 40


def listed() -> str:
    """Every row with its title and its claim, by paper."""
    lines: list[str] = []
    for paper, group in catalog.ROWS.items():
        lines += ["", *_wrapped(paper)]
        for name in group:
            row = catalog.load(name)
            lines += _wrapped(row.title, first=f"  {name:{NAME}} ", rest=NAME + 3)
            lines += _wrapped(row.claim, first=" " * (NAME + 3), rest=NAME + 3)
    return "\n".join(lines)


def told(name: str, record: Any, *, place: str) -> str:
    """How a row ended: its claim, the verdict with the reason, and what bears on it."""
    if isinstance(record, Exception):
        return "\n".join(_wrapped(f"FAILED TO RUN: {record}", first=f"{place} {name}: "))
    lines = _wrapped(record["claim"], first=f"{place} {name}: ")
    lines += _wrapped(f"{verdict_of(record)}: {record['reason']}", first="    ")
    if record["verdict"] == Verdict.SCALED:
        lines += _wrapped(f"scaled down: {record['scaled']}", first="    ")
    if record.get("errata"):
        lines += _wrapped(f"errata: {record['errata']}", first="    ")
    return "\n".join(lines)


def _wrapped(text: str, *, first: str = "", rest: int = 4) -> list[str]:
    width = max(NARROW, shutil.get_terminal_size().columns)
    return textwrap.wrap(
        text,
        width,
        initial_indent=first,
        subsequent_indent=" " * rest,
        break_long_words=False,
        break_on_hyphens=False,
    )
