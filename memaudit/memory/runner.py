"""Runs the queries on a model: all of them in as few passes as its memory allows."""

from __future__ import annotations

import math
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import torch

from memaudit import registry
from memaudit.devices import shortage, widest_dtype
from memaudit.errors import ArgumentError, MemauditError
from memaudit.interfaces import AbstractQuery, AbstractTrialQuery, Circumstances, Status
from memaudit.memory.curve import Curve
from memaudit.memory.driven import NO_MORE_STEPS, NUDGE
from memaudit.memory.queries import is_large
from memaudit.memory.readings import Readings, trial_curve, unknown, unmeasured
from memaudit.memory.result import AssumptionsResult, Facts, MemoryResult
from memaudit.numerics import signals
from memaudit.subjects.batches import BatchedSubject, batched, too_little_memory
from memaudit.texts import read_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from memaudit.interfaces import AbstractSubject, Setting, Tools

    Tick = Callable[[int, int], None]

#: With fewer lags there is no curve to speak of.
FEWEST_LAGS = 4
#: Real input vectors (token embeddings) that join the probes.
NATURAL = 8
#: Steps of the first pass, which shows the shape and the rounding of the answers.
TRIAL_STEPS = 32
#: Different answers to noise from which on their digits can be told.
DIFFERENT = 32
#: Numbers (inputs and answers) of one pass; about a gigabyte with the temporaries. Sequential
#: models cost by passes more than by rows, so a pass should be as large as memory allows.
PASS_NUMBERS = 2**26
#: Tokens times parameters of one pass: some seconds of work, after which the progress moves and
#: Ctrl-C is noticed. Fixed by size, not by the clock: the same audit gives the same numbers.
PASS_WORK, SMALL_MODEL = 2**35, 2**16
#: Seconds of work from which on whoever waits is told how long it will take.
WORTH_SAYING = 10.0
#: The share of a budget that a query leaves to those that follow.
LATER_SHARE = 0.8
#: Every pass feeds zeros and a repeated row besides: fewer probes than this would waste it.
FEWEST_PROBES = 4
#: A nudge that an answer shows this many times larger was amplified by the model.
AMPLIFIED = 1e3


def run_queries(
    subject: AbstractSubject,
    queries: Iterable[AbstractQuery | AbstractTrialQuery],
    setting: Setting,
    facts: Facts,
    found: MemoryResult,
    tools: Tools,
) -> None:
    """Fill the curves of `found`; what is there when it raises counts.

    Memory in use comes first: it is worth most and costs least. The queries of a plugin come alone
    and after ours, so that one which raises can be named.
    """
    every, safe = list(queries), batched(subject)
    vectors = [query for query in every if isinstance(query, AbstractQuery)]
    others = [query for query in vectors if registry.outside("queries", query.name)]
    trials = [query for query in every if isinstance(query, AbstractTrialQuery)]
    known = Circumstances(facts.causal, facts.rounding, facts.outputs, read_text(setting.text))
    runner = VectorQueries(safe, setting, facts, tools.tick, found.layers)
    own = [query for query in vectors if query not in others]

    def tokens(setting: Setting) -> float:
        """About how many our own queries will feed."""
        ours = (query for query in trials if not registry.outside("queries", query.name))
        fed = sum(query.tokens(safe, setting, known) for query in ours)
        return fed + replace(runner, setting=setting).tokens(own)

    seconds = safe.meter.seconds(tokens(setting))
    if seconds > WORTH_SAYING and setting.budget is None:
        quick = safe.meter.seconds(tokens(replace(setting, level="quick")))
        tools.say(f"{about(seconds)} on this machine; --quick {about(quick)}; or give a --budget")
    meter, end = safe.meter, safe.meter.end

    @contextmanager
    def counted(*names: str) -> Iterator[None]:
        before = meter.fed
        try:
            yield
        finally:
            if meter.fed > before:
                found.fed[", ".join(names)] = meter.fed - before

    for number, query in enumerate(trials):
        later = len(trials) - 1 - number + bool(vectors)
        meter.allow(1 - LATER_SHARE * later / (later + 1), end)
        with counted(query.name), registry.calling("queries", query.name, "failed"):
            readings = query.read(safe, setting, known, tools.tick)
            found.curves[query.name] = trial_curve(query, readings, setting, facts.rounding)
    meter.end = end
    with counted(*(query.name for query in own)):
        runner.measure(own, found.curves)
    for query in others:
        with registry.calling("queries", query.name, "failed"):
            runner.measure([query], found.curves)
    if any(curve.status is Status.UNSEEN for curve in found.curves.values()):
        # Answers that other inputs decide are not memoryless, whatever a window shows.
        blank = {q: c for q, c in found.curves.items() if c.decay.kind == "memoryless"}
        found.curves.update({q: unknown(c, Status.UNSEEN) for q, c in blank.items()})


def about(seconds: float) -> str:
    """A time as people say it."""
    if seconds < 90:
        return f"about {max(round(seconds), 1)} s"
    return f"about {round(seconds / 60)} min"


def quick_curves(
    subject: AbstractSubject, setting: Setting, memory: MemoryResult
) -> dict[str, Curve]:
    """The curves of a subject under the vector queries of a result, with few probes."""
    queries = [registry.build("queries", name) for name in memory.requested]
    vectors = [query for query in queries if isinstance(query, AbstractQuery)]
    curves: dict[str, Curve] = {}
    if vectors and memory.facts is not None:
        quick = replace(setting, level="quick")
        runner = VectorQueries(batched(subject), quick, memory.facts, lambda *_: None)
        runner.measure(vectors, curves)
    return curves


def facts_of(subject: AbstractSubject, assumed: AssumptionsResult) -> Facts:
    """What the assumptions and a first pass say about how the queries must be run.

    The first pass shows the width M of the answer, its rounding, and a wrong shape early.
    """
    width, steps = subject.input_size or 1, min(TRIAL_STEPS, subject.longest or TRIAL_STEPS)
    trial = torch.randn(2, steps, width, generator=signals.seeded(0), dtype=torch.float64)
    answer = subject.respond(trial.to(subject.device, subject.dtype))
    stated = max(torch.finfo(dtype).eps for dtype in (subject.dtype, answer.dtype))
    alone = [a.residual for a in assumed.items if a.name == "rows-independent" and a.holds]
    inside = max((residual for residual in alone if residual is not None), default=0.0)
    return Facts(
        causal=subject.pooled or assumed.holds("causal"),
        linear=assumed.holds("linear"),
        inputs=width,
        tokens=subject.vocabulary is not None,
        outputs=int(answer.shape[-1]),
        rounding=max(stated, _hidden_rounding(answer), inside),
    )


def _hidden_rounding(answers: torch.Tensor) -> float:
    """The rounding of the coarsest dtype that holds every answer exactly, 0 if none does.

    A model may compute in fewer digits than it answers in. A few different numbers, such as those
    of a switch, fit into any dtype and prove nothing.
    """
    values = answers.detach().flatten().cpu()
    if len(values.unique()) < DIFFERENT:
        return 0.0
    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        if torch.equal(values.to(dtype).to(values.dtype), values):
            return torch.finfo(dtype).eps
    return 0.0


@dataclass(frozen=True, slots=True)
class VectorQueries:
    """The queries on vectors of one subject, in one batched pass where the model allows it.

    `hidden` takes the curves of the hidden states by layer and query, beside those of the model.
    """

    subject: BatchedSubject
    setting: Setting
    facts: Facts
    tick: Tick
    hidden: dict[str, dict[str, Curve]] = field(default_factory=dict)

    def measure(self, queries: Sequence[AbstractQuery], curves: dict[str, Curve]) -> None:
        """Fill `curves`; a query that the model is too short for is measured for fewer lags."""
        groups: dict[int, list[AbstractQuery]] = {}
        for query in queries:
            form = query.on_linear() if self.facts.linear else query
            groups.setdefault(min(self._fitting(query), self._fitting(form)), []).append(query)
        for lags, group in groups.items():
            if lags < FEWEST_LAGS:
                curves.update({q.name: unmeasured(q.name, self.setting) for q in group})
            else:
                setting = replace(self.setting, horizon=lags)
                replace(self, setting=setting)._measure(group, curves)
            if lags < self.setting.horizon:
                limited = {q.name: curves[q.name] for q in group if q.name in curves}
                curves |= {n: replace(c, limit=NO_MORE_STEPS) for n, c in limited.items()}

    def tokens(self, queries: Sequence[AbstractQuery]) -> float:
        """About how many steps will be fed."""
        probes = len(self._probes().x)
        if self.subject.pooled:
            return (
                probes
                * sum(len(signals.lag_grid(self.setting.horizon)) for _ in queries)
                * (self.setting.horizon)
            )
        return probes * sum(self._steps(query, self.setting.horizon) for query in queries)

    def _fitting(self, query: AbstractQuery) -> int:
        """The most lags, up to the horizon, whose sequences the model takes; 0 for none."""
        limit, most = self.subject.longest, self.setting.horizon
        if limit is None or self._steps(query, most) <= limit:
            return most
        low, high = 0, most
        while high - low > 1:
            middle = (low + high) // 2
            fits = self._steps(query, middle) <= limit
            low, high = (middle, high) if fits else (low, middle)
        return low

    def _steps(self, query: AbstractQuery, horizon: int) -> int:
        """How long the sequences are that a query feeds for so many lags."""
        steps = query.inputs(torch.zeros(1, 1), horizon).shape[1]
        # A model that looks ahead is run past the end of the window.
        return steps if self.facts.causal else steps + horizon

    def _measure(self, queries: Sequence[AbstractQuery], curves: dict[str, Curve]) -> None:
        """All at once; on Ctrl-C the curves are those of the probes that were finished.

        A query in its form for linear models is run again in its own form when the readings do
        not superpose after all, and with a longer prefix when the state had not settled.
        """
        forms = [q.on_linear() if self.facts.linear else q for q in queries]
        found = self._run(forms, curves)
        misled = [
            own
            for own, form, readings in zip(queries, forms, found, strict=True)
            if readings.refuted and form is not own
        ]
        if misled:
            found = [r for r in found if not r.refuted] + self._run(misled, curves)
        while retry := [q for r in found if (q := self._longer(r)) is not None]:
            found = self._run(retry, curves)

    def _longer(self, readings: Readings) -> AbstractQuery | None:
        """The query with a longer prefix, where the state had not settled and the model fits it."""
        # A pooled model pays for every lag with a run over the whole prefix.
        cheap = self.setting.level == "quick" or self.subject.pooled or self._large
        if cheap or readings.settled(self.setting.epsilon):
            return None
        longer = readings.query.lengthened(self.setting.horizon)
        limit = self.subject.longest
        if longer is None or limit is None:
            return longer
        return longer if self._steps(longer, self.setting.horizon) <= limit else None

    @property
    def _large(self) -> bool:
        """Whether every step costs so much that few are fed."""
        return is_large(self.subject, self.setting)

    def _run(self, queries: Sequence[AbstractQuery], curves: dict[str, Curve]) -> list[Readings]:
        passes = Passes(self.subject, self.setting, self.facts, self._probes(), self._baseline())
        found = passes.prepare(queries)
        together = [found]
        if self._large:  # a pass is as long as its longest query: no step in vain
            lengths = {self._steps(r.query, self.setting.horizon) // 2 for r in found}
            together = [
                [r for r in found if self._steps(r.query, self.setting.horizon) // 2 == length]
                for length in sorted(lengths)
            ]
        try:
            for group in together:
                passes.run(group, self.tick)
        except (KeyboardInterrupt, MemauditError):
            self._conclude(found, curves, interrupted=True)
            raise
        self._conclude(found, curves, interrupted=False)
        return found

    def _conclude(
        self, found: Sequence[Readings], curves: dict[str, Curve], *, interrupted: bool
    ) -> None:
        for readings in found:
            name = readings.query.name
            # A longer prefix that was cut short does not replace the curve that is there.
            if not readings.values or (interrupted and name in curves):
                continue
            curves[name] = readings.curve(self.setting, interrupted=interrupted)
            for layer, inner in readings.hidden.items():
                if inner.values:
                    hidden = inner.curve(self.setting, interrupted=interrupted)
                    self.hidden.setdefault(layer, {})[name] = hidden

    def _baseline(self) -> torch.Tensor | None:
        """The input that counts as zero (D,), None for zeros."""
        wanted = self.setting.baseline
        if wanted == "zero":
            return None
        if not isinstance(wanted, str):
            return torch.full((self.subject.input_size or 1,), float(wanted), dtype=torch.float64)
        natural = self.subject.natural_inputs(1, signals.seeded(self.setting.seed))
        if natural is None or not len(natural):
            fact = (
                "baseline=natural was asked for, and the model has no embeddings to take one from"
            )
            raise ArgumentError(fact, hint="take zero, or a number")
        return natural[0]

    def _probes(self) -> signals.Probes:
        width = self.subject.input_size or 1
        generator = signals.seeded(self.setting.seed)
        if self.setting.normalization == "universal":
            return signals.ones_probe(width)
        if self.setting.normalization == "script":
            return signals.random_probe(width, generator)
        if self._large and self.setting.amplitudes is None:
            few = signals.few_probes(width, generator)
            # A pass past the end of the window, or one for every lag, costs as much as the others.
            one = self.subject.pooled or not self.facts.causal
            return signals.Probes(few.x[:1], few.amplitude[:1], 0) if one else few
        return signals.probe_vectors(
            width,
            level=self.setting.level,
            generator=generator,
            amplitudes=self.setting.amplitudes,
            sweep=self.facts.linear or self.setting.level != "quick",
            natural=self.subject.natural_inputs(NATURAL, generator),
        )


# Passes


class Batch:
    """Blocks of sequences stacked into one pass; a block that repeats another's start is shared."""

    def __init__(self, *, share: bool) -> None:
        self._share = share
        self._blocks: list[torch.Tensor] = []
        self._starts: list[int] = []

    def add(self, block: torch.Tensor) -> slice:
        """The rows at which this block's answers will stand."""
        length = block.shape[1]
        for start, other in zip(self._starts, self._blocks, strict=True):
            long_enough = len(other) == len(block) and other.shape[1] >= length
            same_length = other.shape[1] == length
            if (
                long_enough
                and (self._share or same_length)
                and torch.equal(other[:, :length], block)
            ):
                return slice(start, start + len(block))
        self._starts.append(sum(map(len, self._blocks)))
        self._blocks.append(block)
        return slice(self._starts[-1], self._starts[-1] + len(block))

    def stacked(self, length: int) -> torch.Tensor:
        """All blocks in one tensor, each held at its last value up to the common length."""
        return torch.cat([_held(block, length) for block in self._blocks])


def _held(block: torch.Tensor, length: int) -> torch.Tensor:
    """Sequences continued by their last value."""
    missing = length - block.shape[1]
    if missing <= 0:
        return block
    return torch.cat([block, block[:, -1:].expand(-1, missing, -1)], dim=1)


@dataclass(slots=True)
class Passes:
    """The probes of several queries, fed to one subject under one setting.

    `baseline` (D,) is what counts as zero input, None for zeros.
    """

    subject: BatchedSubject
    setting: Setting
    facts: Facts
    probes: signals.Probes
    baseline: torch.Tensor | None
    _done: int = 0
    _total: int = 1
    _tick: Tick = lambda *_: None

    def prepare(self, queries: Sequence[AbstractQuery]) -> list[Readings]:
        """Empty readings for every query, and for the hidden states that the model shows."""
        horizon, normalization = self.setting.horizon, self.setting.normalization
        lags = signals.lag_grid(horizon) if self.subject.pooled else torch.arange(horizon)
        rounding = self.facts.rounding
        sweep = self.probes.sweep if self.facts.linear else 0
        found = [Readings(q, lags, normalization, rounding, sweep) for q in queries]
        # A pooled answer belongs to the end of a sequence, hidden states to every step of it.
        for name in () if self.subject.pooled else self.subject.layers():
            for readings in found:
                inner = Readings(readings.query, lags, normalization, rounding, 0)
                readings.hidden[name] = inner
        return found

    def run(self, found: Sequence[Readings], tick: Tick) -> None:
        """Feed every probe to every query; what was read when it is cut short counts."""
        self._done, self._total, self._tick = 0, self._cost(found), tick
        self._advance(0)
        size, start = min(self._pass_size(found), len(self.probes.x)), 0
        while start < len(self.probes.x):
            size = min(size, self._affordable(found, size))
            if self._fits(found, slice(start, start + size)):
                start += size
            elif size > 1:
                size = self.subject.shrink(size, self._length(found))
            elif any(readings.hidden for readings in found):
                # The answers of the model come before those of its layers.
                for readings in found:
                    readings.hidden.clear()
            else:
                raise too_little_memory(self._length(found))
        self._advance(self._total)

    def _advance(self, tokens: int) -> None:
        self._done = min(self._done + tokens, self._total)
        self._tick(self._done, self._total)

    def _fits(self, found: Sequence[Readings], rows: slice) -> bool:
        """Feed these probes; False, with the readings as they were, when memory ran out."""
        before = [readings.snapshot() for readings in found]
        try:
            with shortage():
                x = self.probes.x[rows].to(self.subject.device, self.subject.dtype)
                amplitude = self.probes.amplitude[rows]
                if self.subject.pooled:
                    for readings in found:
                        self._feed_pooled(readings, x, amplitude)
                else:
                    self._feed(found, x, amplitude)
        except (MemoryError, KeyboardInterrupt) as stop:
            for readings, snapshot in zip(found, before, strict=True):
                readings.restore(snapshot)
            if isinstance(stop, KeyboardInterrupt):
                raise
            return False
        return True

    def _cost(self, found: Sequence[Readings]) -> int:
        """Tokens that will be fed, for the progress."""
        if self.subject.pooled:
            return sum(int((self._times(r) + 1).sum()) for r in found) * len(self.probes.x)
        return len(self.probes.x) * len(found) * self._length(found)

    def _pass_size(self, found: Sequence[Readings]) -> int:
        """Probes that go into one pass."""
        width = (self.subject.input_size or 1) + 2 * self.facts.outputs
        tokens = self._length(found) * (1 if self.subject.pooled else len(found))
        work = tokens * max(self.subject.identity.parameters, SMALL_MODEL)
        return max(1, min(PASS_NUMBERS // (width * tokens), max(PASS_WORK // work, FEWEST_PROBES)))

    def _affordable(self, found: Sequence[Readings], size: int) -> int:
        """Probes that the budget still allows in one pass, of `size`; at least one."""
        left = self.subject.meter.left
        if math.isinf(left):
            return size
        own = self._cost(found) / len(self.probes.x)
        # Zeros go with every pass, and two of its probes once more, one of them twice.
        return max(1, min(size, int(left / own) - 4))

    def _length(self, found: Sequence[Readings]) -> int:
        horizon, sample = self.setting.horizon, self.probes.x[:1]
        longest = max(r.query.inputs(sample, horizon).shape[1] for r in found)
        # A model that looks ahead must not see the end of the window from inside it.
        return longest if self.facts.causal else longest + horizon

    def _feed(self, found: Sequence[Readings], x: torch.Tensor, amplitude: torch.Tensor) -> None:
        """The sequences of all queries in one pass."""
        horizon, batch = self.setting.horizon, Batch(share=self.facts.causal)
        length = self._length(found)
        plan = []
        for readings in sorted(found, key=lambda r: -r.query.inputs(x[:1], horizon).shape[1]):
            reference = readings.query.reference(x, horizon)
            against = None if reference is None else batch.add(reference)
            plan.append((readings, batch.add(readings.query.inputs(x, horizon)), against))
        zeros = x.new_zeros(1, length, x.shape[1])
        stacked, least = batch.stacked(length), amplitude.argmin()
        picked = self._picked(amplitude)
        twice = torch.cat([self._repeats(stacked[rows], picked, least) for _, rows, _ in plan])
        sequences = self._above_baseline(torch.cat([zeros, stacked, twice]))

        def read(answers: torch.Tensor, layer: str | None = None) -> None:
            _, once, again = answers.split([1, len(stacked), len(twice)])
            own = again.chunk(len(plan))
            for (readings, rows, against), mine in zip(plan, own, strict=True):
                base = answers[:1] if against is None else once[against]
                into = readings if layer is None else readings.hidden[layer]
                noise = self._noise(once[rows], mine, picked, least)
                self._read(into, x, amplitude, once[rows], base, noise)
            # The progress of a long pass through a deep model moves layer by layer.
            self._advance(sequences.shape[0] * length // (len(found[0].hidden) + 1))

        if found[0].hidden:
            read(self.subject.respond_with_hook(sequences, lambda name, hidden: read(hidden, name)))
        else:
            read(self.subject.respond(sequences))

    def _feed_pooled(self, readings: Readings, x: torch.Tensor, amplitude: torch.Tensor) -> None:
        """A pooled model answers once: lag t is read from the prefixes that end at its moments."""
        horizon = self.setting.horizon
        inputs = readings.query.inputs(x, horizon)
        zeros = inputs.new_zeros(1, *inputs.shape[1:])
        reference = readings.query.reference(x, horizon)
        against = inputs[:0] if reference is None else reference
        picked, least = self._picked(amplitude), amplitude.argmin()
        twice = self._repeats(inputs, picked, least)
        sequences = self._above_baseline(torch.cat([zeros, inputs, against, twice]))
        times = self._times(readings)
        answers = None
        for time in times.tolist():
            answer = self.subject.respond(sequences[:, : time + 1])
            if answers is None:
                answers = answer.new_zeros(len(sequences), int(times[-1]) + 1, answer.shape[-1])
            answers[:, time] = answer
            self._advance(len(x) * (time + 1))
        assert answers is not None
        mine = answers[1 : 1 + len(x)]
        noise = self._noise(mine, answers[-len(twice) :], picked, least)
        base = answers[:1] if reference is None else answers[1 + len(x) : 1 + 2 * len(x)]
        self._read(readings, x, amplitude, mine, base, noise)

    def _read(
        self,
        readings: Readings,
        x: torch.Tensor,
        amplitude: torch.Tensor,
        answers: torch.Tensor,
        base: torch.Tensor,
        noise: tuple[torch.Tensor, float],
    ) -> None:
        later, earlier = readings.query.moments(readings.lags, self.setting.horizon)
        before = readings.query.prefix(self.setting.horizon)
        drift = None
        if before >= 2:
            at = self._last_step(before)
            last = _difference(answers, base, slice(at, at + 1), slice(at - 1, at))
            drift = last.abs().amax((1, 2))
        signed = _difference(answers, base, _as_slice(later), _as_slice(earlier))
        low, high = answers[:, : int(later.amax()) + 1].flatten(1).aminmax(dim=1)
        largest = torch.maximum(-low, high)
        if len(base) == len(answers):  # a reference run of its own rounds as well
            low, high = base[:, : int(later.amax()) + 1].flatten(1).aminmax(dim=1)
            largest = torch.maximum(largest, torch.maximum(-low, high))
        largest = torch.nan_to_num(largest, posinf=0.0)
        readings.add(
            _float64(x),
            amplitude,
            signed,
            largest=_float64(largest),
            noise=_float64(noise[0]),
            chaos=noise[1],
            drift=drift,
        )

    # Rows that are run again

    def _picked(self, amplitude: torch.Tensor) -> torch.Tensor:
        """The rows that are run twice as they are: the smallest and the largest probe of a pass.

        Of a large model the smallest is run again with the nudge alone.
        """
        picked = torch.stack([amplitude.argmin(), amplitude.argmax()]).unique()
        if is_large(self.subject, self.setting):
            return picked[picked != amplitude.argmin()]
        return picked

    def _repeats(
        self, rows: torch.Tensor, picked: torch.Tensor, least: torch.Tensor
    ) -> torch.Tensor:
        """The picked sequences as they are, and the least with its first input nudged.

        Identical runs that differ show the noise of the model and the machine. On some machines
        none do, whatever the model: the nudge shows what it would make of a rounding.
        """
        nudged = rows[least : least + 1].clone()
        nudged[:, 0] *= 1 + NUDGE * torch.finfo(self.subject.dtype).eps
        return torch.cat([rows[picked], nudged])

    def _noise(
        self,
        answers: torch.Tensor,
        again: torch.Tensor,
        picked: torch.Tensor,
        least: torch.Tensor,
    ) -> tuple[torch.Tensor, float]:
        """By how much every row (P,) may differ from itself, by those that were run again.

        Of the smallest probe as it is, and of the largest in proportion to the answers: rounding
        that grows, grows with them. The second is the share to which the model amplified the nudge,
        0 where a stable one may answer like that.
        """
        rows = torch.cat([picked, least[None]]).to(answers.device)
        apart = torch.nan_to_num((again - answers[rows]).abs()).flatten(1).amax(1)
        size = torch.nan_to_num(answers.abs(), posinf=0.0).flatten(1).amax(1)
        shares = torch.where(size[rows] > 0, apart / size[rows], torch.zeros_like(apart))
        noise = torch.zeros_like(size)
        if len(picked):
            noise = torch.maximum(shares[:-1].amax() * size, apart[:-1].amin())
        chaos = float(shares[-1])
        if chaos <= AMPLIFIED * NUDGE * torch.finfo(self.subject.dtype).eps:
            return noise, 0.0
        return torch.maximum(noise, shares[-1] * size), chaos

    def _above_baseline(self, sequences: torch.Tensor) -> torch.Tensor:
        return sequences if self.baseline is None else sequences + self.baseline.to(sequences)

    def _last_step(self, before: int) -> int:
        """The step of the prefix whose change shows whether the state has settled.

        A model that looks ahead sees the end of the prefix before it comes.
        """
        return before - 1 if self.facts.causal else max(before - 1 - before // 4, 1)

    def _times(self, readings: Readings) -> torch.Tensor:
        """The times at which a pooled model must be run for the lags of a query."""
        later, earlier = readings.query.moments(readings.lags, self.setting.horizon)
        before = readings.query.prefix(self.setting.horizon)
        at = self._last_step(before)
        extra = torch.tensor([at - 1, at] if before >= 2 else [], dtype=torch.long)
        return torch.cat([later, later if earlier is None else earlier, extra]).unique()


def _as_slice(times: torch.Tensor | None) -> slice | torch.Tensor | None:
    """Consecutive times as a slice, which reads without a copy."""
    if times is None or len(times) < 2 or int(times[-1] - times[0]) != len(times) - 1:
        return times
    return slice(int(times[0]), int(times[-1]) + 1)


def _difference(
    answers: torch.Tensor,
    base: torch.Tensor,
    later: slice | torch.Tensor | None,
    earlier: slice | torch.Tensor | None,
) -> torch.Tensor:
    """a[later] - a[earlier] of a = answers - base, in float64 and with one large temporary.

    Neighbouring answers are subtracted first: that is exact, whatever their common size.
    """
    readings = _float64(answers[:, later], own=True)
    offset = _float64(base[:, later])
    if earlier is not None:
        readings -= answers[:, earlier].to(readings.device)
        offset = offset - _float64(base[:, earlier])
    return readings.sub_(offset)


def _float64(tensor: torch.Tensor, *, own: bool = False) -> torch.Tensor:
    """The tensor in float64, on its own device where that has float64; `own` forces a copy."""
    if widest_dtype(tensor.device) == torch.float32:
        tensor = tensor.cpu()
    return tensor.to(torch.float64, copy=own)
