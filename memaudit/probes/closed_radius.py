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
#: More modes than these are not compared one by one; larger matrices take too long.
MOST, LARGEST_MATRIX = 4096, 16
#: Rates that an exact step keeps inside; one of Euler leaves the circle on the other side.
RATES = (0.1, 1.0, 8.0, 64.0)
Closed = tuple[float | None, str]


def closed_radius(copies: AbstractPerturbable, names: Sequence[str], ball: str) -> Closed:
    """The exact radius of a group of weights, and its formula; None where none is known.

    Every weight that can take a mode to the boundary needs a formula of its own, in which it makes
    its modes alone: as they are in discrete time, as their rates in continuous time, or as a
    matrix whose eigenvalues they are. The radius of all is the smallest.
    """
    movers = [weight for name in names if (weight := _Weight(copies, name)).moves()]
    dangerous = [weight for weight in movers if not weight.is_harmless()]
    found = [weight.radius(ball) for weight in dangerous]
    if not found or any(radius is None for radius, _ in found):
        return None, ""
    return min(found, key=lambda pair: pair[0] or 0.0)


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
        found = self.copies.modes({self.name: value[None]})
        return torch.cat([modes[0].flatten().abs() for modes in found.values()])

    def moved_modes(self) -> torch.Tensor:
        """Which modes have another size with another value."""
        value = self.value
        with torch.no_grad():
            now = self.sizes(value)
            others = [self.sizes(value - step) for step in (0.5, 0.3)]
        return torch.stack([(now - other).abs() > SAME for other in others]).any(0)

    def moves(self) -> bool:
        """Whether there is such a mode."""
        return bool(self.moved_modes().any())

    def is_harmless(self) -> bool:
        """Whether not even a far move in one direction takes a mode to the boundary."""
        value = self.value
        with torch.no_grad():
            found = [self.sizes(value + far)[self.moved_modes()] for far in (-FAR, FAR)]
        return all(bool((sizes < 1.0).all()) for sizes in found)

    def radius(self, ball: str) -> Closed:
        """The distance of this weight alone."""
        form, value, moved = self.copies.roles[self.name].form, self.value, self.moved_modes()
        with torch.no_grad():
            sizes = self.sizes(value)[moved]
        if form in ("diagonal", "pairs") and self._holds_modes(moved):
            return max(0.0, float(1.0 - sizes.amax())), "min(1 - |lambda|)"
        if form in ("diagonal", "pairs") and self._holds_rates(moved):
            return max(0.0, float(-value[self._moving_entries()].amax())), "min(-Re lambda)"
        square = form == "matrix" and value.ndim == 2 and value.shape[0] == value.shape[1]
        small = square and len(value) <= LARGEST_MATRIX
        if ball == "spectral" and small and _alike(torch.linalg.eigvals(value).abs(), sizes):
            return real_radius(value.cpu().numpy()), "1 / sup mu_R((e^it - W)^-1)"
        return None, ""

    def _holds_modes(self, moved: torch.Tensor) -> bool:
        """Whether its numbers are the modes themselves, whatever they are."""
        pairs = self.copies.roles[self.name].form == "pairs"
        for value in (self.value, 0.7 * self.value):
            own = torch.linalg.vector_norm(value, dim=-1) if pairs else value.abs()
            with torch.no_grad():
                if not _alike(own.flatten(), self.sizes(value)[moved]):
                    return False
        return True

    def _holds_rates(self, moved: torch.Tensor) -> bool:
        """Whether zero puts every mode on the boundary, and anything less inside."""
        zero = torch.zeros_like(self.value)
        with torch.no_grad():
            on_edge = self.sizes(zero)[moved]
            inside = [self.sizes(zero - rate)[moved] for rate in RATES]
        held = all(bool((sizes < 1.0).all()) for sizes in inside)
        return held and bool(((on_edge - 1.0).abs() < SAME).all())

    def _moving_entries(self) -> torch.Tensor:
        """The numbers of the weight that change the size of a mode, such as real parts."""
        value = self.value.clone().requires_grad_()
        with torch.enable_grad():
            (slope,) = torch.autograd.grad(self.sizes(value).sum(), value)
        return slope.abs() > SAME * slope.abs().amax()


def _alike(first: torch.Tensor, second: torch.Tensor) -> bool:
    """Whether two sets of numbers are the same; conjugate pairs may be stored once."""
    if not 0 < max(len(first), len(second)) <= MOST:
        return False
    apart = (first[:, None] - second[None, :]).abs()
    return bool(apart.amin(0).amax() < SAME and apart.amin(1).amax() < SAME)
