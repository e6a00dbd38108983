"""Whether a state is as large late in its sequences as early, beyond the scatter of them."""

from __future__ import annotations

import math

import torch
from torch import Tensor

#: Smaller changes of the mean square are no drift, and none is within so many standard errors.
_SHARE, _ERRORS = 0.1, 4.0


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
