"""The audit itself: open a source, measure, judge. Nothing here prints."""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from memaudit import registry
from memaudit.contracts import AbstractProbe, AbstractQuery, AbstractSubject, Setting
from memaudit.devices import exact_math, shortage
from memaudit.doctor import environment
from memaudit.findings.judge import judge
from memaudit.measuring import Measurement, measure
from memaudit.numerics.envelope import SIGNAL_OVER_FLOOR
from memaudit.opening import load, open_source
from memaudit.results import Curve, Report
from memaudit.settings import check_setting, split_options

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    Progress = Callable[[str, int, int], None]

__all__ = ["Interrupted", "load", "scan"]


class Interrupted(KeyboardInterrupt):
    """Ctrl-C during an audit; `report` holds what was measured until then."""

    def __init__(self, report: Report) -> None:
        self.report = report
        super().__init__("the audit was interrupted; the partial report is in .report")


def scan(
    source: Any,
    *,
    horizon: int = 512,
    queries: Sequence[str | AbstractQuery] | None = None,
    probes: Sequence[str | AbstractProbe] | None = None,
    seed: int = 0,
    progress: Progress | bool | None = None,
    **options: Any,
) -> Report:
    """Audit a source, a module or a subject, and give back the whole report.

    `options` are measuring options (level, normalization, amplitudes, epsilon), opening options
    (adapter, device, dtype, revision) and the adapter's own. Ctrl-C raises `Interrupted`, which
    carries the partial report. `progress` True draws a bar on a terminal.
    """
    started = time.perf_counter()
    setting, opening = split_options(horizon=horizon, seed=seed, options=options)
    check_setting(setting)
    asked = _queries(queries)
    tests = _probes(probes)
    with _progress(progress) as advance, shortage():
        opened = open_source(source, progress=advance, **opening)
        ready = time.perf_counter()
        subject = opened.subject
        with exact_math(subject.device):
            found = measure(subject, asked, tests, setting, advance, patience=opened.access.timeout)
        for change in opened.changed_files():
            found.failed(change, where="")
    timing = {"open_seconds": ready - started, "measure_seconds": time.perf_counter() - ready}
    report = replace(_report(subject, found, setting, asked, tests), timing=timing)
    return _judged(report, interrupted=found.interrupted)


def _judged(report: Report, *, interrupted: bool) -> Report:
    """The report with its findings; raises Interrupted when it was cut short."""
    try:
        report = replace(report, findings=judge(report))
    except KeyboardInterrupt:
        if interrupted:  # for the second time: the user wants to be gone
            raise
        raise Interrupted(replace(report, complete=False)) from None
    if interrupted:
        raise Interrupted(report)
    return report


def _queries(asked: Sequence[str | AbstractQuery] | None) -> list[AbstractQuery]:
    from memaudit.catalog import DEFAULT_QUERIES

    names = DEFAULT_QUERIES if asked is None else [asked] if isinstance(asked, str) else asked
    return [q if isinstance(q, AbstractQuery) else registry.build("queries", q) for q in names]


def _probes(asked: Sequence[str | AbstractProbe] | None) -> list[AbstractProbe]:
    from memaudit.catalog import DEFAULT_PROBES

    names = DEFAULT_PROBES if asked is None else [asked] if isinstance(asked, str) else asked
    return [p if isinstance(p, AbstractProbe) else registry.build("probes", p) for p in names]


@contextmanager
def _progress(progress: Progress | bool | None) -> Iterator[Progress]:
    if callable(progress):
        yield progress
        return
    from memaudit.reports.progress import progress_bar

    with progress_bar(wanted=bool(progress)) as advance:
        yield advance


def _report(
    subject: AbstractSubject,
    found: Measurement,
    setting: Setting,
    queries: list[AbstractQuery],
    probes: list[AbstractProbe],
) -> Report:
    layers = found.curves if subject.parts() else {}
    memory = _longest(layers) if layers else found.curves.get("", {})
    settings = {
        "horizon": setting.horizon,
        "seed": setting.seed,
        "level": setting.level,
        "normalization": setting.normalization,
        "amplitudes": setting.amplitudes,
        "epsilon": setting.epsilon,
        "queries": [q.name for q in queries],
        "probes": [p.name for p in probes],
    }
    return Report(
        subject=subject.identity,
        settings=settings,
        memory=memory,
        layers=layers,
        complete=not found.interrupted and not found.errors,
        errors=tuple(found.errors),
        environment=environment() | ({"memory": found.shortage} if found.shortage else {}),
        **found.fields,
    )


def _longest(layers: dict[str, dict[str, Curve]]) -> dict[str, Curve]:
    """Per query, the curve of the layer that remembers longest."""
    names = dict.fromkeys(name for curves in layers.values() for name in curves)
    return {
        name: max((c[name] for c in layers.values() if name in c), key=_reach) for name in names
    }


def _reach(curve: Curve) -> tuple[int, float, float]:
    """Growing beyond persistent beyond a horizon outside the window beyond one inside."""
    rank = {"growing": 3, "persistent": 2}.get(curve.decay.kind, 0)
    if rank == 0 and curve.horizon is None and len(curve.values):
        rank = int(curve.values[-1] > SIGNAL_OVER_FLOOR * curve.floor)
    return rank, float(curve.horizon or 0), curve.half_life or 0.0
