"""What is searched: the weights that move, their ball, and the error that is to be large."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from memaudit.numerics.perturbation import balls

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from memaudit.perturbable import Role

    Moves = dict[str, torch.Tensor]

#: A pass with gradients keeps every step of the recurrence: it takes a share of the copies.
GRADIENT_SHARE = 4


@dataclass(frozen=True, slots=True)
class Problem:
    """The weights that move, the ball that they move in, and the error of the moved copies.

    Every weight moves within its own ball of the same beta. `error` takes the values (K,…) of the
    moved weights and gives the errors (K,), infinite where they are not finite; copy k depends on
    entry k alone. `batch` copies are evaluated at a time. `fan`, where there is one, gives the
    errors (S,K) of K directions at S betas: the same numbers by a shorter way.
    """

    weights: Mapping[str, torch.Tensor]
    roles: Mapping[str, Role]
    ball: str
    error: Callable[[Mapping[str, torch.Tensor]], torch.Tensor]
    differentiable: bool = True
    batch: int = 64
    fan: Callable[[Moves, torch.Tensor], torch.Tensor] | None = None

    def drawn(self, count: int, generator: torch.Generator) -> Moves:
        """Random directions (K,…) of every weight, each of size 1."""
        return {
            name: balls.draw(
                weight.shape,
                self.roles[name].form,
                self.ball,
                count,
                generator,
                dtype=_wide(weight.dtype),
                device=weight.device,
            )
            for name, weight in self.weights.items()
        }

    def uphill(self, gradients: Moves) -> Moves:
        """The directions of size 1 along which the error rises most, to first order."""
        return {
            name: balls.steepest(gradient, self.roles[name].form, self.ball)
            for name, gradient in gradients.items()
        }

    def moved(self, directions: Moves, betas: torch.Tensor) -> Moves:
        """The values (K,…) of the weights, `betas` (K,) along the directions."""
        return {name: self._moved(name, way, betas) for name, way in directions.items()}

    def errors(self, directions: Moves, betas: torch.Tensor) -> torch.Tensor:
        """The errors (K,) of K moves, on the CPU and in float64."""
        with torch.no_grad():
            parts = [
                self.error(self.moved(_rows(directions, rows), betas[rows])).double().cpu()
                for rows in torch.arange(len(betas)).split(max(self.batch, 1))
            ]
        return _endless(torch.cat(parts))

    def fanned(self, directions: Moves, betas: torch.Tensor) -> torch.Tensor:
        """The errors (S,K) of every direction at every beta, on the CPU and in float64."""
        count = len(next(iter(directions.values())))
        if self.fan is None:
            rows = torch.arange(len(betas) * count)
            parts = [
                self.errors(_rows(directions, some % count), betas[some // count])
                for some in rows.split(max(self.batch, 1))
            ]
            return torch.cat(parts).reshape(len(betas), count)
        few = betas.split(max(self.batch, 1))
        which = torch.arange(count).split(max(self.batch // max(len(few[0]), 1), 1))
        with torch.no_grad():
            found = [
                torch.cat([self.fan(_rows(directions, w), b).double().cpu() for b in few])
                for w in which
            ]
        return _endless(torch.cat(found, 1))

    def slopes(self, directions: Moves, betas: torch.Tensor) -> tuple[torch.Tensor, Moves]:
        """The errors (K,) and their gradients by the directions, zero where they are not finite."""
        parts = [
            self._slopes(_rows(directions, rows), betas[rows])
            for rows in torch.arange(len(betas)).split(max(self.batch // GRADIENT_SHARE, 1))
        ]
        gradients = {name: torch.cat([part[1][name] for part in parts]) for name in directions}
        return _endless(torch.cat([part[0] for part in parts])), gradients

    def _slopes(self, directions: Moves, betas: torch.Tensor) -> tuple[torch.Tensor, Moves]:
        with torch.enable_grad():
            leaves = {name: way.detach().requires_grad_() for name, way in directions.items()}
            errors = self.error(self.moved(leaves, betas))
            # Infinity has no slope. The zeros are for an error that depends on no weight at all.
            total = errors[torch.isfinite(errors)].sum()
            total = total + sum(0.0 * leaf.sum() for leaf in leaves.values())
            found = torch.autograd.grad(total, list(leaves.values()))
        finite = (gradient.nan_to_num(0.0, 0.0, 0.0) for gradient in found)
        return errors.detach().double().cpu(), dict(zip(leaves, finite, strict=True))

    def _moved(self, name: str, way: torch.Tensor, betas: torch.Tensor) -> torch.Tensor:
        weight = self.weights[name].detach()
        lengths = betas.to(way).reshape(-1, *[1] * weight.ndim)
        return (weight + lengths * way).to(weight.dtype)


def _rows(directions: Moves, rows: torch.Tensor) -> Moves:
    return {name: way[rows.to(way.device)] for name, way in directions.items()}


def _endless(errors: torch.Tensor) -> torch.Tensor:
    return torch.where(torch.isfinite(errors), errors, torch.inf)


def _wide(dtype: torch.dtype) -> torch.dtype:
    """Directions are float32 at least: a step of half precision is a move of its own."""
    return torch.float64 if dtype == torch.float64 else torch.float32
