"""All queries on one part, in as few passes as the model allows."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import torch

from memaudit.bench import Bench
from memaudit.errors import ArgumentError, MemauditError
from memaudit.memory.result import Facts
from memaudit.numerics import signals
from memaudit.tally import unmeasured

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from memaudit.contracts import AbstractQuery, Setting
    from memaudit.memory.result import Curve
    from memaudit.numerics.signals import Probes
    from memaudit.rig import Rig
    from memaudit.tally import Tally

    Progress = Callable[[str, int, int], None]

#: With fewer lags there is no curve to speak of.
FEWEST_LAGS = 4
#: Real input vectors (token embeddings) that join the probes.
NATURAL = 8


@dataclass(frozen=True, slots=True)
class QueryRun:
    """All queries on one part, in one batched pass where the model allows it."""

    subject: Rig
    setting: Setting
    facts: Facts
    label: str
    progress: Progress
    #: Curves of the hidden states by layer and query, filled beside those of the model.
    hidden: dict[str, dict[str, Curve]] = field(default_factory=dict)

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
            self._rest(),
        )
        tallies = bench.tallies(queries)
        clock.total = bench.cost(tallies)
        clock.advance(0)
        try:
            bench.run(tallies)
        except (KeyboardInterrupt, MemauditError):
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
            curves[tally.query.name] = self._curve(tally, interrupted=interrupted)
            for layer, inner in tally.hidden.items():
                if inner.values:
                    heard = self._curve(inner, interrupted=interrupted)
                    self.hidden.setdefault(layer, {})[tally.query.name] = heard

    def _curve(self, tally: Tally, *, interrupted: bool) -> Curve:
        return tally.curve(
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
        longer = tally.query.lengthened(self.setting.horizon)
        limit = self.subject.longest
        if longer is None or limit is None:
            return longer
        return longer if self.steps_of(longer, self.setting.horizon) <= limit else None

    def steps_of(self, query: AbstractQuery, horizon: int) -> int:
        """How long the sequences are that a query feeds for so many lags."""
        steps = query.inputs(torch.zeros(1, 1), horizon).shape[1]
        # A model that looks ahead is run past the end of the window.
        return steps if self.facts.causal else steps + horizon

    def fitted(self, query: AbstractQuery) -> int:
        """The most lags, up to the horizon, whose sequences the model takes; 0 for none."""
        limit, most = self.subject.longest, self.setting.horizon
        if limit is None or self.steps_of(query, most) <= limit:
            return most
        low, high = 0, most
        while high - low > 1:
            middle = (low + high) // 2
            fits = self.steps_of(query, middle) <= limit
            low, high = (middle, high) if fits else (low, middle)
        return low

    def measure_within(self, queries: Sequence[AbstractQuery], curves: dict[str, Curve]) -> None:
        """Like `measure`; a query that the model is too short for is asked for fewer lags."""
        groups: dict[int, list[AbstractQuery]] = {}
        for query in queries:
            form = query.on_linear() if self.facts.linear else query
            groups.setdefault(min(self.fitted(query), self.fitted(form)), []).append(query)
        for lags, group in groups.items():
            if lags < FEWEST_LAGS:
                curves.update({q.name: unmeasured(q.name, self.setting) for q in group})
            else:
                setting = replace(self.setting, horizon=lags)
                replace(self, setting=setting).measure(group, curves)

    def _rest(self) -> torch.Tensor | None:
        """The input that counts as silence, None for zeros."""
        asked = self.setting.baseline
        if asked == "zero":
            return None
        if not isinstance(asked, str):
            return torch.full((self.subject.input_size or 1,), float(asked), dtype=torch.float64)
        natural = self.subject.natural_inputs(1, signals.seeded(self.setting.seed))
        if natural is None or not len(natural):
            fact = (
                "baseline=natural was asked for, and the model has no embeddings to take one from"
            )
            raise ArgumentError(fact, hint="take zero, or a number")
        return natural[0]

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
