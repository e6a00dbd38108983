"""Memory in use: one natural input is replaced by another, and the later answers are compared.

M(t) = E|y(s+t) - y'(s+t)| / E|y - y_other|, with y' the answer after the input at s was replaced
by another natural one, and y_other the answer to an independent sequence. A linear model with the
kernel rho under unit noise has M(t) = |rho(t)| / ||rho||.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from memaudit.devices import release_memory, shortage
from memaudit.errors import ArgumentError, OutOfBudget, clean
from memaudit.interfaces import AbstractTokenQuery, AbstractTrialQuery, Status, TrialReadings
from memaudit.memory.curve import UNIT_NOISE
from memaudit.memory.queries import FEWEST_LAGS, frame_of, is_large, nothing
from memaudit.numerics.signals import lag_grid, seeded
from memaudit.subjects.batches import BatchedSubject, batched

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from memaudit.interfaces import AbstractSubject, Circumstances, Setting

#: Sequences by level, of a small model and of one that answers once a sequence.
SEQUENCES = {"quick": 32, "standard": 256, "thorough": 1024}
POOLED_SEQUENCES = {"quick": 8, "standard": 16, "thorough": 64}
#: With fewer there is no mean to speak of; a large model has so many.
FEWEST = 8
#: Steps that a large model is fed, in horizons. One that answers once a sequence is run once for
#: every lag, so that fewer than 20 lags would be left, too few for a verdict: there is no limit.
LARGE_BUDGET = 24
#: Other inputs that take the place of one, where data have fewer sequences than are wanted.
REPLACEMENTS = 4
#: Disjoint stretches that data must have, or two sequences would not be independent.
DISJOINT = 4
#: What ended the lags of a model with a table of positions.
NO_MORE_STEPS = "the model takes no more steps"
#: Numbers (inputs and answers) of one pass.
PASS_NUMBERS = 2**26
#: A sequence is compared with another one of the same pass.
FEWEST_TOGETHER = 2
#: A text of which more than this share is unknown to the tokenizer is none that it can read.
MOST_UNKNOWN = 0.5
#: Roundings by which the first input is moved to see whether rounding grows.
NUDGE = 4.0
#: Two runs that differ by this share of the natural variation have nothing to do with each other.
CHAOTIC_SHARE = 1e-2
#: Fewer sequences than this are paired at random, as well as so many tries allow.
FEW_PAIRS, PAIRINGS = 64, 256
#: Rows of an embedding table from which sequences are drawn.
MOST_ROWS = 4096


@dataclass(frozen=True, slots=True)
class Driven(AbstractTrialQuery):
    """How long does a single input still count while the model does its work?

    Feeds natural sequences (`--data`, a text, embeddings, or unit noise where nothing else is
    known), replaces one input by another natural one and reads how far the later answers move, as a
    share of the distance between the answers to two independent sequences. 1 is an input that
    decides as much as everything else together, 0.01 is one per cent. A model that looks both ways
    is read on both sides, a model that answers once at the distance from the end.
    """

    name = "driven"
    summary = "memory in use: one natural input replaced; change of the later answers"
    joined = "mean"

    def read(
        self,
        subject: AbstractSubject,
        setting: Setting,
        known: Circumstances,
        tick: Callable[[int, int], None],
    ) -> TrialReadings:
        safe = batched(subject)
        return _Trials(safe, setting, known, _natural(safe, setting, known)).read(tick)

    def tokens(self, subject: AbstractSubject, setting: Setting, known: Circumstances) -> float:
        safe = batched(subject)
        return _Trials(safe, setting, known, _natural(safe, setting, known)).tokens()


@dataclass(frozen=True, slots=True)
class Context(AbstractTokenQuery):
    """How far does one changed token of a real text reach?

    The query driven on a text, for models that take tokens: replaces one token of a passage by one
    of another passage and reads how far the later answers move, as a share of the distance between
    the answers to two passages.
    """

    name = "context"
    summary = "one token of a real text replaced; change of the later answers"
    joined = "mean"

    def read(
        self,
        subject: AbstractSubject,
        setting: Setting,
        known: Circumstances,
        tick: Callable[[int, int], None],
    ) -> TrialReadings:
        text = _text(subject, setting, known)
        if isinstance(text, Status):
            return nothing(text)
        return _Trials(batched(subject), setting, known, text).read(tick)


# Natural sequences


@dataclass(frozen=True, slots=True)
class _Natural:
    """Where sequences come from: windows of `values` (B,T,…), or `rows` (n,D) in random order.

    Without either they are independent standard normal vectors. `end` is what to do where a window
    needs more than there is, `unfed` why the text that was given is not among them.
    """

    words: str
    unit: str = "sequences"
    values: torch.Tensor | None = None
    rows: torch.Tensor | None = None
    end: str = "the data end there: give longer data"
    unfed: Status = Status.OK

    @property
    def noise(self) -> bool:
        """Whether nothing is known about the inputs of the model."""
        return self.values is None and self.rows is None

    @property
    def longest(self) -> int | None:
        """The most steps of a sequence, so that there are independent ones."""
        if self.values is None:
            return None
        return self.values.shape[1] // -(-DISJOINT // len(self.values))

    def inputs(self, count: int, generator: torch.Generator) -> torch.Tensor:
        """So many single inputs of data or a text, wherever they stand."""
        assert self.values is not None
        flat = self.values.flatten(0, 1)
        return flat[torch.randint(len(flat), (count,), generator=generator)]

    def most(self, length: int) -> int | None:
        """How many sequences there are, at least half of each its own."""
        if self.values is None:
            return None
        return max(FEWEST, 2 * len(self.values) * self.values.shape[1] // max(length, 1))

    def sequences(
        self, count: int, length: int, width: int, generator: torch.Generator
    ) -> Callable[[int], torch.Tensor]:
        """A function that gives the next so many of them."""
        if self.values is not None:
            steps = self.values.shape[1] - length + 1
            # One place in every stretch of the data. Neighbours among the sequences are compared,
            # and should not overlap: they come from stretches far apart.
            chance = torch.rand(count + 1, generator=generator, dtype=torch.float64)
            places = (torch.arange(count) + chance[1:]) * (len(self.values) * steps / count)
            order = torch.arange(count) * _stride(count) + int(chance[0] * count)
            places = iter(places[order % count].long().tolist())
            windows = self.values

            def window(number: int) -> torch.Tensor:
                pairs = [divmod(next(places), steps) for _ in range(number)]
                return torch.stack([windows[row, at : at + length] for row, at in pairs])

            return window
        if self.rows is not None:
            rows = self.rows

            def drawn(number: int) -> torch.Tensor:
                return rows[torch.randint(len(rows), (number, length), generator=generator)]

            return drawn
        return lambda number: torch.randn(
            number, length, width, generator=generator, dtype=torch.float64
        )


def _natural(subject: BatchedSubject, setting: Setting, known: Circumstances) -> _Natural:
    """The user's data, else a text, else embeddings, else unit noise."""
    unfit, data = "", setting.data
    if data is not None and data.values is not None:
        try:
            return _of_data(data.name, data.values, subject)
        except ArgumentError as error:
            if not data.optional:
                raise
            unfit = f" ({error.fact})"
    text = _text(subject, setting, known)
    if isinstance(text, _Natural):
        return text
    unfed = Status.OK if setting.text is None else text
    rows = subject.natural_inputs(MOST_ROWS, seeded(setting.seed))
    if rows is not None and len(rows) > 1:
        words = f"its embeddings in random order{unfit}"
        return _Natural(words, rows=rows.detach().cpu().double(), unfed=unfed)
    return _Natural(UNIT_NOISE + unfit, unfed=unfed)


def _of_data(name: str, values: torch.Tensor, subject: BatchedSubject) -> _Natural:
    """The data as the model takes them: token ids, vectors, or a long signal cut into frames."""
    width = subject.input_size or 1
    batch, steps, columns = values.shape
    # Whole numbers (T,), (T,1) and (B,T) are ids; a batch of vectors has three axes.
    if subject.vocabulary is not None and 1 in (batch, columns):
        tokens = values[..., 0] if columns == 1 else values[0]
        if bool((tokens == tokens.round()).all()):
            return _Natural(name, unit="passages", values=_ids(tokens, subject.vocabulary))
    if columns == width:
        return _Natural(name, values=values)
    shapes = f"(T, {width}) or (B, T, {width})"
    if columns == 1 and steps >= width and not subject.part:
        frames = values[:, : steps // width * width].reshape(batch, -1, width)
        return _Natural(f"{name}, cut into frames of {width}", values=frames)
    whose = f"the part {clean(subject.part)}" if subject.part else "the model"
    have = f"{columns} column{'' if columns == 1 else 's'}"
    raise ArgumentError(
        f"the data have {have}, and {whose} takes {width} numbers a step",
        hint=f"give what {whose} is fed, in the shape {shapes}",
    )


def _ids(tokens: torch.Tensor, vocabulary: int) -> torch.Tensor:
    """Token ids (B,T), all of them in the vocabulary."""
    odd = tokens[(tokens < 0) | (tokens >= vocabulary)]
    if len(odd):
        fact = f"the data have the token id {odd[0]:.0f}, and the ids end at {vocabulary - 1}"
        raise ArgumentError(fact, hint="give the ids of this model's own tokenizer")
    return tokens.long()


def _text(subject: AbstractSubject, setting: Setting, known: Circumstances) -> _Natural | Status:
    """The text in tokens of the model, or why there are none."""
    if subject.vocabulary is None:
        return Status.NO_TOKENS
    tokens = subject.tokens_of(known.text)
    if tokens is None or not len(tokens):
        return Status.NO_TOKENIZER
    if subject.unknown is not None and (tokens == subject.unknown).float().mean() > MOST_UNKNOWN:
        return Status.UNKNOWN_TEXT
    if len(tokens.unique()) < 2:  # there is nothing that a token could be replaced by
        return Status.TOO_SHORT
    words = "the sample text" if setting.text is None else "your text"
    end = "the text ends there: give a longer one with --text FILE"
    return _Natural(words, unit="passages", values=tokens[None], end=end)


# Trials


@dataclass(frozen=True, slots=True)
class _Plan:
    """`count` sequences of `steps`; the input at `at` is replaced, and read at the lags behind it.

    A model that answers once sees `window` steps at a time, which end at every lag in turn. Each
    sequence has `each` other inputs in that place, one after the other. `limit` is what ended the
    lags early, `wanted` how many sequences there would be without a budget.
    """

    count: int
    steps: int
    at: int
    lags: torch.Tensor
    window: int
    each: int = 1
    limit: str = ""
    wanted: int = 0


@dataclass(frozen=True, slots=True)
class _Trials:
    """Natural sequences of one subject, each with one input replaced."""

    subject: BatchedSubject
    setting: Setting
    known: Circumstances
    natural: _Natural

    def read(self, tick: Callable[[int, int], None]) -> TrialReadings:
        plan = self._plan()
        if len(plan.lags) < FEWEST_LAGS:
            if math.isfinite(self.subject.meter.left):
                raise OutOfBudget
            return nothing(Status.TOO_SHORT)
        width, generator = self.subject.input_size or 1, seeded(self.setting.seed)
        draw = self.natural.sequences(plan.count, plan.steps, width, generator)
        found: list[tuple[torch.Tensor, ...]] = []
        done, noise, chaos, reach = 0, 0.0, 0.0, self._embedded()
        for size in self._chunks(plan, width):
            tick(done, plan.count)
            fed = draw(size)
            if self.natural.noise:
                fed[:, plan.at] = _spread(fed[:, plan.at], generator)
            if fed.is_floating_point():
                reach = max(reach or 0.0, float(fed.abs().amax()))
            try:
                for piece, (*numbers, answers) in self._fitting(fed, plan, generator):
                    if not found:
                        noise, chaos = self._noise(piece[:1], answers, plan)
                    found.append(tuple(numbers))
            except OutOfBudget:
                if done < FEWEST:
                    raise
                break
            done += size
        tick(plan.count, plan.count)
        values, scales, sizes, past, apart, replaced = map(torch.cat, zip(*found, strict=True))
        if not bool(replaced.any()):
            return nothing(Status.NO_VARIATION)
        if plan.wanted > len(values):
            name = f"memory in use ({len(values)} of {plan.wanted} {self.natural.unit})"
            self.subject.meter.shortened.append(name)
        scale, share = float(scales.mean()), float(past.mean() / apart.mean())
        chaotic = chaos > CHAOTIC_SHARE * scale > 0
        noise = chaos if chaotic else noise
        return TrialReadings(
            plan.lags,
            values,
            noise + self.known.rounding * sizes,
            noise,
            Status.CHAOTIC if chaotic else Status.OK,
            scales=scales,
            fed=f"{self.natural.words}, {len(values)} {self.natural.unit}",
            reach=reach,
            share=min(share, 1.0) if math.isfinite(share) else None,
            limit=plan.limit,
            unfed=self.natural.unfed,
        )

    def _plan(self) -> _Plan:
        """As many lags as the horizon says, unless the model or the data are shorter."""
        subject, horizon = self.subject, self.setting.horizon
        large, before = is_large(subject, self.setting), horizon
        if large and not subject.pooled:  # 8 sequences, each twice, and one for the noise
            before = LARGE_BUDGET * horizon // (2 * FEWEST + 1) - horizon
        steps, limit = before + horizon, ""
        if self.natural.longest is not None and self.natural.longest < steps:
            steps, limit = self.natural.longest, self.natural.end
        if subject.longest is not None:
            room = (subject.longest - frame_of(subject)[0]) * (2 if subject.pooled else 1)
            if room < steps:
                steps, limit = room, NO_MORE_STEPS
        counts = POOLED_SEQUENCES if subject.pooled else SEQUENCES
        wanted = self.setting.sequences or (FEWEST if large else counts[self.setting.level])
        full = wanted
        affordable, wanted = self._within_budget(steps, wanted)
        if affordable < steps:
            steps, limit = affordable, "the budget ends there: give a larger --budget"
        count, each = wanted, 1
        most = self.natural.most(steps)
        if most is not None and self.setting.sequences is None:
            count, full = min(wanted, most), min(full, most)
            if not subject.pooled and math.isinf(subject.meter.left):
                each = max(1, min(REPLACEMENTS, wanted // count))
        if subject.pooled:
            window = steps // 2
            lags = lag_grid(max(window, 1))
            return _Plan(count, steps, window - 1, lags, window, limit=limit, wanted=full)
        at = steps * before // (before + horizon) if self.known.causal else steps // 2
        lags = torch.arange(max(steps - at, 0))
        return _Plan(count, steps, at, lags, steps, each, limit, full)

    def tokens(self) -> float:
        """How many steps will be fed."""
        plan = self._plan()
        passes = len(plan.lags) if self.subject.pooled else 1
        return ((1 + plan.each) * plan.count + 1) * plan.window * passes

    def _within_budget(self, steps: int, count: int) -> tuple[int, int]:
        """Fewer sequences, and shorter ones where the fewest cost too much."""
        left = self.subject.meter.left
        if math.isinf(left):
            return steps, count
        passes = len(lag_grid(max(steps // 2, 1))) / 2 if self.subject.pooled else 1
        count = max(FEWEST, min(count, int((left / (steps * passes) - 1) / 2)))
        return min(steps, int(left / ((2 * count + 1) * passes))), count

    def _chunks(self, plan: _Plan, width: int) -> Iterator[int]:
        """How many sequences go into each pass; never one alone, which would have no neighbour."""
        numbers = plan.steps * (width + 4 * max(self.known.outputs, 1))
        room = PASS_NUMBERS // ((1 + plan.each) * numbers)
        most = plan.count // FEWEST_TOGETHER
        pieces = max(1, min(-(-plan.count // max(room, FEWEST_TOGETHER)), most))
        for piece in range(pieces):
            yield plan.count * (piece + 1) // pieces - plan.count * piece // pieces

    def _fitting(
        self, fed: torch.Tensor, plan: _Plan, generator: torch.Generator
    ) -> Iterator[tuple[torch.Tensor, tuple[torch.Tensor, ...]]]:
        """Sequences and what was read of them, in halves where the answers do not fit."""
        read = None
        try:
            with shortage():
                read = self._read(fed, plan, generator)
        except MemoryError:
            if len(fed) < 2 * FEWEST_TOGETHER:
                raise
        if read is not None:
            yield fed, read
            return
        release_memory(self.subject.device)  # out here nothing holds what was read by then
        for half in fed.tensor_split(2):
            yield from self._fitting(half, plan, generator)

    def _read(
        self, fed: torch.Tensor, plan: _Plan, generator: torch.Generator
    ) -> tuple[torch.Tensor, ...]:
        """Distances by lag (K,n), natural variation, sizes, the two that make the share, answers.

        The changed sequence k has the input of sequence j at one place. There the two differ in
        everything else, so their distance is what the other inputs make. Further replacements come
        from anywhere in the data: trials that share inputs would vary less than they should.
        """
        inputs, count, each = fed[:, plan.at], len(fed), plan.each
        given = _pairs(inputs, generator) if self.natural.noise else _others(inputs)
        changed = torch.cat([fed] * each)
        changed[:count, plan.at] = inputs[given]
        if each > 1:
            drawn = self.natural.inputs((each - 1) * count, generator)
            same = _equal(drawn, torch.cat([inputs] * (each - 1)))
            drawn[same] = torch.cat([inputs[given]] * (each - 1))[same]
            changed[count:, plan.at] = drawn
        replaced = ~_equal(inputs, inputs[given])
        answers, moved = self._answers(torch.cat([fed, changed]), plan).split([count, each * count])
        moved = moved.unflatten(0, (each, count))
        now, read = self._places(plan)
        values = _distance(moved[:, :, read], answers[:, read]).mean(0)
        if not self.known.causal:  # distance to either side, as far as there is one
            back = plan.at - plan.lags[plan.lags <= plan.at]
            left = _distance(moved[:, :, back], answers[:, back]).mean(0)
            values[:, : len(back)] = (left + values[:, : len(back)]) / 2
        # Padding lets the natural variation die: it is that of the answers before the padding.
        alive = read if self.setting.pad is None else read[:1]
        scales = _finite_mean(_distance(answers[:, alive], answers.roll(-1, 0)[:, alive]))
        sizes = torch.nan_to_num(torch.linalg.vector_norm(answers, dim=-1), posinf=0.0).amax(1)
        past = _distance(moved[0, :, now], answers[given, now])
        apart = _distance(answers[:, now], answers[given, now])
        return values, scales, sizes, past, apart, replaced, answers[0]

    def _places(self, plan: _Plan) -> tuple[int, torch.Tensor]:
        """Where among the answers lag 0 stands, and all lags."""
        if self.subject.pooled:
            return 0, torch.arange(len(plan.lags))
        return plan.at, plan.at + plan.lags

    def _noise(self, fed: torch.Tensor, answers: torch.Tensor, plan: _Plan) -> tuple[float, float]:
        """How far the first sequence alone, moved a little at its start, comes out otherwise.

        Once by a rounding, which dies out with the memory of a stable model; where it grows to the
        size of the answers the model is chaotic. A state may be so much larger than what an input
        adds that it takes up no rounding of it: then, second, by more, to see whether that grows.
        Tokens cannot be moved, but other kernels may round otherwise.
        """
        read, eps = self._places(plan)[1], torch.finfo(self.subject.dtype).eps

        def apart(nudge: float) -> float:
            moved = fed.clone()
            if fed.is_floating_point() and bool(fed.any()):
                first = int(fed[0].flatten(1).any(1).nonzero()[0])
                moved[:, first] *= 1 + nudge
            again = self._answers(moved, plan)[0]
            return float(torch.nan_to_num(_distance(again[read], answers[read]), posinf=0.0).amax())

        noise = apart(NUDGE * eps)
        cheap = math.isinf(self.subject.meter.left) and not is_large(self.subject, self.setting)
        if noise > 0 or not cheap or not fed.is_floating_point():
            return noise, noise
        return noise, apart(eps**0.5)

    def _answers(self, rows: torch.Tensor, plan: _Plan) -> torch.Tensor:
        """The answers in float64 by step; by lag where the model answers once a sequence."""
        pad = self.setting.pad
        if pad is not None:  # padding follows the changed input instead of the sequence
            rows = rows.clone()
            rows[:, plan.at + 1 :] = pad if rows.is_floating_point() else int(pad)
        if not self.subject.pooled:
            return self._respond(rows)
        ends = [plan.window + lag for lag in plan.lags.tolist()]
        starts = [end - plan.window if pad is None else 0 for end in ends]
        pairs = zip(starts, ends, strict=True)
        return torch.stack([self._respond(rows[:, start:end]) for start, end in pairs], 1)

    def _respond(self, rows: torch.Tensor) -> torch.Tensor:
        """Without the answers to what the tokenizer puts around a text."""
        subject, steps = self.subject, rows.shape[1]
        if rows.is_floating_point():
            return subject.respond(rows.to(subject.device, subject.dtype)).double().cpu()
        answers = subject.respond(subject.framed(rows).to(subject.device)).double().cpu()
        before = frame_of(subject)[1]
        return answers if subject.pooled else answers[:, before : before + steps]

    def _embedded(self) -> float | None:
        """How large the numbers are that tokens become, where the model shows them."""
        values = self.natural.values
        if values is None or values.is_floating_point():
            return None
        rows = self.subject.natural_inputs(MOST_ROWS, seeded(self.setting.seed))
        return None if rows is None or not len(rows) else float(rows.abs().amax())


def _spread(rows: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Normal numbers (K,D) in the same order, one in each K-th part of the distribution.

    The mean over trials depends on these numbers alone in a linear model: chance has less to say.
    """
    ranks = rows.argsort(0).argsort(0)
    return torch.special.ndtri(
        (ranks + torch.rand(rows.shape, generator=generator, dtype=rows.dtype)) / len(rows)
    )


def _pairs(rows: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """For every row another one, so that the pairs fill the plane of their ranks evenly.

    Of few rows that is a grid too coarse: then the best of random pairs are taken, those that are
    as far apart in the mean as independent ones, 2 Γ((D + 1) / 2) / Γ(D / 2) of D normal numbers.
    """
    count, step = len(rows), _stride(len(rows))
    if count < FEW_PAIRS:
        half = rows.shape[1] / 2
        wanted = 2 * math.exp(math.lgamma(half + 0.5) - math.lgamma(half))
        orders = [torch.randperm(count, generator=generator) for _ in range(PAIRINGS)]
        rings = [torch.empty_like(o).index_copy_(0, o, o.roll(1)) for o in orders]
        return min(rings, key=lambda g: abs(float(_distance(rows, rows[g]).mean()) - wanted))
    order = rows[:, 0].argsort()
    given, own = order[(step * order.argsort() + 1) % count], torch.arange(count)
    return torch.where(given == own, (own + 1) % count, given)


def _stride(count: int) -> int:
    """A step that visits each of so many places once, the next one always far away."""
    step = round(count * 0.618)  # the golden section: multiples of it are spread out
    while math.gcd(step, count) > 1 or step % 2 == 0:
        step += 1
    return step


def _equal(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Which rows are the same: tokens, or vectors."""
    return (a == b).reshape(len(a), -1).all(1)


def _others(rows: torch.Tensor) -> torch.Tensor:
    """For every row the first behind it that differs; itself where none does."""
    given = (torch.arange(len(rows)) + 1) % len(rows)
    for _ in range(len(rows)):
        same = _equal(rows[given], rows)
        if not bool(same.any()):
            break
        given = torch.where(same, (given + 1) % len(rows), given)
    return given


def _distance(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    return torch.linalg.vector_norm(one - other, dim=-1)


def _finite_mean(distances: torch.Tensor) -> torch.Tensor:
    """The mean over times of every row, as far as it is finite."""
    known = torch.where(torch.isfinite(distances), distances, torch.nan)
    return torch.nan_to_num(known.nanmean(1))
