"""The iid inputs that are fed to read them back, in two halves that share no sequence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from memaudit.numerics.recall import Whitened, gaussian, whitened
from memaudit.numerics.signals import seeded

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from memaudit.contracts import AbstractSubject, Setting

#: Real input vectors that are drawn from.
NATURAL = 4096
#: Sequences in one pass: with two at least, the inputs of another one are at hand.
ROWS = 4
#: Samples of a sequence beyond as many as there are lags, at most: attention pays for their square.
LONGEST = 512
#: level → samples of one half, at least, and for every number of the state.
LEVELS = {"quick": (2048, 4), "standard": (8192, 8), "thorough": (32768, 16)}


@dataclass(frozen=True, slots=True, eq=False)
class Feed:
    """So many passes of `ROWS` sequences for each half; the first `lags` steps are no samples."""

    natural: Tensor | None
    width: int
    #: Independent channels of which the inputs are made.
    channels: int
    steps: int
    rounds: int
    scale: float
    seed: int

    def passes(self) -> Iterator[tuple[int, Tensor, Tensor]]:
        """The half, the inputs (B,T,D) and their channels (B,T,C)."""
        for number in range(2 * self.rounds):
            drawn = self._drawn(number)
            yield number % 2, drawn.inputs, drawn.channels

    def told(self) -> str:
        """What is fed, in a sentence."""
        size = f", times {self.scale:g}" if self.scale != 1 else ""
        if self.natural is None:
            return f"independent Gaussian numbers of variance 1{size}"
        return f"independent draws of {len(self.natural)} real inputs, around their mean{size}"

    def _drawn(self, number: int) -> Whitened:
        generator = seeded(self.seed + 7919 * (number + 1))
        shape = (ROWS, self.steps, self.width)
        if self.natural is None:
            return gaussian(shape, scale=self.scale, generator=generator)
        return whitened(self.natural, shape, scale=self.scale, generator=generator)


def feed_of(
    subject: AbstractSubject, setting: Setting, *, lags: int, numbers: int, scale: float
) -> Feed:
    """The inputs for states of up to so many numbers, within the steps that the model takes."""
    least, each = LEVELS[setting.level]
    wanted = max(least, each * numbers)
    steps = lags + max(lags, -(-wanted // ROWS))
    if subject.longest is not None:
        steps = min(steps, subject.longest)
    steps = min(steps, 2 * lags + LONGEST)
    rounds = -(-wanted // (ROWS * (steps - lags)))
    natural = subject.natural_inputs(NATURAL, seeded(setting.seed))
    width = subject.input_size or 1
    if natural is not None and len(natural) < 2:
        natural = None
    channels = width if natural is None else _independent(natural)
    return Feed(natural, width, channels, steps, rounds, scale, setting.seed)


def _independent(natural: Tensor) -> int:
    shape = (1, 1, natural.shape[1])
    return whitened(natural, shape, scale=1.0, generator=seeded(0)).channels.shape[-1]
