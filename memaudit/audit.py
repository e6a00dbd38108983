"""The audit itself: open a source, measure, judge. Nothing here prints."""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from memaudit import registry
from memaudit.contracts import (
    AbstractProbe,
    AbstractQuery,
    AbstractSubject,
    AbstractTokenQuery,
    Setting,
)
from memaudit.devices import exact_math, shortage
from memaudit.doctor import environment
from memaudit.findings.judge import judge
from memaudit.measuring import Measurement, measure
from memaudit.numerics.reach import longest_of
from memaudit.opening import load, open_source
from memaudit.probe_options import build_probes, given_options, split_probe_options
from memaudit.results import Report
from memaudit.settings import check_setting, split_options
from memaudit.texts import text_told

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    Progress = Callable[[str, int, int], None]
    AnyQuery = AbstractQuery | AbstractTokenQuery

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
    queries: Sequence[str | AnyQuery] | None = None,
    probes: Sequence[str | AbstractProbe] | None = None,
    seed: int = 0,
    progress: Progress | bool | None = None,
    **options: Any,
) -> Report:
    """Audit a source, a module or a subject, and give back the whole report.

    `options` are measuring options (level, normalization, amplitudes, epsilon, baseline, text,
    words), opening options (adapter, device, dtype, revision), the adapter's own, and those of a
    probe, as in **{"stability.ball": "frobenius"}. Ctrl-C raises
    `Interrupted`, which carries the partial report. `progress` True draws a bar on a terminal.
    """
    started = time.perf_counter()
    plain, of_probes = split_probe_options(options)
    setting, opening = split_options(horizon=horizon, seed=seed, options=plain)
    check_setting(setting)
    asked = _queries(queries)
    tests = build_probes(probes, of_probes)
    with _progress(progress) as advance, shortage():
        advance("opening", 0, 1)
        opened = open_source(source, progress=advance, **opening)
        advance("opening", 1, 1)
        ready = time.perf_counter()
        subject = opened.subject
        with exact_math(subject.device):
            found = measure(subject, asked, tests, setting, advance, patience=opened.access.timeout)
        for change in opened.changed_files():
            found.failed(change, where="")
    timing = {"open_seconds": ready - started, "measure_seconds": time.perf_counter() - ready}
    trusted = opened.access.trust_remote_code
    report = _report(subject, found, setting, asked, tests, trusted=trusted)
    report = replace(report, timing=timing)
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


def _queries(asked: Sequence[str | AnyQuery] | None) -> list[AnyQuery]:
    from memaudit.catalog import DEFAULT_QUERIES

    names = DEFAULT_QUERIES if asked is None else [asked] if isinstance(asked, str) else asked
    return [registry.build("queries", q) if isinstance(q, str) else q for q in names]


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
    queries: list[AnyQuery],
    probes: list[AbstractProbe],
    *,
    trusted: bool,
) -> Report:
    host = bool(subject.parts())
    layers = found.curves if host else found.hidden
    memory = longest_of(layers) if host else found.curves.get("", {})
    settings = {
        "horizon": setting.horizon,
        "seed": setting.seed,
        "level": setting.level,
        "normalization": setting.normalization,
        "amplitudes": setting.amplitudes,
        "epsilon": setting.epsilon,
        "baseline": setting.baseline,
        "text": None if subject.vocabulary is None else text_told(setting.text),
        "words": setting.words,
        "trust_remote_code": trusted,
        "queries": [q.name for q in queries],
        "probes": [p.name for p in probes],
    }
    if options := given_options(probes):  # reports of usual probes look as they always did
        settings["probe_options"] = options
    told = {"whole": not host, "context": subject.advertised, "longest": subject.longest}
    return Report(
        subject=replace(subject.identity, **told),
        settings=settings,
        memory=memory,
        layers=layers,
        complete=not found.interrupted and not found.errors,
        errors=tuple(found.errors),
        environment=environment() | ({"memory": found.shortage} if found.shortage else {}),
        **found.fields,
    )
