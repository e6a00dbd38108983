"""How long a model has to be fed until its state no longer tells where it began."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor

    from memaudit.contracts import AbstractSubject
    from memaudit.probes.decoding_inputs import Feed
    from memaudit.probes.decoding_trial import Listening

#: Share of the variance of a number that another beginning may still explain.
LEFT = 1e-3
#: Time constants after which a cascade of modes has settled: exp(-2·5) of the variance is left.
CONSTANTS = 5.0
#: Steps at most, of a recurrence by itself and of a model that is run as a whole.
STEPPED, HEARD = 16384, 2048
#: Numbers in the states of one trial.
NUMBERS = 2**24


@dataclass(frozen=True, slots=True)
class Settling:
    """Steps that are fed before anything is measured, and whether they are enough."""

    steps: int
    enough: bool


def settling(subject: AbstractSubject, listening: Listening, feed: Feed, lags: int) -> Settling:
    """By trial where a recurrence is stepped, else by the spectrum; as many as lags at least."""
    room = math.inf if subject.longest is None else subject.longest - lags
    if listening.kind != "state":
        slowest = max((item.time_scale for item in subject.spectra()), default=0.0)
        most, wanted = min(room, max(lags, HEARD)), CONSTANTS * slowest
        steps = int(max(lags, min(most, math.ceil(min(wanted, HEARD)))))
        return Settling(steps, wanted <= steps)
    numbers = max(listening.sizes.values(), default=1)
    most = int(min(room, max(lags, min(STEPPED, NUMBERS // (feed.rows * numbers)))))
    tried = lags
    while tried < most:
        tried = min(most, 4 * tried)
        steps = _forgotten(listening, feed, lags, tried)
        if steps is None:  # lost on the way, which the measurement itself will say
            return Settling(lags, True)
        # What fades near the end of a trial may come back after it.
        if steps <= tried // 2:
            return Settling(max(lags, steps), True)
    return Settling(most, False)


def _forgotten(listening: Listening, feed: Feed, lags: int, steps: int) -> int | None:
    """Steps after which sequences of different beginnings, `lags` long, have the same states."""
    inputs = feed.drawn(-1, steps=lags + steps).inputs
    half = len(inputs) // 2
    inputs[half : 2 * half, lags:] = inputs[:half, lags:]
    found: list[int | None] = []

    def hear(name: str, states: Tensor) -> None:
        if name in listening.sizes:
            found.append(_last_apart(states.detach().to("cpu", torch.float64), half, lags))

    listening.run(inputs, hear)
    apart = [item for item in found if item is not None]
    return None if len(apart) < len(found) or not found else max(apart)


def _last_apart(states: Tensor, half: int, lags: int) -> int | None:
    """The last step at which some number of the state differs, counted from where inputs agree."""
    if not bool(states.isfinite().all()):
        return None
    top = states.abs().amax((0, 1))
    states = states[: 2 * half, lags:] / torch.where(top > 0, top, 1.0)
    variance = states.flatten(0, 1).var(0)
    off = (states[:half] - states[half:]).square().mean(0) / 2
    apart = (off > LEFT * variance).any(1).nonzero()
    return int(apart[-1]) + 1 if len(apart) else 0
