"""Where the rules look: groups of curves, failed assumptions, and numbers as words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memaudit import registry
from memaudit.catalog import DEFAULT_QUERIES
from memaudit.errors import MemauditError
from memaudit.numerics.deaf import remembers as remembers

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from memaudit.memory.result import Assumption, Curve
    from memaudit.report import Report


def groups(report: Report) -> Iterator[tuple[str, Mapping[str, Curve]]]:
    """The curves by place: every part of a host, else the whole model.

    For a host `report.memory` repeats curves of its parts, so only one of the two is read. The
    hidden states of a whole model are no findings of their own.
    """
    if report.layers and not report.subject.whole:
        yield from report.layers.items()
    else:
        yield "", report.memory


def matching(
    report: Report, wanted: Callable[[Curve], bool]
) -> Iterator[tuple[str, dict[str, Curve]]]:
    """The places with at least one curve of that sort, and these curves by query."""
    for where, curves in groups(report):
        found = {query: curve for query, curve in curves.items() if wanted(curve)}
        if found:
            yield where, found


def failed(report: Report, name: str) -> Iterator[Assumption]:
    """The measurements in which an assumption does not hold."""
    return (item for item in report.assumptions if item.name == name and item.holds is False)


def holds(report: Report, name: str, where: str) -> bool | None:
    """Whether an assumption holds at a place; None when nobody measured it there.

    A measurement without a place speaks for the whole model.
    """
    found = [a.holds for a in report.assumptions if a.name == name and a.where in ("", where)]
    if False in found:
        return False
    return True if True in found else None


def measured(assumption: Assumption) -> str:
    """The residual beside its tolerance, and the note that the probe left."""
    text = ""
    if assumption.residual is not None and assumption.tolerance is not None:
        text = f" (residual {assumption.residual:.2g}, tolerance {assumption.tolerance:.2g})"
    return text + (f": {assumption.note}" if assumption.note else "")


def heard_by(curves: Mapping[str, Curve], side: tuple[str, ...]) -> list[str]:
    """The queries of the other side that heard something, and what."""
    return [f"{q} {c.decay.kind}" for q, c in curves.items() if q not in side and remembers(c)]


def one_sided(queries: Collection[str], side: tuple[str, ...]) -> str:
    """The query to add where all are of one side, or none is; "" where there are both."""
    if not any(query in side for query in queries):
        return side[0]
    if all(query in side for query in queries):
        return next(query for query in DEFAULT_QUERIES if query not in side)
    return ""


def last_lag(curve: Curve) -> int:
    """The last lag that was measured; 0 when there is none."""
    return int(curve.lags[-1]) if len(curve.lags) else 0


def span(curve: Curve) -> str:
    """The lags that the verdict rests on, in words."""
    if curve.decay.window is not None:
        return f"lags {curve.decay.window[0]} to {curve.decay.window[1]}"
    if not len(curve.lags):
        return "no lag"
    return f"lags {int(curve.lags[0])} to {last_lag(curve)}"


def bracket(interval: tuple[float, float] | None) -> str:
    """An interval in brackets with a space before it, or nothing."""
    return "" if interval is None else f" [{interval[0]:.4g}, {interval[1]:.4g}]"


def each(curves: Mapping[str, Curve], sentence: Callable[[Curve], str]) -> str:
    """One clause per query: `heaviside: …; impulse: …`."""
    return "; ".join(f"{query}: {sentence(curve)}" for query, curve in curves.items())


def next_power(number: int) -> int:
    """The next power of two, as people choose horizons."""
    return 1 << (max(number, 8) - 1).bit_length()


def first_lag(curve: Curve) -> int:
    """The first lag that is memory to the query of a curve; 0 when its plugin is not here."""
    try:
        return int(registry.build("queries", curve.query).first_lag)
    except MemauditError:
        return 0
