"""The contract of a reparameterization: how a raw weight becomes an eigenvalue."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Self

if TYPE_CHECKING:
    import torch

#: In continuous time a mode e^{lambda t} is stable for lambda < 0, in discrete time lambda^t is
#: for |lambda| < 1.
TIMES = ("continuous", "discrete")


@dataclass(frozen=True, slots=True)
class AbstractReparam(ABC):
    """lambda = f(w): the real eigenvalue of a mode from its raw weight, in one of two times.

    Laws: f(inverse(lambda)) = lambda for every lambda that `contains` holds, to rounding in
    float64; f is differentiable where it is used; of a `stable` one every finite w gives a stable
    mode, and the error of a mode under a moved w is at most `modulus` of the move.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    #: The times in which it has a form, out of TIMES.
    times: ClassVar[tuple[str, ...]]
    #: Whether it is stable in the sense of StableSSM, Definition 3.2.
    stable: ClassVar[bool]

    time: str = "continuous"

    @abstractmethod
    def forward(self, w: torch.Tensor) -> torch.Tensor:
        """The eigenvalues f(w)."""

    @abstractmethod
    def inverse(self, lam: torch.Tensor) -> torch.Tensor:
        """A raw weight with f(w) = lambda; meaningless where `contains` is False."""

    @abstractmethod
    def contains(self, lam: torch.Tensor) -> torch.Tensor:
        """Which eigenvalues it can reach with a finite raw weight, as booleans."""

    @abstractmethod
    def modulus(self, beta: float) -> float:
        """The smallest g(beta) of Definition 3.2, sup_w |f(w)| sup_v ∫ |e^{f(v)t} - e^{f(w)t}| dt.

        v is at most beta from w. In discrete time, which the definition leaves out, it is the
        change of the kernel, sum_t |f(v)^t - f(w)^t|, over its size. Infinite where the
        reparameterization is not stable.
        """

    @property
    def scale_formula(self) -> str:
        """The gradient scale as a formula in w, in the time that it was made in; "" for none."""
        return ""

    def gradient_scale(self, w: torch.Tensor) -> torch.Tensor:
        """|f'| / f² in continuous time, |f'| / (1 - f)² in discrete time, in float64.

        Infinite on the boundary, unless f' is zero there. Numeric where nobody knows a closed form.
        """
        from memaudit.numerics.reparameterization import gradient_scale

        return gradient_scale(self.forward, w, time=self.time)

    def fitted(self, lam: torch.Tensor) -> Self:
        """The same form with constants that suit these eigenvalues; itself where it has none.

        Law: what it contains of them, the fitted one contains too.
        """
        del lam
        return self
