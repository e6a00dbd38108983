"""A table of changes: what was, and below it what is now where that differs."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.text import Text

from memaudit.errors import clean
from memaudit.reports import wording
from memaudit.reports.placing import placed
from memaudit.reports.tables import table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.table import Table

    from memaudit.comparing.difference import Change

NOW = "->"
APART = "farthest apart"
ONLY = {"came": "only after", "went": "only before"}
#: Numbers that differ are told with as many digits as it takes to see it.
DIGITS = (4, 6, 9, 17)

#: Counts are told with commas, as in the report of one model; lags and seeds are not.
COUNTS = ("parameters", "modes")
#: A change by more than this, or to less than this part, is a factor: +83,000 % says little.
MANIFOLD, LITTLE = 10.0, 0.005
#: Of a factor this large only the power of ten matters.
VAST = 1e4

Facts = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Column:
    """One column: the facts that it tells, and their words in so many digits.

    One that is not `always` there is shown when its facts differ somewhere. How far the first of
    the `moving` facts that both sides have as a number moved is told in percent.
    """

    title: str
    names: tuple[str, ...]
    words: Callable[[Facts, int], str]
    always: bool = True
    moving: tuple[str, ...] = ()


def column(title: str, name: str, *, always: bool = True, moving: tuple[str, ...] = ()) -> Column:
    """A column for one fact."""

    def words(facts: Facts, digits: int) -> str:
        return told(name, facts.get(name), digits)

    return Column(title, (name,), words, always, moving)


def changes_table(
    title: str,
    changes: Sequence[Change],
    columns: Sequence[Column],
    *,
    ratios: bool = False,
    ascii_only: bool = False,
) -> Table:
    """One row per change, and a second one with what differs now; an empty cell is as it was."""
    both = [change for change in changes if not change.came and not change.went]
    shown = [c for c in columns if c.always or any(differs(change, c) for change in both)]
    last = [APART] if ratios else []
    heads = (title, *(c.title for c in shown), *last)
    made = table(*heads, ascii_only=ascii_only, tight=True)
    for change in changes:
        made.add_row(Text(named(change)), *(Text(_first(change, c)) for c in shown))
        if change in both and change.changed:
            cells = [Text(_second(change, c), style="bold") for c in shown]
            made.add_row(Text(NOW, style="bold"), *cells, *([Text(_ratio(change))] * ratios))
    return made


def differs(change: Change, item: Column) -> bool:
    """Whether a column has something to tell of a change."""
    return not set(item.names).isdisjoint(change.differing)


def named(change: Change) -> str:
    """What changed, behind the layer or part that it belongs to."""
    name = clean(placed(change.where, change.name))
    if change.came or change.went:
        return f"{name} ({ONLY['came' if change.came else 'went']})"
    return name


def value(fact: Any, digits: int = 4) -> str:
    """A fact in a cell."""
    if fact is None or fact == "":
        return wording.NOTHING
    if isinstance(fact, bool):
        return "yes" if fact else "no"
    if isinstance(fact, float):
        return "infinite" if math.isinf(fact) else f"{fact:.{digits}g}"
    if isinstance(fact, dict):
        return ", ".join(f"{clean(name)} {value(item, digits)}" for name, item in fact.items())
    if isinstance(fact, list | tuple):
        return ", ".join(value(item, digits) for item in fact)
    return clean(fact)


def told(name: str, fact: Any, digits: int = 4) -> str:
    """A fact by its name: counts have commas."""
    count = name in COUNTS and isinstance(fact, int) and not isinstance(fact, bool)
    return f"{fact:,}" if count else value(fact, digits)


def shift(before: Any, after: Any) -> str:
    """` (-83 %)`, or ` (x12)` and ` (/400)` for far moves; nothing where there is no percent of it.

    Words, such as `beyond 512`, have none, nor has what was zero or less.
    """
    if not (_positive(before) and _positive(after)) or before == after:
        return ""
    ratio = after / before
    if not LITTLE <= ratio <= MANIFOLD:
        return f" ({factor(before, after)})"
    percent = 100.0 * (after - before) / before
    digits = f"{percent:+.0f}" if abs(percent) >= 10.0 else f"{percent:+.2g}"
    return f" ({digits} %)"


def factor(before: float, after: float) -> str:
    """How many times larger, `x12`, or smaller, `/12`, the later number is."""
    low, high = sorted((before, after))
    times = high / low
    return f"{'x' if after >= before else '/'}{value(times, 4 if times < VAST else 2)}"


def now(change: Change, item: Column) -> str:
    """What a column tells of the later side, and how far its number moved, before any interval."""
    before, after = change.before or {}, change.after or {}
    shifts = (shift(before.get(name), after.get(name)) for name in item.moving)
    far = next((words for words in shifts if words), "")
    number, bracket, rest = two(item, before, after)[1].partition(" [")
    return f"{number}{far}{bracket}{rest}"


def two(item: Column, before: Facts, after: Facts) -> tuple[str, str]:
    """The words of both sides, in digits that tell them apart where any do."""
    words = ("", "")
    for digits in DIGITS:
        words = item.words(before, digits), item.words(after, digits)
        if words[0] != words[1]:
            break
    return words


def _first(change: Change, item: Column) -> str:
    if change.before is None or change.after is None or not differs(change, item):
        return item.words(change.before or change.after or {}, DIGITS[0])
    return two(item, change.before, change.after)[0]


def _second(change: Change, item: Column) -> str:
    if not differs(change, item):
        return ""
    return now(change, item)


def _positive(fact: Any) -> bool:
    number = isinstance(fact, int | float) and not isinstance(fact, bool)
    return number and 0.0 < fact < math.inf


def _ratio(change: Change) -> str:
    if change.apart is None:
        return ""
    return f"{factor(change.apart.before, change.apart.after)} at {change.apart.lag}"
