"""Running probes and queries over a subject, or over every part of a host."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch

from memaudit.bench import Bench, Facts
from memaudit.errors import MemauditError, SourceError
from memaudit.numerics import signals
from memaudit.probes.assumptions import Assumptions
from memaudit.results import Assumption

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from memaudit.contracts import AbstractProbe, AbstractQuery, AbstractSubject, Setting
    from memaudit.numerics.signals import Probes
    from memaudit.results import Curve
    from memaudit.tally import Tally

    Progress = Callable[[str, int, int], None]

#: Real input vectors (token embeddings) that join the probes.
NATURAL = 8


@dataclass(slots=True)
class Measurement:
    """What has been measured: curves by part and query, the other fields of the report."""

    curves: dict[str, dict[str, Curve]] = field(default_factory=dict)
    fields: dict[str, Any] = field(default_factory=dict)
    errors: list[dict[str, str]] = field(default_factory=list)
    interrupted: bool = False


def measure(
    subject: AbstractSubject,
    queries: Sequence[AbstractQuery],
    probes: Sequence[AbstractProbe],
    setting: Setting,
    progress: Progress,
) -> Measurement:
    """Everything that was asked for; what is there is kept when a layer fails or Ctrl-C ends it."""
    found = Measurement()
    parts = dict(subject.parts()) or {"": subject}
    for name, part in parts.items():
        try:
            _measure_part(name, part, queries, probes, setting, progress, found)
        except KeyboardInterrupt:
            found.interrupted = True
            break
        except MemauditError as error:
            if len(parts) == 1:
                raise
            found.errors.append({**error.to_dict(), "where": name})
    return found


def _measure_part(
    name: str,
    subject: AbstractSubject,
    queries: Sequence[AbstractQuery],
    probes: Sequence[AbstractProbe],
    setting: Setting,
    progress: Progress,
    found: Measurement,
) -> None:
    label = f"{name}: " if name else ""
    outputs, precision = try_out(subject)
    progress(f"{label}assumptions", 0, 1)
    assumed = Assumptions().measure(subject, setting)
    progress(f"{label}assumptions", 1, 1)
    for probe in probes:
        result = assumed if isinstance(probe, Assumptions) else probe.measure(subject, setting)
        _keep(found.fields, probe.fills, result, where=name)
    curves = found.curves.setdefault(name, {})
    if queries:
        linear = _holds(assumed, "linear")
        causal = subject.pooled or _holds(assumed, "causal")
        rounding = max(precision, _hidden_rounding(assumed))
        facts = Facts(causal=causal, linear=linear, outputs=outputs, rounding=rounding)
        run = QueryRun(subject, setting, facts, label, progress)
        run.measure(queries, curves)


@dataclass(frozen=True, slots=True)
class QueryRun:
    """All queries on one part, in one batched pass where the model allows it."""

    subject: AbstractSubject
    setting: Setting
    facts: Facts
    label: str
    progress: Progress

    def measure(self, queries: Sequence[AbstractQuery], curves: dict[str, Curve]) -> None:
        """Fill `curves`; on Ctrl-C from the probes that were finished.

        A query in its form for linear models is asked again in its own form when the readings do
        not superpose after all, and with a longer prefix when the state had not settled.
        """
        asked = [q.on_linear() if self.facts.linear else q for q in queries]
        tallies = self._run(asked, curves)
        misled = [
            own
            for own, form, tally in zip(queries, asked, tallies, strict=True)
            if tally.refuted and form is not own
        ]
        if misled:
            tallies = [t for t in tallies if not t.refuted] + self._run(misled, curves)
        while retry := [q for t in tallies if (q := self._longer(t)) is not None]:
            tallies = self._run(retry, curves)

    def _run(self, queries: Sequence[AbstractQuery], curves: dict[str, Curve]) -> list[Tally]:
        clock = _Clock(f"{self.label}{', '.join(q.name for q in queries)}", self.progress)
        bench = Bench(
            self.subject,
            self.setting,
            self.facts,
            self._vectors(),
            self.setting.normalization,
            clock.advance,
        )
        tallies = bench.tallies(queries)
        clock.total = bench.cost(tallies)
        clock.advance(0)
        try:
            bench.run(tallies)
        except KeyboardInterrupt:
            self._conclude(tallies, curves, interrupted=True)
            raise
        self._conclude(tallies, curves, interrupted=False)
        clock.finish()
        return tallies

    def _conclude(
        self, tallies: Sequence[Tally], curves: dict[str, Curve], *, interrupted: bool
    ) -> None:
        for tally in tallies:
            # A longer prefix that was cut short does not replace the curve that is there.
            if not tally.values or (interrupted and tally.query.name in curves):
                continue
            curves[tally.query.name] = tally.curve(
                epsilon=self.setting.epsilon,
                prefix=tally.query.prefix(self.setting.horizon),
                interrupted=interrupted,
                unsettled=not tally.settled(self.setting.epsilon),
            )

    def _longer(self, tally: Tally) -> AbstractQuery | None:
        # A pooled model pays for every lag with a run over the whole prefix.
        cheap = self.setting.level == "quick" or self.subject.pooled
        if cheap or tally.settled(self.setting.epsilon):
            return None
        return tally.query.lengthened(self.setting.horizon)

    def _vectors(self) -> Probes:
        width = self.subject.input_size or 1
        generator = signals.seeded(self.setting.seed)
        if self.setting.normalization == "universal":
            return signals.ones_probe(width)
        if self.setting.normalization == "script":
            return signals.random_probe(width, generator)
        return signals.probe_vectors(
            width,
            level=self.setting.level,
            generator=generator,
            amplitudes=self.setting.amplitudes,
            sweep=self.facts.linear or self.setting.level != "quick",
            natural=self.subject.natural_inputs(NATURAL, generator),
        )


class _Clock:
    """Counts tokens for the progress callback."""

    def __init__(self, stage: str, progress: Progress) -> None:
        self.stage, self.progress = stage, progress
        self.done, self.total = 0, 1

    def advance(self, tokens: int) -> None:
        self.done = min(self.done + tokens, self.total)
        self.progress(self.stage, self.done, self.total)

    def finish(self) -> None:
        self.advance(self.total)


def try_out(subject: AbstractSubject) -> tuple[int, float]:
    """The width M of the answer and its rounding, from a trial that shows a wrong shape early."""
    width = subject.input_size or 1
    trial = torch.zeros(2, 8, width, device=subject.device, dtype=subject.dtype)
    answer = subject.respond(trial)
    expected = (2,) if subject.pooled else (2, 8)
    if answer.ndim != len(expected) + 1 or tuple(answer.shape[:-1]) != expected:
        raise SourceError(
            "E_UNSUPPORTED",
            f"the model answered an input of (2, 8, {width}) by {tuple(answer.shape)}",
            hint="a subject answers (B, T, M), or (B, M) when pooled",
            stage="respond",
        )
    coarsest = max(torch.finfo(dtype).eps for dtype in (subject.dtype, answer.dtype))
    return int(answer.shape[-1]), coarsest


def _hidden_rounding(assumptions: Sequence[Assumption]) -> float:
    """Rounding inside the model, seen where a row alone and in a batch differ by a little."""
    found = [a.residual for a in assumptions if a.name == "rows-independent" and a.holds]
    return max((residual for residual in found if residual is not None), default=0.0)


def _holds(assumptions: Sequence[Assumption], name: str) -> bool:
    return any(a.name == name and a.holds for a in assumptions)


def _keep(fields: dict[str, Any], name: str, result: Any, *, where: str) -> None:
    """Store a probe's result; tuples of records from several parts stand behind each other."""
    if isinstance(result, tuple):
        if where:
            result = tuple(replace(r, where=where) if hasattr(r, "where") else r for r in result)
        fields[name] = fields.get(name, ()) + result
    else:
        fields[name] = result
