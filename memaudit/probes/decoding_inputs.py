"""The iid inputs that are fed to read them back, in two halves that share no sequence."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from memaudit.numerics.recall import Whitened, gaussian, whitened
from memaudit.numerics.signals import seeded

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from memaudit.contracts import AbstractSubject, Setting

#: Real input vectors that are drawn from.
NATURAL = 4096
#: Sequences in one pass: with two at least, the inputs of another one are at hand. Slow states
#: take more: what one sequence tells of them is hardly more than one sample.
ROWS, MOST_ROWS = 4, 32
#: Numbers in the states of one pass, where there are more than ROWS sequences.
NUMBERS = 2**23
#: Samples of a sequence beyond as many as there are lags, at most: attention pays for their square.
#: Slow states are given as many as were fed before, for they do not change sooner.
LONGEST = 512
#: level → samples of one half, at least, and for every number of the state.
LEVELS = {"quick": (2048, 4), "standard": (8192, 8), "thorough": (32768, 16)}


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

    def told(self) -> str:
        """What is fed, in a sentence."""
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
    room = NUMBERS // (2 * warm * numbers)
    rows = max(ROWS, min(MOST_ROWS, room)) if slow else ROWS
    stretch = min(max(lags, -(-wanted // rows)), lags + LONGEST)
    steps = warm + (max(stretch, warm) if slow and subject.longest is None else stretch)
    if subject.longest is not None:
        steps = min(steps, subject.longest)
    rounds = -(-wanted // (rows * (steps - warm)))
    return replace(feed, steps=steps, rounds=rounds, warm=warm, rows=rows)


def _independent(natural: Tensor) -> int:
    shape = (1, 1, natural.shape[1])
    return whitened(natural, shape, scale=1.0, generator=seeded(0)).channels.shape[-1]
