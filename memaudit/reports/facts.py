"""What the probes found, a line each: for the summary that fits one screen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memaudit.errors import clean
from memaudit.memory.curve import longest_layers
from memaudit.precision.result import Precision
from memaudit.recall.result import Recall
from memaudit.reports.depth import steps
from memaudit.reports.linear_layers import difference
from memaudit.reports.placing import placed
from memaudit.reports.precision_table import gravest, rounding_verdict
from memaudit.reports.stability_table import UNTIL, radius
from memaudit.stability.result import Stability

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from memaudit.gradient.result import Gradient
    from memaudit.recall.result import Decoding
    from memaudit.report import Report
    from memaudit.stability.result import PerturbationCurve

#: Names are cut here: a line has other things to tell.
NAME = 30


def facts(report: Report) -> dict[str, str]:
    """Name of the measurement and what it says; what was not measured has no line."""
    return {key: told for key, told in _told(report) if told}


def _told(report: Report) -> Iterator[tuple[str, str]]:
    yield "spectrum", _spectrum(report)
    yield "layers", _layers(report)
    yield "closed form", _closed_form(report)
    if isinstance(report.stability, Stability):
        yield "stability", _stability(report.stability.first)
    if isinstance(report.precision, Precision):
        yield "precision", _precision(report.precision)
    if report.gradient:
        yield "gradient", _gradient(report.gradient)
    if isinstance(report.recall, Recall) and report.recall.fullest is not None:
        yield "recall", _recall(report.recall.fullest)
    yield "assumptions", _assumptions(report)


def _stability(first: PerturbationCurve) -> str:
    """A radius means little without what it ends at: a mode may be safe, and the answers not."""
    until = UNTIL.get(first.radius.criterion, clean(first.radius.criterion, limit=NAME))
    weights = f"{clean(first.group, limit=NAME)} weights, {clean(first.ball, limit=NAME)} ball"
    near = radius(first.tolerance_radius)
    return f"radius {radius(first.radius)} until {until}, {near} until tolerance ({weights})"


def _gradient(items: Sequence[Gradient]) -> str:
    named = dict.fromkeys(clean(item.recommended, limit=NAME) for item in items)
    forms = [name for name in named if name]
    return f"reparameterization to train with: {', '.join(forms) or 'none, --verbose says why'}"


def _recall(most: Decoding) -> str:
    inputs = f"{most.inputs} input{'s' * (most.inputs != 1)}"
    return f"{most.told} ({clean(most.state, limit=NAME)}, {inputs})"


def _spectrum(report: Report) -> str:
    if not report.spectrum:
        return ""
    item = min(report.spectrum, key=lambda one: one.margin)
    where = placed(item.where, item.layer)
    more = f", nearest to the edge of {len(report.spectrum)}" if len(report.spectrum) > 1 else ""
    told = f"margin {item.margin:.2e}, time scale {steps(item.time_scale)} steps"
    return f"{told} ({clean(where, limit=NAME)}{more})"


def _layers(report: Report) -> str:
    if len(report.layers) < 2:
        return ""
    held = [
        f"{clean(query, limit=NAME)} {clean(layer, limit=NAME)}"
        for query, layer in longest_layers(report.layers).items()
    ]
    kind = "layers" if report.subject.whole else "parts, each run by itself"
    longest = f"; longest memory: {', '.join(held)}" if held else ""
    return f"{len(report.layers)} {kind}{longest}"


def _closed_form(report: Report) -> str:
    known = [item.deviation for item in report.closed_form if item.deviation is not None]
    if not known:
        return ""
    count = len(report.closed_form)
    return f"{count} linear layer{'s' * (count > 1)}, answers {difference(max(known))} from exact"


def _precision(precision: Precision) -> str:
    parts = (precision, *precision.others)
    names = dict.fromkeys(r.format for part in parts for r in part.roundings)
    verdicts: dict[str, list[str]] = {}
    for name in names:
        verdict, _ = rounding_verdict(gravest(parts, name)[1])
        verdicts.setdefault(verdict, []).append(clean(name, limit=NAME))
    return "; ".join(f"{verdict}: {', '.join(same)}" for verdict, same in verdicts.items())


def _assumptions(report: Report) -> str:
    said: dict[str, list[str]] = {}
    for item in report.assumptions:
        said.setdefault(item.verdict, []).append(clean(item.name, limit=NAME))
    held = said.pop("holds", [])
    told = [f"{len(held)} hold{'s' * (len(held) == 1)}"] if held else []
    for verdict, names in said.items():
        word = "fail" if verdict == "fails" else verdict
        told.append(f"{word}: {', '.join(dict.fromkeys(names))}")
    return "; ".join(told)
