"""How much of its past inputs a linear readout finds in the states of any model, from samples.

Independent inputs are fed after a warm-up, in two halves that share no sequence; the coefficients
of one half are judged on the other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from memaudit.devices import release_memory, shortage
from memaudit.interfaces import Status
from memaudit.numerics.signals import seeded
from memaudit.recall.result import Decoding, lags_above
from memaudit.subjects.recurrence import first_state

if TYPE_CHECKING:
    from memaudit.interfaces import AbstractDynamics, AbstractSubject, Setting

#: Takes a state (B,T,n) by its name.
Receive = Callable[[str, Tensor], None]
#: Feeds sequences (B,T,D), and passes on the states.
Run = Callable[[Tensor, Receive], None]

#: A wider state is projected at random.
WIDEST = 1024
#: Numbers of all covariances between states and channels.
COVARIANCES = 2**25
#: The floor is so many times the largest R² of as many lags with inputs of other sequences. The
#: tails of noise are exponential at worst: the chance that one of L lags passes by itself is about
#: 1/L then, and far less where the state has many numbers. Without a margin it is one third.
#: Where states depend on an input without being correlated with it, it is more (`scatter`).
MARGIN = 2.0
#: The fewest sequences at once: one alone has no other to be held against.
FEWEST_ROWS = 2
#: Real input vectors that are drawn from.
NATURAL = 4096
#: Sequences in one pass: with two at least, the inputs of another one are at hand. Slow states
#: take more: what one sequence shows of them is hardly more than one sample.
ROWS, MOST_ROWS = 4, 32
#: Numbers in the states of one pass, where there are more than ROWS sequences.
PASS_NUMBERS = 2**23
#: Samples of a sequence beyond as many as there are lags, at most: attention pays for their square.
#: Slow states are given as many as were fed before, for they do not change sooner.
MOST_SAMPLES = 512
#: level → samples of one half, at least, and for every number of the state.
LEVELS = {"quick": (2048, 4), "standard": (8192, 8), "thorough": (32768, 16)}
#: Share of the variance of a number that another beginning may still explain.
LEFT = 1e-3
#: Time constants after which a cascade of modes has settled: exp(-2·5) of the variance is left.
CONSTANTS = 5.0
#: Steps at most, of a recurrence by itself and of a model that is run as a whole.
STEPPED, RUN_WHOLE = 16384, 2048
#: Numbers in the states of one trial.
TRIAL_NUMBERS = 2**24
#: Numbers in one block of the spectra of states and channels.
_BLOCK = 2**24
#: Smaller changes of the mean square are no drift, and none is within so many standard errors.
_SHARE, _ERRORS = 0.1, 4.0
#: Directions of real inputs with less than this share of the largest variance are not counted.
_THIN = 1e-6


def decode_states(
    subject: AbstractSubject,
    setting: Setting,
    *,
    lags: int,
    scale: float,
    tick: Callable[[int, int], None],
) -> tuple[tuple[Decoding, ...], str]:
    """One record per state, and what was fed; nothing where no state can be read."""
    reader = state_reader(subject)
    if reader is None:
        return (), ""
    numbers = min(WIDEST, max(reader.sizes.values(), default=1))
    feed = feed_of(subject, setting, lags=lags, numbers=numbers, scale=scale)
    rest = warm_up(subject, reader, feed, lags)
    feed = warmed(feed, subject, setting, lags=lags, warm=rest.steps, numbers=numbers)
    trial = DecodingTrial(reader, feed, lags, setting.seed, rest.enough)
    return trial.decodings(tick), feed.description()


@dataclass(slots=True, eq=False)
class DecodingTrial:
    """Both halves of the samples, and what a readout finds in every state."""

    reader: StateReader
    feed: Feed
    lags: int
    seed: int
    settled: bool
    fits: dict[str, CrossFit] = field(default_factory=dict)
    drifts: dict[str, Drift] = field(default_factory=dict)
    lost: set[str] = field(default_factory=set)
    rows: int = 0

    def decodings(self, tick: Callable[[int, int], None]) -> tuple[Decoding, ...]:
        """One record for every state."""
        passes = list(self.feed.passes())
        for number, (half, inputs, channels) in enumerate(passes):
            self._run(half, inputs, channels @ self._directions(channels.shape[2]))
            tick(number + 1, len(passes))
        return tuple(self._record(name, size) for name, size in self.reader.sizes.items())

    def _run(self, half: int, inputs: Tensor, channels: Tensor) -> None:
        """All sequences at once, or half as many at a time whenever memory runs short."""
        self.rows = self.rows or len(inputs)
        at = 0
        while at < len(inputs):
            part = slice(at, at + self.rows)
            fits = {name: fit.copy() for name, fit in self.fits.items()}
            drifts = {name: drift.copy() for name, drift in self.drifts.items()}

            def receive(name: str, states: Tensor, part: slice = part) -> None:
                self._add(name, states, half, channels[part])

            try:
                with shortage():
                    self.reader.run(inputs[part], receive)
            except MemoryError:
                if self.rows // 2 < FEWEST_ROWS:
                    raise
                self.fits, self.drifts = fits, drifts
                self.rows //= 2
                release_memory(self.reader.device)
                continue
            at += self.rows

    def _add(self, name: str, states: Tensor, half: int, channels: Tensor) -> None:
        if name not in self.reader.sizes or name in self.lost:
            return
        eps = torch.finfo(states.dtype).eps
        early = self.feed.warm - self.lags  # the fit itself passes over as many steps as lags
        wide = states.detach()[:, early:].to("cpu", torch.float64)
        if not bool(torch.isfinite(wide).all()):
            self.lost.add(name)
            return
        fit = self.fits.setdefault(name, CrossFit(self.lags, eps=eps))
        fit.add(half, self._narrowed(wide), channels[:, early:])
        self.drifts.setdefault(name, Drift()).add(wide[:, self.lags :])

    def _narrowed(self, states: Tensor) -> Tensor:
        width = states.shape[-1]
        if width <= WIDEST:
            return states
        return states @ _orthonormal(width, WIDEST, self.seed)

    def _directions(self, width: int) -> Tensor:
        """Directions (C,c) among the channels: all of them, or a few at random where memory ends.

        The mean of R² over random directions is that over all channels, but for the draw.
        """
        sizes = [min(size, WIDEST) for size in self.reader.sizes.values()]
        room = COVARIANCES // max(1, 4 * self.lags * sum(sizes))
        count = max(1, min(width, room))
        if count == width:
            return torch.eye(width, dtype=torch.float64)
        return _orthonormal(width, count, self.seed + 1)

    def _record(self, name: str, size: int) -> Decoding:
        kind, inputs = self.reader.kind, self.feed.channels
        none = np.zeros(0)
        if name in self.lost or name not in self.fits:
            status = Status.DIVERGED if name in self.lost else Status.NOT_MEASURED
            return Decoding(name, kind, size, 0, inputs, none, 0.0, None, 0, 0, False, status)
        fit = self.fits[name]
        values, null = (found.numpy() for found in fit.values())
        floor = MARGIN * float(np.abs(null).max())
        visible = values > floor * fit.scatter().numpy()
        return Decoding(
            state=name,
            kind=kind,
            numbers=size,
            used=min(size, WIDEST),
            inputs=inputs,
            values=values,
            floor=floor,
            # The scatter of the samples may lead beyond the bound, never the state itself.
            capacity=min(float(values[visible].sum()) * inputs, float(size)),
            half=lags_above(values),
            samples=fit.samples,
            exact=False,
            status=Status.OK if visible.any() else Status.BELOW_FLOOR,
            stationary=self.settled and not self.drifts[name].share(),
        )


def _orthonormal(rows: int, columns: int, seed: int) -> Tensor:
    draw = torch.randn(rows, columns, generator=seeded(seed), dtype=torch.float64)
    return torch.linalg.qr(draw).Q


# Where states can be read


@dataclass(frozen=True, slots=True, eq=False)
class StateReader:
    """Where the states of a model can be read: their sizes by name, and a way to run it."""

    kind: str
    sizes: dict[str, int]
    run: Run
    device: torch.device


def state_reader(subject: AbstractSubject) -> StateReader | None:
    """Where states can be read: a recurrence's own, else the layers', else the answers."""
    stepped = {n: d for n, d in subject.dynamics().items() if d.causal}
    stepped = {n: d for n, d in stepped.items() if d.width == subject.input_size}
    if stepped:
        return _stepped(stepped)
    if subject.layers():
        return _layered(subject)
    return None if subject.pooled else _answered(subject)


def _stepped(recurrences: dict[str, AbstractDynamics]) -> StateReader:
    """Every recurrence, and every layer of it where it has several."""
    first = {name: first_state(dynamics) for name, dynamics in recurrences.items()}

    def run(inputs: Tensor, receive: Receive) -> None:
        for name, dynamics in recurrences.items():
            states = _states(dynamics, first[name], inputs)
            for part, cut in _cuts(name, dynamics):
                receive(part, states[..., cut])

    sizes = {
        part: len(first[name][cut])
        for name, dynamics in recurrences.items()
        for part, cut in _cuts(name, dynamics)
    }
    return StateReader("state", sizes, run, next(iter(first.values())).device)


def _cuts(name: str, dynamics: AbstractDynamics) -> Iterator[tuple[str, slice]]:
    yield name, slice(None)
    if len(dynamics.blocks) > 1:
        for part, block in dynamics.blocks.items():
            yield f"{name}: {part}", slice(block.start, block.stop)


def _states(dynamics: AbstractDynamics, first: Tensor, inputs: Tensor) -> Tensor:
    """The states (B,T,n) after every input."""
    fed = inputs.to(first.device, first.dtype)
    state, found = first.expand(len(fed), -1), []
    with torch.no_grad():
        for u in fed.unbind(1):
            state = dynamics.step(state, u)
            found.append(state)
    return torch.stack(found, 1)


def _layered(subject: AbstractSubject) -> StateReader:
    """What every layer passes on; the sizes are those that a short trial shows."""
    sizes: dict[str, int] = {}

    def note(name: str, states: Tensor) -> None:
        sizes[name] = states.shape[-1]

    def run(inputs: Tensor, receive: Receive) -> None:
        subject.respond_with_hook(inputs.to(subject.device, subject.dtype), receive)

    run(torch.zeros(1, 2, subject.input_size or 1, dtype=torch.float64), note)
    known = {n: sizes[n] for n in subject.layers() if n in sizes}
    return StateReader("hidden", known, run, subject.device)


def _answered(subject: AbstractSubject) -> StateReader:
    def run(inputs: Tensor, receive: Receive) -> None:
        receive("answers", subject.respond(inputs.to(subject.device, subject.dtype)))

    trial = torch.zeros(1, 2, subject.input_size or 1, dtype=torch.float64)
    size = subject.respond(trial.to(subject.device, subject.dtype)).shape[-1]
    return StateReader("answers", {"answers": size}, run, subject.device)


# Inputs


@dataclass(frozen=True, slots=True, eq=False)
class Feed:
    """So many passes of `rows` sequences for each half; the first `warm` steps are no samples."""

    natural: Tensor | None
    width: int
    #: Independent channels of which the inputs are made.
    channels: int
    steps: int
    rounds: int
    scale: float
    seed: int
    warm: int
    rows: int = ROWS

    def passes(self) -> Iterator[tuple[int, Tensor, Tensor]]:
        """The half, the inputs (B,T,D) and their channels (B,T,C)."""
        for number in range(2 * self.rounds):
            drawn = self.drawn(number)
            yield number % 2, drawn.inputs, drawn.channels

    def description(self) -> str:
        """What is fed, in words."""
        size = f", times {self.scale:g}" if self.scale != 1 else ""
        if self.natural is None:
            return f"independent Gaussian numbers of variance 1{size}"
        return f"independent draws of {len(self.natural)} real inputs, around their mean{size}"

    def drawn(self, number: int, *, steps: int | None = None) -> Whitened:
        """Those of one pass; the number -1 is that of no pass."""
        generator = seeded(self.seed + 7919 * (number + 1))
        shape = (self.rows, self.steps if steps is None else steps, self.width)
        if self.natural is None:
            return gaussian(shape, scale=self.scale, generator=generator)
        return whitened(self.natural, shape, scale=self.scale, generator=generator)


def feed_of(
    subject: AbstractSubject, setting: Setting, *, lags: int, numbers: int, scale: float
) -> Feed:
    """The inputs for states of up to so many numbers, within the steps that the model takes."""
    natural = subject.natural_inputs(NATURAL, seeded(setting.seed))
    width = subject.input_size or 1
    if natural is not None and len(natural) < 2:
        natural = None
    channels = width if natural is None else _independent(natural)
    feed = Feed(natural, width, channels, 0, 0, scale, setting.seed, lags)
    return warmed(feed, subject, setting, lags=lags, warm=lags, numbers=numbers)


def warmed(
    feed: Feed, subject: AbstractSubject, setting: Setting, *, lags: int, warm: int, numbers: int
) -> Feed:
    """The same inputs, with so many steps before the first sample."""
    least, each = LEVELS[setting.level]
    wanted, slow = max(least, each * numbers), warm > 2 * lags
    room = PASS_NUMBERS // (2 * warm * numbers)
    rows = max(ROWS, min(MOST_ROWS, room)) if slow else ROWS
    stretch = min(max(lags, -(-wanted // rows)), lags + MOST_SAMPLES)
    steps = warm + (max(stretch, warm) if slow and subject.longest is None else stretch)
    if subject.longest is not None:
        steps = min(steps, subject.longest)
    rounds = -(-wanted // (rows * (steps - warm)))
    return replace(feed, steps=steps, rounds=rounds, warm=warm, rows=rows)


def _independent(natural: Tensor) -> int:
    shape = (1, 1, natural.shape[1])
    return whitened(natural, shape, scale=1.0, generator=seeded(0)).channels.shape[-1]


@dataclass(frozen=True, slots=True)
class Whitened:
    """Inputs (…,D) to feed, and their channels (…,C): uncorrelated, of mean 0 and variance 1."""

    inputs: Tensor
    channels: Tensor


def gaussian(shape: tuple[int, ...], *, scale: float, generator: torch.Generator) -> Whitened:
    """Gaussian inputs of standard deviation `scale`, each entry a channel of its own."""
    channels = torch.randn(shape, generator=generator, dtype=torch.float64)
    return Whitened(scale * channels, channels)


def whitened(
    natural: Tensor, shape: tuple[int, ...], *, scale: float, generator: torch.Generator
) -> Whitened:
    """Draws of the given vectors (n,D), each as likely as any other; `shape` ends with D.

    The channels are the principal components of the vectors; `scale` stretches around the mean.
    """
    vectors = natural.detach().to("cpu", torch.float64)
    mean = vectors.mean(0)
    left, values, _ = torch.linalg.svd(vectors - mean, full_matrices=False)
    kept = values.square() > _THIN * values[:1].square().clamp(min=torch.finfo(values.dtype).tiny)
    at = torch.randint(len(vectors), shape[:-1], generator=generator)
    channels = left[:, kept] * len(vectors) ** 0.5
    return Whitened((mean + scale * (vectors - mean))[at], channels[at])


# Warm-up


@dataclass(frozen=True, slots=True)
class WarmUp:
    """Steps that are fed before anything is measured, and whether they are enough."""

    steps: int
    enough: bool


def warm_up(subject: AbstractSubject, reader: StateReader, feed: Feed, lags: int) -> WarmUp:
    """By trial where a recurrence is stepped, else by the spectrum; as many as lags at least."""
    room = math.inf if subject.longest is None else subject.longest - lags
    if reader.kind != "state":
        slowest = max((item.time_scale for item in subject.spectra()), default=0.0)
        most, wanted = min(room, max(lags, RUN_WHOLE)), CONSTANTS * slowest
        steps = int(max(lags, min(most, math.ceil(min(wanted, RUN_WHOLE)))))
        return WarmUp(steps, wanted <= steps)
    numbers = max(reader.sizes.values(), default=1)
    most = int(min(room, max(lags, min(STEPPED, TRIAL_NUMBERS // (feed.rows * numbers)))))
    tried = lags
    while tried < most:
        tried = min(most, 4 * tried)
        steps = _steps_to_forget(reader, feed, lags, tried)
        if steps is None:  # lost on the way, which the measurement itself will say
            return WarmUp(lags, True)
        # What fades near the end of a trial may come back after it.
        if steps <= tried // 2:
            return WarmUp(max(lags, steps), True)
    return WarmUp(most, False)


def _steps_to_forget(reader: StateReader, feed: Feed, lags: int, steps: int) -> int | None:
    """Steps after which sequences of different beginnings, `lags` long, have the same states."""
    inputs = feed.drawn(-1, steps=lags + steps).inputs
    half = len(inputs) // 2
    inputs[half : 2 * half, lags:] = inputs[:half, lags:]
    found: list[int | None] = []

    def receive(name: str, states: Tensor) -> None:
        if name in reader.sizes:
            found.append(_last_difference(states.detach().to("cpu", torch.float64), half, lags))

    reader.run(inputs, receive)
    apart = [item for item in found if item is not None]
    return None if len(apart) < len(found) or not found else max(apart)


def _last_difference(states: Tensor, half: int, lags: int) -> int | None:
    """The last step at which some number of the state differs, counted from where inputs agree."""
    if not bool(states.isfinite().all()):
        return None
    top = states.abs().amax((0, 1))
    states = states[: 2 * half, lags:] / torch.where(top > 0, top, 1.0)
    variance = states.flatten(0, 1).var(0)
    off = (states[:half] - states[half:]).square().mean(0) / 2
    apart = (off > LEFT * variance).any(1).nonzero()
    return int(apart[-1]) + 1 if len(apart) else 0


# Regression


class CrossFit:
    """R²(lag) of past inputs from states, by the coefficients of one half of the samples.

    With b the least-squares coefficients of one half and c the covariances of the other,
    R²(k) = b(k)·c(k) / var(u), both ways round: noise in b and in c is independent, so that noise
    has mean zero and does not count as memory. Numbers of the state have variance 1, and the ridge
    is n·max(eps², 2.2e-16) for a state of n numbers in a dtype with that eps: what the rounding
    of the state hides is not found. `null` is the same with the inputs of other sequences.
    """

    def __init__(self, lags: int, *, eps: float) -> None:
        self.lags = lags
        self.samples = 0
        self._eps = eps
        self._shift: Tensor | None = None
        self._unit: Tensor | None = None
        self._halves: list[_Sums | None] = [None, None]

    def add(self, half: int, states: Tensor, channels: Tensor) -> None:
        """Sequences of states (B,T,n) and channels (B,T,C); the first `lags` steps pass by."""
        if self._shift is None or self._unit is None:
            # Sums of squares keep their digits when the mean is near zero, and their range when
            # the states are of the size of 1.
            top = states.double().abs().amax((0, 1))
            self._unit = torch.where(top > 0, top, 1.0)
            self._shift = (states[:, self.lags :] / self._unit).mean((0, 1))
        moved = states / self._unit - self._shift
        found = _Sums.of(moved, channels, self.lags)
        before = self._halves[half]
        self._halves[half] = found if before is None else before.plus(found)
        self.samples += states.shape[0] * (states.shape[1] - self.lags)

    def copy(self) -> CrossFit:
        """What was found so far, to come back to."""
        made = CrossFit(self.lags, eps=self._eps)
        made.samples, made._shift, made._unit = self.samples, self._shift, self._unit
        made._halves = [*self._halves]
        return made

    def values(self) -> tuple[Tensor, Tensor]:
        """R² and null (lags,) as means over the channels; zeros where the state never moves."""
        one, other = (half.moments() for half in self._halves if half is not None)
        scale = ((one[0].diagonal() + other[0].diagonal()) / 2).sqrt()
        size = scale if self._shift is None else torch.maximum(scale, self._shift.abs())
        live = scale > self._eps * size
        if not bool(live.any()):
            return torch.zeros(self.lags).double(), torch.zeros(self.lags).double()
        fits = [self._fit(moments, live, scale[live]) for moments in (one, other)]
        (b, c), (beta, gamma) = fits
        both = ((b * gamma).sum(1) + (beta * c).sum(1)) / 2  # (2,lags,C)
        real, null = (both / ((one[2] + other[2]) / 2)).mean(-1)
        return real.clamp(0, 1), null

    def scatter(self) -> Tensor:
        """How much more the noise at every lag scatters than `null` does, at least 1: (lags,).

        Products x u of numbers that depend on each other scatter by E[x² u²], not by E[x²] E[u²],
        even where they are not correlated, as u² and u.
        """
        found = [half.sums[-1] / half.count for half in self._halves if half is not None]
        return torch.stack(found).mean(0).sqrt().clamp(min=1)

    def _fit(
        self, moments: tuple[Tensor, Tensor, Tensor], live: Tensor, scale: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Coefficients and covariances (2,n,lags,C), of the inputs and of those of others."""
        square, cross, _ = moments
        square = square[live][:, live] / (scale[:, None] * scale)
        cross = cross[:, live] / scale[:, None, None]
        count = len(scale)
        ridge = count * max(self._eps**2, torch.finfo(torch.float64).eps)
        square = square + ridge * torch.eye(count, dtype=square.dtype)
        flat = torch.linalg.solve(square, cross.flatten(2))
        return flat.view_as(cross), cross


class _Sums:
    """Sums of products over the samples of one half."""

    def __init__(self, *sums: Tensor, count: int) -> None:
        self.sums = sums
        self.count = count

    @classmethod
    def of(cls, states: Tensor, channels: Tensor, lags: int) -> _Sums:
        """Those of some sequences: states, their squares, products with past channels."""
        steps = states.shape[1] - lags
        kept = states[:, lags:].flatten(0, 1)
        total = torch.cat([channels.new_zeros(1, channels.shape[2]), channels.sum(0).cumsum(0)])
        squares = channels.square().sum(0)
        power = torch.cat([squares.new_zeros(1, squares.shape[1]), squares.cumsum(0)])
        ends = torch.arange(states.shape[1], steps, -1)  # lag k sums over [lags - k, T - k)
        pairs = (channels, channels.roll(1, 0))
        cross = torch.stack([correlated(states, fed, lags) for fed in pairs])
        sums = (kept.sum(0), kept.mT @ kept, cross)
        return cls(
            *sums,
            total[ends] - total[ends - steps],
            power[ends] - power[ends - steps],
            _dependence(states, channels, lags) * len(kept),
            count=len(kept),
        )

    def plus(self, other: _Sums) -> _Sums:
        """Both together."""
        pairs = zip(self.sums, other.sums, strict=True)
        return _Sums(*(a + b for a, b in pairs), count=self.count + other.count)

    def moments(self) -> tuple[Tensor, Tensor, Tensor]:
        """Covariance of the states (n,n), with the channels (2,n,lags,C), variances (lags,C)."""
        total, square, cross, fed, power, _ = (part / self.count for part in self.sums)
        variance = power - fed.square()
        products = cross - total[:, None, None] * fed
        return square - total[:, None] * total, products, variance


def _dependence(states: Tensor, channels: Tensor, lags: int) -> Tensor:
    """The mean over numbers and channels of (E[x² u²] / (E[x²] E[u²]))², by lag."""
    x, u = states.square(), channels.square()
    count = len(x) * (x.shape[1] - lags)
    sizes = x[:, lags:].mean((0, 1))[:, None, None] * u.mean((0, 1))
    found = correlated(x, u, lags) / count
    return (
        torch.where(sizes > 0, found / torch.where(sizes > 0, sizes, 1.0), 0).square().mean((0, 2))
    )


def correlated(states: Tensor, channels: Tensor, lags: int) -> Tensor:
    """Σ_t x_t z_{t-k} over the batch for t >= lags and k < lags: (n,lags,C), by FFT."""
    length = states.shape[1]
    late = states.clone()
    late[:, :lags] = 0  # so that t - k is never negative, and nothing wraps round
    ahead = torch.fft.rfft(channels, dim=1).conj()
    size = max(1, _BLOCK // (ahead.shape[1] * channels.shape[2]))
    found = []
    for part in late.split(size, dim=2):
        product = torch.einsum("bfn,bfc->nfc", torch.fft.rfft(part, dim=1), ahead)
        found.append(torch.fft.irfft(product, n=length, dim=1)[:, :lags])
    return torch.cat(found)


class Drift:
    """(late - early) / (late + early) of the mean squares of both halves of time, by sequence."""

    def __init__(self) -> None:
        self._centre: tuple[Tensor, Tensor] | None = None
        self._found: list[Tensor] = []

    def add(self, states: Tensor) -> None:
        """Sequences of states (B,T,n); the first ones give every number its mean and its unit."""
        if self._centre is None:
            top = states.abs().amax((0, 1))
            top = torch.where(top > 0, top, 1.0)
            self._centre = top, (states / top).mean((0, 1))
        top, mean = self._centre
        squares = (states / top - mean).square()
        middle = states.shape[1] // 2
        early, late = squares[:, :middle].mean(1), squares[:, middle:].mean(1)
        both = (early + late).mean(0)
        self._found.append(((late - early) / torch.where(both > 0, both, 1.0)).mean(1))

    def copy(self) -> Drift:
        """What was found so far, to come back to."""
        made = Drift()
        made._centre, made._found = self._centre, [*self._found]
        return made

    def share(self) -> float:
        """The mean over sequences, 0 where their scatter explains it."""
        if not self._found:
            return 0.0
        found = torch.cat(self._found)
        mean, count = float(found.mean()), len(found)
        error = float(found.std()) / math.sqrt(count) if count > 1 else math.inf
        return mean if abs(mean) > max(_SHARE, _ERRORS * error) else 0.0
