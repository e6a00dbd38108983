"""The audit itself: open a source, measure, judge. Nothing here prints."""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from memaudit import registry
from memaudit.catalog import BUILT_IN
from memaudit.contracts import Tools
from memaudit.devices import exact_math, shortage
from memaudit.doctor import environment
from memaudit.errors import MachineError, MemauditError
from memaudit.loading.filling import digest_tensors
from memaudit.opening import load, open_source
from memaudit.options import (
    build_probes,
    check_setting,
    given_options,
    split_options,
    split_probe_options,
)
from memaudit.report import Report, Result
from memaudit.rules import judge
from memaudit.subjects.batches import BatchedSubject
from memaudit.texts import text_told

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from memaudit.contracts import (
        AbstractProbe,
        AbstractQuery,
        AbstractSubject,
        AbstractTokenQuery,
        Setting,
    )

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
    chosen = build_probes(probes, of_probes, queries=queries)
    with _progress(progress) as advance, shortage():
        advance("opening", 0, 1)
        opened = open_source(source, progress=advance, **opening)
        advance("opening", 1, 1)
        ready = time.perf_counter()
        subject = opened.subject
        with exact_math(subject.device):
            found = _measure(subject, chosen, setting, advance)
        for change in opened.changed_files():
            found.failed(change, where="")
    timing = {"open_seconds": ready - started, "measure_seconds": time.perf_counter() - ready}
    report = Report(
        subject=replace(
            subject.identity,
            whole=not subject.parts(),
            context=subject.advertised,
            longest=subject.longest,
        ),
        settings=_settings(setting, chosen, subject, trusted=opened.access.trust_remote_code),
        results=found.results(host=bool(subject.parts())),
        complete=not found.interrupted and not found.errors,
        errors=tuple(found.errors),
        timing=timing,
        environment=environment() | ({"memory": found.shortage} if found.shortage else {}),
    )
    try:
        report = replace(report, findings=judge(report))
    except KeyboardInterrupt:
        if found.interrupted:  # for the second time: the user wants to be gone
            raise
        raise Interrupted(replace(report, complete=False)) from None
    if found.interrupted:
        raise Interrupted(report)
    return report


@dataclass(slots=True)
class _Measured:
    """Results by part and probe, what failed, and whether memory ran short."""

    parts: dict[str, dict[str, Result]] = field(default_factory=dict)
    errors: list[dict[str, str]] = field(default_factory=list)
    shortage: str = ""
    interrupted: bool = False

    def failed(self, error: MemauditError, *, where: str) -> None:
        """Note what went wrong; the rest is measured all the same."""
        self.errors.append({**error.to_dict(), "where": where})

    def results(self, *, host: bool) -> dict[str, Result]:
        """The results by probe in the order of the catalog, those of a host's parts joined."""
        order = [*BUILT_IN["probes"], *(n for own in self.parts.values() for n in own)]
        found: dict[str, Result] = {}
        for name in dict.fromkeys(order):
            parts = {part: own[name] for part, own in self.parts.items() if name in own}
            if parts:
                first = next(iter(parts.values()))
                found[name] = type(first).joined(parts) if host else first
        return found


def _measure(
    subject: AbstractSubject, probes: list[AbstractProbe], setting: Setting, progress: Progress
) -> _Measured:
    """Every probe on every part; what is there is kept when a step fails or Ctrl-C ends it."""
    found = _Measured()
    parts = dict(subject.parts()) or {"": subject}
    for number, (name, part) in enumerate(parts.items()):
        place = f"{name} ({number + 1} of {len(parts)}): " if len(parts) > 1 else ""
        batched, results = BatchedSubject(part), found.parts.setdefault(name, {})
        try:
            for probe in probes:
                outside = registry.outside("probes", probe.name)
                before = outside and digest_tensors(dict(part.weights()))
                try:
                    _run(probe, batched, setting, results, progress, place)
                except MemauditError as error:
                    cheap = probe.cost == "cheap" and outside is None
                    if cheap and len(parts) == 1 and "memory" not in results:
                        raise  # nothing was measured: the error is the answer
                    found.failed(error, where=name)
                    if cheap:
                        break
                if outside and digest_tensors(dict(part.weights())) != before:
                    results.pop(probe.name, None)
                    fact = "moved the weights of the model: load it anew"
                    found.failed(registry.nonsense(outside, fact), where=name)
                    break  # the probes that follow would measure another model
        except KeyboardInterrupt:
            found.interrupted = True
            break
        finally:
            found.shortage = found.shortage or batched.shortage_text
    return found


def _run(
    probe: AbstractProbe,
    subject: BatchedSubject,
    setting: Setting,
    results: dict[str, Result],
    progress: Progress,
    place: str,
) -> None:
    """One probe; an outside one is named when it fails."""
    stage = f"{place}{probe.name}"

    def keep(result: Result) -> None:
        results[probe.name] = result

    progress(stage, 0, 1)
    tools = Tools(lambda done, of: progress(stage, done, of), dict(results), keep)
    with registry.calling("probes", probe.name, "failed"), _enough_memory(probe.name):
        keep(probe.measure(subject, setting, tools))
    progress(stage, 1, 1)


@contextmanager
def _enough_memory(probe: str) -> Iterator[None]:
    """A shortage that nobody could help becomes an error that leaves the other parts alone."""
    try:
        with shortage():
            yield
    except MemoryError:
        raise MachineError(
            "E_MEMORY",
            f"the machine has too little memory for the probe {probe}",
            hint="try --quick or a smaller --horizon",
            stage="measure",
        ) from None


def _settings(
    setting: Setting, probes: list[AbstractProbe], subject: AbstractSubject, *, trusted: bool
) -> dict[str, Any]:
    """What a report says about how it was made."""
    queries = [getattr(q, "name", q) for p in probes for q in getattr(p, "queries", ())]
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
        "queries": queries,
        "probes": [probe.name for probe in probes if probe.name != "memory"],
    }
    if options := given_options(probes):  # reports of usual probes look as they always did
        settings["probe_options"] = options
    return settings


@contextmanager
def _progress(progress: Progress | bool | None) -> Iterator[Progress]:
    if callable(progress):
        yield progress
        return
    from memaudit.writers.progress import progress_bar

    with progress_bar(wanted=bool(progress)) as advance:
        yield advance
