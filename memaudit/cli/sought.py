"""The numbers of a report that a gate asks for by name, and the words for them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from memaudit.errors import clean
from memaudit.metrics import PREFIX, named_numbers, spoken

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from memaudit.metrics import Number
    from memaudit.report import Report


def sought(report: Report, given: str) -> list[tuple[str, Number]]:
    """The numbers that a name means, each by its own name; the exact one wins.

    Names of layers are only known after the audit, and `Block-A` and `block_a` are one word on a
    command line: where no name is exact, all that sound alike are meant, and so are layers that
    share a name.
    """
    named, plain = named_numbers(report), _plain(given)
    readings: tuple[Callable[[str], str], ...] = (str, _dotted, spoken)
    for alike in readings:
        wanted = alike(plain)
        found = [(name, n) for name, n in named if wanted in (alike(name), alike(n.key))]
        if found:
            return found
    return []


def called(given: str, found: Sequence[tuple[str, Number]]) -> str:
    """The name of the number that was found, as its layer is called; else as it was given."""
    if not found:
        return clean(_dotted(_plain(given)))
    name, number = found[0]
    if name != number.key:  # the second layer of a name
        return name
    inner = None if number.inner is None else _dotted(number.inner)
    parts = (number.query, number.metric, inner, number.layer)
    return clean(".".join(part for part in parts if part is not None))


def shown(number: Number) -> str:
    """The number in four digits, and the query or layer that it comes from."""
    value = math.nan if number.value is None else number.value
    if math.isinf(value):
        return "infinite" if number.beyond is None else f"beyond {number.beyond:.4g}"
    return f"{value:.4g}" + (f" at {clean(number.holder)}" if number.holder else "")


def places(report: Report, names: Sequence[str]) -> str:
    """Where nothing was measured: `under context`, `at cell.0 and 2 more`, "" for nowhere."""
    if not names:
        return ""
    asked = report.settings.get("queries")
    queries = {*report.memory, *(map(str, asked) if isinstance(asked, list | tuple) else ())}
    word = "under" if names[0] in queries else "at"
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return f"{word} {clean(names[0])}{more}"


def _plain(given: str) -> str:
    return given.strip().removeprefix(PREFIX).removeprefix("memaudit.")


def _dotted(name: str) -> str:
    return name.replace("/", ".")
