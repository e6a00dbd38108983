"""Laws between stored weights and modes that are no reparameterizations of memaudit's own."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from memaudit.contracts import AbstractReparam
from memaudit.reparams import Best, Direct, Exp, Softplus
from memaudit_ssm.layers.transforms import BEST_OFFSET, RELU_FLOOR

#: By so much of it a number may miss the end of a range: single precision rounds more finely.
ROUNDING = 1e-6


@dataclass(frozen=True, slots=True)
class Negated(AbstractReparam):
    """f(w) = -w in continuous time: what is stored is the rate itself, of either sign."""

    name: ClassVar[str] = "direct"
    summary: ClassVar[str] = "-w; not stable"
    times: ClassVar[tuple[str, ...]] = ("continuous",)
    stable: ClassVar[bool] = False

    def forward(self, w: Tensor) -> Tensor:
        return -w

    def inverse(self, lam: Tensor) -> Tensor:
        return -lam

    def contains(self, lam: Tensor) -> Tensor:
        return lam.isfinite()

    def modulus(self, beta: float) -> float:
        del beta
        return math.inf


@dataclass(frozen=True, slots=True)
class FlooredRelu(AbstractReparam):
    """f(w) = -(max(w, 0) + floor) in continuous time; the modulus is beta / floor.

    Slower rates than the floor have no raw weight.
    """

    name: ClassVar[str] = "relu"
    summary: ClassVar[str] = "-(max(w, 0) + 1e-4), as S4 has it; no gradient at the floor"
    times: ClassVar[tuple[str, ...]] = ("continuous",)
    stable: ClassVar[bool] = True

    floor: float = RELU_FLOOR

    def forward(self, w: Tensor) -> Tensor:
        return -(w.relu() + self.floor)

    def inverse(self, lam: Tensor) -> Tensor:
        return torch.where(-lam >= self.floor * (1.0 - ROUNDING), -lam - self.floor, torch.nan)

    def contains(self, lam: Tensor) -> Tensor:
        return (lam.double() <= -self.floor) & lam.isfinite()

    def modulus(self, beta: float) -> float:
        return beta / self.floor


@dataclass(frozen=True, slots=True)
class Sigmoid(AbstractReparam):
    """f(w) = -1 / (1 + e^-w) in continuous time, rates below 1; the modulus is e^beta - 1.

    A rate that rounds to 1 has the raw weight of the last number below it, a faster one none.
    """

    name: ClassVar[str] = "sigmoid"
    summary: ClassVar[str] = "-sigmoid(w); rates below 1"
    times: ClassVar[tuple[str, ...]] = ("continuous",)
    stable: ClassVar[bool] = True

    def forward(self, w: Tensor) -> Tensor:
        return -torch.sigmoid(w)

    def inverse(self, lam: Tensor) -> Tensor:
        held = (-lam).clamp(max=1.0 - torch.finfo(lam.dtype).eps / 2.0)
        return torch.where(-lam <= 1.0 + ROUNDING, torch.logit(held), torch.nan)

    def contains(self, lam: Tensor) -> Tensor:
        return (lam < 0.0) & (lam > -1.0)

    def modulus(self, beta: float) -> float:
        return math.expm1(beta)


@dataclass(frozen=True, slots=True)
class HeldBest(Best):
    """`best` as a law of stored weights: faster rates than 1/b have no raw weight.

    At 1/b itself the root has no slope, which must not become a gradient that is no number.
    """

    def inverse(self, lam: Tensor) -> Tensor:
        above = -1.0 / lam - self.b
        root = (above.clamp(min=torch.finfo(lam.dtype).tiny) / self.a).sqrt()
        return torch.where(above >= -ROUNDING * self.b, root, torch.nan)


@dataclass(frozen=True, slots=True)
class Kept(AbstractReparam):
    """f(w) = e^{-e^w} in discrete time, the share of a state that is kept; modulus e^beta - 1.

    What rounds to nothing has the raw weight of the smallest number, what is negative none.
    """

    name: ClassVar[str] = "exp"
    summary: ClassVar[str] = "exp(-exp(w)), what is kept of a state"
    times: ClassVar[tuple[str, ...]] = ("discrete",)
    stable: ClassVar[bool] = True

    time: str = "discrete"

    def forward(self, w: Tensor) -> Tensor:
        return torch.exp(-w.exp())

    def inverse(self, lam: Tensor) -> Tensor:
        held = lam.clamp(min=torch.finfo(lam.dtype).tiny)
        return torch.where(lam >= 0.0, (-held.log()).log(), torch.nan)

    def contains(self, lam: Tensor) -> Tensor:
        return (lam > 0.0) & (lam < 1.0)

    def modulus(self, beta: float) -> float:
        return math.expm1(beta)


@dataclass(frozen=True, slots=True)
class EulerRelu(AbstractReparam):
    """f(w) = 1 - dt·max(w, 0) in discrete time: one step of forward Euler, down to -infinity."""

    name: ClassVar[str] = "relu"
    summary: ClassVar[str] = "1 - dt·max(w, 0); reaches both boundaries, not stable"
    times: ClassVar[tuple[str, ...]] = ("discrete",)
    stable: ClassVar[bool] = False

    time: str = "discrete"
    dt: float = 1.0

    def forward(self, w: Tensor) -> Tensor:
        return 1.0 - self.dt * w.relu()

    def inverse(self, lam: Tensor) -> Tensor:
        return (1.0 - lam) / self.dt

    def contains(self, lam: Tensor) -> Tensor:
        return (lam <= 1.0) & lam.isfinite()

    def modulus(self, beta: float) -> float:
        del beta
        return math.inf


#: Behind the transforms of S4, by their names: the real part of a rate in continuous time.
S4_LAWS: dict[str, AbstractReparam] = {
    "none": Negated(),
    "exp": Exp(),
    "relu": FlooredRelu(),
    "sigmoid": Sigmoid(),
    "softplus": Softplus(),
}
#: Behind the parameterizations of StableSSM.
STABLE_LAWS: dict[str, AbstractReparam] = {
    "exp": Exp(),
    "softplus": Softplus(),
    "best": HeldBest(a=1.0, b=BEST_OFFSET),
    "direct": Direct(),
}

#: What a low-rank part leaves of the law of its diagonal.
TIED = "its modes are those of diag - P P*, which decay as long as the diagonal does"
UNTIED = "its modes are those of diag - P Qᵀ: of them a diagonal that decays promises nothing"
#: Of a step size that is stored as it is.
SIGNED = "nothing keeps its step sizes positive, and a negative one turns decay into growth"
#: What the steps of Curse-of-memory make of its laws.
PARTLY = "a step of {dt:g} replaces that share of the state: its modes are 1 - {dt:g} (1 - lambda)"
TURNED = (
    "its modes are those of one step by Pᵀ diag(rates) P: they decay as long as all rates do, P "
    "has an inverse, and no rate of the product is beyond {end:g}, where steps overshoot"
)
