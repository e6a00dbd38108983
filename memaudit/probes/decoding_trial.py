"""How much of its past inputs a linear readout finds in the states of any model."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import torch

from memaudit.devices import release_memory, shortage
from memaudit.memory.result import Status
from memaudit.numerics.recall import CrossFit, Drift
from memaudit.numerics.signals import seeded
from memaudit.recall.result import Decoding

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from memaudit.contracts import AbstractDynamics, AbstractSubject
    from memaudit.probes.decoding_inputs import Feed

    Hear = Callable[[str, Tensor], None]
    #: Feeds sequences (B,T,D), and tells the states (B,T,n) by name.
    Run = Callable[[Tensor, Hear], None]

#: A wider state is projected at random.
WIDEST = 1024
#: Numbers of all covariances between states and channels.
NUMBERS = 2**25
#: The floor is so many times the largest R² of as many lags with inputs of other sequences. The
#: tails of noise are exponential at worst: the chance that one of L lags passes by itself is about
#: 1/L then, and far less where the state has many numbers. Without a margin it is one third.
MARGIN = 2.0
#: Where states depend on an input without being correlated with it, it is more (`scatter`).
#: The fewest sequences at once: one alone has no other to be held against.
FEWEST = 2


@dataclass(frozen=True, slots=True, eq=False)
class Listening:
    """Where the states of a model can be heard: their sizes by name, and a way to run it."""

    kind: str
    sizes: dict[str, int]
    run: Run
    device: torch.device


@dataclass(slots=True, eq=False)
class DecodingTrial:
    """Both halves of the samples, and what they tell of every state."""

    listening: Listening
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
        return tuple(self._record(name, size) for name, size in self.listening.sizes.items())

    def _run(self, half: int, inputs: Tensor, channels: Tensor) -> None:
        """All sequences at once, or half as many at a time whenever memory runs short."""
        self.rows = self.rows or len(inputs)
        at = 0
        while at < len(inputs):
            part = slice(at, at + self.rows)
            fits = {name: fit.copy() for name, fit in self.fits.items()}
            drifts = {name: drift.copy() for name, drift in self.drifts.items()}

            def hear(name: str, states: Tensor, part: slice = part) -> None:
                self._hear(name, states, half, channels[part])

            try:
                with shortage():
                    self.listening.run(inputs[part], hear)
            except MemoryError:
                if self.rows // 2 < FEWEST:
                    raise
                self.fits, self.drifts = fits, drifts
                self.rows //= 2
                release_memory(self.listening.device)
                continue
            at += self.rows

    def _hear(self, name: str, states: Tensor, half: int, channels: Tensor) -> None:
        if name not in self.listening.sizes or name in self.lost:
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
        sizes = [min(size, WIDEST) for size in self.listening.sizes.values()]
        room = NUMBERS // max(1, 4 * self.lags * sum(sizes))
        count = max(1, min(width, room))
        if count == width:
            return torch.eye(width, dtype=torch.float64)
        return _orthonormal(width, count, self.seed + 1)

    def _record(self, name: str, size: int) -> Decoding:
        kind, inputs = self.listening.kind, self.feed.channels
        none = np.zeros(0)
        if name in self.lost or name not in self.fits:
            status = Status.DIVERGED if name in self.lost else Status.NOT_MEASURED
            return Decoding(name, kind, size, 0, inputs, none, 0.0, None, 0, 0, False, status)
        fit = self.fits[name]
        values, null = (found.numpy() for found in fit.values())
        floor = MARGIN * float(np.abs(null).max())
        heard = values > floor * fit.scatter().numpy()
        return Decoding(
            state=name,
            kind=kind,
            numbers=size,
            used=min(size, WIDEST),
            inputs=inputs,
            values=values,
            floor=floor,
            # The scatter of the samples may lead beyond the bound, never the state itself.
            capacity=min(float(values[heard].sum()) * inputs, float(size)),
            half=leading(values),
            samples=fit.samples,
            exact=False,
            status=Status.OK if heard.any() else Status.BELOW_FLOOR,
            stationary=self.settled and not self.drifts[name].share(),
        )


def leading(values: np.ndarray, level: float = 0.5) -> int:
    """How many lags, from 0 on, are at that level or above."""
    below = np.flatnonzero(values < level)
    return int(below[0]) if len(below) else len(values)


def heard_in(subject: AbstractSubject) -> Listening | None:
    """Where states can be heard: a recurrence's own, else the layers', else the answers."""
    stepped = {n: d for n, d in subject.dynamics().items() if d.causal}
    stepped = {n: d for n, d in stepped.items() if d.width == subject.input_size}
    if stepped:
        return _stepped(stepped)
    if subject.layers():
        return _layered(subject)
    return None if subject.pooled else _answered(subject)


def _stepped(recurrences: dict[str, AbstractDynamics]) -> Listening:
    """Every recurrence, and every layer of it where it has several."""
    from memaudit.numerics.recurrence.states import first_state

    first = {name: first_state(dynamics) for name, dynamics in recurrences.items()}

    def run(inputs: Tensor, hear: Hear) -> None:
        for name, dynamics in recurrences.items():
            states = _states(dynamics, first[name], inputs)
            for part, cut in _cuts(name, dynamics):
                hear(part, states[..., cut])

    sizes = {
        part: len(first[name][cut])
        for name, dynamics in recurrences.items()
        for part, cut in _cuts(name, dynamics)
    }
    return Listening("state", sizes, run, next(iter(first.values())).device)


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


def _layered(subject: AbstractSubject) -> Listening:
    """What every layer passes on; the sizes are those that a short trial shows."""
    sizes: dict[str, int] = {}

    def note(name: str, states: Tensor) -> None:
        sizes[name] = states.shape[-1]

    def run(inputs: Tensor, hear: Hear) -> None:
        subject.listen(inputs.to(subject.device, subject.dtype), hear)

    run(torch.zeros(1, 2, subject.input_size or 1, dtype=torch.float64), note)
    told = {n: sizes[n] for n in subject.layers() if n in sizes}
    return Listening("hidden", told, run, subject.device)


def _answered(subject: AbstractSubject) -> Listening:
    def run(inputs: Tensor, hear: Hear) -> None:
        hear("answers", subject.respond(inputs.to(subject.device, subject.dtype)))

    trial = torch.zeros(1, 2, subject.input_size or 1, dtype=torch.float64)
    size = subject.respond(trial.to(subject.device, subject.dtype)).shape[-1]
    return Listening("answers", {"answers": size}, run, subject.device)


def _orthonormal(rows: int, columns: int, seed: int) -> Tensor:
    draw = torch.randn(rows, columns, generator=seeded(seed), dtype=torch.float64)
    return torch.linalg.qr(draw).Q
