"""The numbers of a memory curve, and of all the queries of a model."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from memaudit.numerics.deaf import telling
from memaudit.reports import wording
from memaudit.results import Status

if TYPE_CHECKING:
    from collections.abc import Callable

    from memaudit.results import Curve, Report

#: The number of a model is that of the query under which it remembers least.
LEAST: dict[str, Callable[..., str]] = {
    **{"horizon": min, "half_life": min, "rate": max, "exponent": max, "support": min},
    "confidence": min,
}
BEYOND = "horizon_beyond"


def curve_numbers(curve: Curve) -> dict[str, float | None]:
    """The numbers of one curve; a horizon beyond the window is infinite, an unseen one None."""
    word, decay = wording.horizon(curve), curve.decay
    beyond = curve.horizon is None and word.startswith(">")
    return {
        "horizon": math.inf if beyond else curve.horizon,
        BEYOND: int(curve.lags[-1]) if beyond else None,
        "half_life": curve.half_life,
        "rate": decay.rate,
        "exponent": decay.exponent,
        "support": decay.support,
        "confidence": decay.confidence if len(curve.values) else None,
    }


def whole_numbers(report: Report) -> dict[str, float]:
    """The numbers of the model: of every kind the one that tells of the shortest memory."""
    return {name: value for name, (_, value) in whole_holders(report).items()}


def whole_holders(report: Report) -> dict[str, tuple[str, float]]:
    """The numbers of the model, each with the query that it comes from.

    A query that hears nothing only because of what it feeds (MA114, MA115) does not count. Of two
    with the same number the one without a caveat is named.
    """
    curves = telling(report.memory, baseline=report.settings.get("baseline", "zero"))
    ordered = sorted(curves, key=lambda query: curves[query].status is not Status.OK)
    rows = {query: curve_numbers(curves[query]) for query in ordered}
    told: dict[str, tuple[str, float]] = {}
    for name, least in LEAST.items():
        known = {q: float(value) for q, row in rows.items() if (value := row[name]) is not None}
        if known:
            query = least(known, key=known.__getitem__)
            told[name] = query, known[query]
    if told.get("horizon", ("", 0.0))[1] == math.inf:
        lags = {q: float(value) for q, row in rows.items() if (value := row[BEYOND]) is not None}
        query = min(lags, key=lags.__getitem__)
        told |= {"horizon": (query, math.inf), BEYOND: (query, lags[query])}
    return told
