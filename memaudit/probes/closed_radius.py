"""Stability radii in closed form: how far direct weights stand from the boundary."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from memaudit.numerics.perturbation.dense import real_radius

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memaudit.contracts import AbstractPerturbable

#: Moduli that agree so well are the same.
SAME = 1e-9
#: A weight whose moves of this size reach no boundary, such as a step size, never reaches it.
FAR = 16.0
#: More modes than these are not compared one by one.
MOST = 4096


def closed_radius(
    copies: AbstractPerturbable, names: Sequence[str], ball: str
) -> tuple[float | None, str]:
    """The exact radius of a group of weights, and its formula; None where none is known.

    A formula needs one weight that takes modes to the boundary: the modes in discrete time, their
    rates in continuous time, or a matrix whose eigenvalues they are. The others must reach none.
    """
    movers = [name for name in names if _Weight(copies, name).moves()]
    for name in movers:
        weight = _Weight(copies, name)
        if all(_Weight(copies, other).is_harmless() for other in movers if other != name):
            radius, formula = weight.radius(ball)
            if radius is not None:
                return radius, formula
    return None, ""


@dataclass(frozen=True, slots=True)
class _Weight:
    """One weight by itself; all others are as they are."""

    copies: AbstractPerturbable
    name: str

    @property
    def value(self) -> torch.Tensor:
        return self.copies.weights[self.name].double()

    def sizes(self, value: torch.Tensor) -> torch.Tensor:
        """The moduli of all modes with that value."""
        with torch.no_grad():
            found = self.copies.modes({self.name: value[None]})
        return torch.cat([modes[0].flatten().abs() for modes in found.values()])

    def moves(self) -> bool:
        """Whether another value gives modes of another size."""
        return bool((self.sizes(self.value) - self.sizes(self.value - 0.5)).abs().amax() > SAME)

    def is_harmless(self) -> bool:
        """Whether not even a far move in one direction takes a mode to the boundary."""
        return all(bool((self.sizes(self.value + far) < 1.0).all()) for far in (-FAR, FAR))

    def radius(self, ball: str) -> tuple[float | None, str]:
        form, value = self.copies.roles[self.name].form, self.value
        sizes = self.sizes(value)
        if form == "diagonal" and _alike(value.flatten().abs(), sizes):
            return max(0.0, float(1.0 - sizes.amax())), "min(1 - |lambda|)"
        if form == "diagonal" and self._holds_rates():
            return max(0.0, float(-value.amax())), "min(-Re lambda)"
        square = form == "matrix" and value.ndim == 2 and value.shape[0] == value.shape[1]
        if ball == "spectral" and square and _alike(torch.linalg.eigvals(value).abs(), sizes):
            return real_radius(value.cpu().numpy()), "1 / sup mu_R((e^it - W)^-1)"
        return None, ""

    def _holds_rates(self) -> bool:
        """Whether zero puts every mode on the boundary, and less than zero inside."""
        value = self.value
        on_edge, inside = self.sizes(torch.zeros_like(value)), self.sizes(-torch.ones_like(value))
        return bool(((on_edge - 1.0).abs() < SAME).all() and (inside < 1.0).all())


def _alike(first: torch.Tensor, second: torch.Tensor) -> bool:
    """Whether two sets of numbers are the same; conjugate pairs may be stored once."""
    if max(len(first), len(second)) > MOST:
        return False
    apart = (first[:, None] - second[None, :]).abs()
    return bool(apart.amin(0).amax() < SAME and apart.amin(1).amax() < SAME)
