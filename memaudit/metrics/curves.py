"""The numbers of a memory curve, and of all the queries of a model."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from memaudit.memory.curve import SIGNAL_OVER_FLOOR, UNREAD, HorizonStatus
from memaudit.memory.curve import informative as telling
from memaudit.memory.result import Status
from memaudit.metrics.number import Number

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from memaudit.memory.result import Curve
    from memaudit.report import Report

    Row = Mapping[str, float | None]

#: The number of a model is that of the query under which it remembers least.
LEAST: dict[str, Callable[..., str]] = {
    **{"horizon": min, "half_life": min, "rate": max, "exponent": max, "support": min},
    "confidence": min,
}
BEYOND = "horizon_beyond"
#: What only one kind of decay has. A curve of another kind has none, which is no gap; one that
#: tells no kind, or nothing at all, might have it.
OF_A_KIND = ("rate", "exponent", "support")
NO_KIND = ("undetermined", "memoryless")


def curve_numbers(curve: Curve) -> dict[str, float | None]:
    """The numbers of one curve; what lies beyond the window is infinite, what is unseen None."""
    decay, last = curve.decay, window(curve)
    beyond = last is not None and curve.horizon_status is HorizonStatus.BEYOND
    unhalved = last is not None and curve.half_life is None and not _half_hidden(curve)
    return {
        "horizon": math.inf if beyond else curve.horizon,
        BEYOND: last if beyond else None,
        "half_life": math.inf if unhalved else curve.half_life,
        "rate": decay.rate,
        "exponent": decay.exponent,
        "support": decay.support,
        "confidence": decay.confidence if len(curve.values) else None,
    }


def window(curve: Curve) -> int | None:
    """The last lag of a curve in which memory was seen, None where there was none to see."""
    seen = curve.status not in UNREAD and curve.decay.kind != "memoryless"
    return int(curve.lags[-1]) if seen and len(curve.lags) else None


def query_numbers(report: Report) -> Iterator[Number]:
    """The numbers under every query; that of a host is the one of its longest layer."""
    for query, curve in report.memory.items():
        held, unseen = _layer(report, query, curve), _unseen(report, query)
        for name, value in curve_numbers(curve).items():
            higher = unseen if name == "horizon" else ()  # one of those may be the longest
            beyond = _reach(curve, name, value)
            yield Number(name, value, query, holder=held, higher=higher, beyond=beyond)


def layer_numbers(report: Report) -> Iterator[Number]:
    """The numbers of the hidden state after every layer, or of every part of a host."""
    told = ("horizon", BEYOND, "half_life", "rate", "exponent")
    for layer, curves in report.layers.items():
        for query, curve in curves.items():
            numbers = curve_numbers(curve)
            for name in told:
                value = numbers[name]
                yield Number(name, value, query, layer=layer, beyond=_reach(curve, name, value))


def whole_numbers(report: Report) -> Iterator[Number]:
    """The numbers of the model: of every kind the one that tells of the shortest memory."""
    counting = _counting(report)
    rows = {query: curve_numbers(curve) for query, curve in counting.items()}
    lost = tuple(query for query in _asked(report) if query not in report.memory)
    for name, (query, value) in whole_holders(report).items():
        beyond = _reach(counting[query], name, value)
        gaps = (*(q for q, row in rows.items() if _gap(counting[q], row, name)), *lost)
        lower, higher = (gaps, ()) if LEAST.get(name) is min else ((), gaps)
        if name == "horizon":
            higher = _unseen(report, query)
        if name == BEYOND:  # not a number of its own
            lower = higher = ()
        short = _short(counting, rows, name, value)
        yield Number(
            name, value, holder=query, lower=lower, higher=higher, beyond=beyond, short=short
        )


def whole_holders(report: Report) -> dict[str, tuple[str, float]]:
    """The numbers of the model, each with the query that it comes from.

    A query that hears nothing only because of what it feeds (MA114, MA115) does not count. Of two
    with the same number the one without a caveat is named.
    """
    counting = _counting(report)
    rows = {query: curve_numbers(curve) for query, curve in counting.items()}
    told: dict[str, tuple[str, float]] = {}
    for name, least in LEAST.items():
        known = {q: float(value) for q, row in rows.items() if (value := row[name]) is not None}
        if known:
            query = least(known, key=known.__getitem__)
            told[name] = query, known[query]
    # Of those that all lie beyond, the one that was looked at least far tells of the model.
    for name in ("horizon", "half_life"):
        if name in told and told[name][1] == math.inf:
            ends = {q: _reach(counting[q], name, row[name]) for q, row in rows.items()}
            reached = {q: end for q, end in ends.items() if end is not None}
            query = min(reached, key=reached.__getitem__)
            told[name] = query, math.inf
            if name == "horizon":
                told[BEYOND] = query, reached[query]
    return told


def _half_hidden(curve: Curve) -> bool:
    """Whether half of the largest memory cannot be told from the floor."""
    if curve.decay.kind in ("persistent", "growing"):
        return False
    _, values = curve.memory()
    return not len(values) or bool(values.max() / 2 < SIGNAL_OVER_FLOOR * curve.floor)


def _counting(report: Report) -> dict[str, Curve]:
    """The curves that the numbers of the model are made of, those without a caveat first."""
    curves = telling(report.memory, baseline=report.settings.get("baseline", "zero"))
    ordered = sorted(curves, key=lambda query: curves[query].status is not Status.OK)
    return {query: curves[query] for query in ordered}


def _gap(curve: Curve, row: Row, name: str) -> bool:
    """Whether a query was asked for a number that it could not tell."""
    if name == BEYOND or row[name] is not None:
        return False
    return name not in OF_A_KIND or curve.decay.kind in NO_KIND


def _unseen(report: Report, query: str) -> tuple[str, ...]:
    """The parts of a host whose horizon under a query was not seen."""
    if report.subject.whole:
        return ()
    curves = {layer: own[query] for layer, own in report.layers.items() if query in own}
    return tuple(layer for layer, c in curves.items() if curve_numbers(c)["horizon"] is None)


def _layer(report: Report, query: str, curve: Curve) -> str:
    """The part of a host that a curve of the model comes from."""
    if report.subject.whole:
        return ""
    return next((layer for layer, own in report.layers.items() if own.get(query) == curve), "")


def _short(
    counting: Mapping[str, Curve], rows: Mapping[str, Row], name: str, value: float
) -> tuple[tuple[str, float], ...]:
    """Queries beyond the last lag of theirs, where that is less than the number itself."""
    if name not in ("horizon", "half_life") or value == math.inf:
        return ()
    seen = {query: _reach(counting[query], name, row[name]) for query, row in rows.items()}
    return tuple((q, last) for q, last in seen.items() if last is not None and last < value)


def _reach(curve: Curve, name: str, value: float | None) -> float | None:
    """How far was looked, where a number lies behind that."""
    last = window(curve)
    if value != math.inf or last is None:
        return None
    # A half-life counts from the top; what rests or grows has had none so far.
    if name != "half_life" or curve.decay.kind in ("persistent", "growing"):
        return float(last)
    lags, values = curve.memory()
    return float(last - lags[int(np.argmax(values))])


def _asked(report: Report) -> tuple[str, ...]:
    """The queries that the settings list; a file may hold anything there."""
    names = report.settings.get("queries")
    return tuple(map(str, names)) if isinstance(names, list | tuple) else ()
