"""The recurrent weights of a model as an optimizer sees them, and where their modes are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import nn

from memaudit.retrofitting.diagonal import numbers_of
from memaudit.retrofitting.finding import find_decays
from memaudit.retrofitting.form import weight_of
from memaudit.retrofitting.plain_state import BEHIND
from memaudit.stored_decay import DiagonalDecay, NoDecay

if TYPE_CHECKING:
    from memaudit.stored_decay import DenseDecay

#: Raw numbers below this part of their root mean square are as good as zero.
SMALL_NUMBER = 1e-3
#: Weights that are all zero do not divide by zero.
TINY = torch.finfo(torch.float64).tiny


@dataclass(frozen=True, slots=True, eq=False)
class RecurrentWeight:
    """One stored weight that makes the modes of a layer, retrofitted or not."""

    decay: DiagonalDecay | DenseDecay

    @property
    def layer(self) -> str:
        """The layer that it belongs to."""
        return self.decay.layer

    @property
    def retrofitted(self) -> bool:
        """Whether it stands behind a form."""
        return weight_of(self.decay.owner, self.decay.name) is not None

    def raws(self) -> list[nn.Parameter]:
        """What is trained in its place: the raw weights, or itself."""
        owner, name = self.decay.owner, self.decay.name
        if not self.retrofitted:
            return [owner.get_parameter(name)]
        return list(owner.get_submodule(f"{BEHIND}.{name}").parameters())

    def margin(self) -> float:
        """The distance of its slowest mode to the boundary, negative behind it; or not a number."""
        with torch.no_grad():
            stored = getattr(self.decay.owner, self.decay.name).detach()
            wide = stored.to(torch.complex128 if stored.is_complex() else torch.float64)
            if not bool(torch.isfinite(wide).all()):
                return float("nan")
            if isinstance(self.decay, DiagonalDecay):
                lam = self.decay.law.forward(numbers_of(wide, self.decay.part))
                away = -lam if self.decay.law.time == "continuous" else 1.0 - lam.abs()
            else:
                matrix = self.decay.matrix(self.decay.owner, wide)
                away = 1.0 - torch.linalg.eigvals(matrix.double()).abs()
            return float(away.amin())

    def gradient_over_weight(self) -> float | None:
        """The largest |gradient| / |w| of its raw numbers w; None without a gradient.

        Numbers that happen to be near zero, such as the logarithm of a rate of one, count as a
        thousandth of the typical one: their own ratio tells nothing.
        """
        makers = self.raws()[0]  # the others turn modes, or are gates
        if makers.grad is None:
            return None
        part = self.decay.part if isinstance(self.decay, DiagonalDecay) else "all"
        weight = numbers_of(makers.detach(), part).abs().double()
        slope = numbers_of(makers.grad.detach(), part).abs().double()
        least = SMALL_NUMBER * weight.square().mean().sqrt()
        return float((slope / weight.clamp(min=max(float(least), TINY))).amax())

    def finite(self) -> bool:
        """Whether its raw weights and their gradients are numbers."""
        raws = self.raws()
        told = [*raws, *(raw.grad for raw in raws if raw.grad is not None)]
        return all(bool(torch.isfinite(one.detach()).all()) for one in told)


def recurrent_weights(model: nn.Module) -> tuple[RecurrentWeight, ...]:
    """Those of a model that are known, in the order of its layers."""
    decays = find_decays({"": model})
    return tuple(RecurrentWeight(decay) for decay in decays if not isinstance(decay, NoDecay))
