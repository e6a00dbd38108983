"""A form of continuous time, seen once per step."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Self

from memaudit.numerics.reparameterization import modulus
from memaudit.reparam import AbstractReparam

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class Stepped(AbstractReparam):
    """e^{f(w)}: the size of a discrete mode whose rate over one step is f(w)."""

    name: ClassVar[str] = "stepped"
    summary: ClassVar[str] = "a continuous form over one step"
    times: ClassVar[tuple[str, ...]] = ("discrete",)
    stable: ClassVar[bool] = True

    time: str = "discrete"
    inner: AbstractReparam | None = None

    @property
    def _inner(self) -> AbstractReparam:
        assert self.inner is not None
        return self.inner

    def forward(self, w: torch.Tensor) -> torch.Tensor:
        """The eigenvalues."""
        return self._inner.forward(w).exp()

    def inverse(self, lam: torch.Tensor) -> torch.Tensor:
        """The raw weights."""
        return self._inner.inverse(lam.log())

    def contains(self, lam: torch.Tensor) -> torch.Tensor:
        """Which sizes it reaches."""
        positive = lam > 0.0
        return positive & self._inner.contains(lam.clamp(min=1e-300).log())

    def modulus(self, beta: float) -> float:
        """By search."""
        return modulus(self.forward, beta, time=self.time)

    def fitted(self, lam: torch.Tensor) -> Self:
        """With constants for these sizes."""
        return replace(self, inner=self._inner.fitted(lam[lam > 0.0].log()))
