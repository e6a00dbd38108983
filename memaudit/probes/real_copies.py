"""Complex weights as pairs of real numbers, which is how they are moved."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from memaudit.contracts import AbstractPerturbable

if TYPE_CHECKING:
    from collections.abc import Mapping


class RealCopies(AbstractPerturbable):
    """Another model, whose complex weights have a last axis of real and imaginary part.

    A complex diagonal moves by the modulus of its numbers; other weights move in both parts.
    """

    def __init__(self, copies: AbstractPerturbable) -> None:
        self._copies = copies
        self._complex = frozenset(n for n, w in copies.weights.items() if w.is_complex())
        self.weights = {
            name: torch.view_as_real(weight.resolve_conj()) if weight.is_complex() else weight
            for name, weight in copies.weights.items()
        }
        self.roles = {
            name: replace(role, form="pairs")
            if name in self._complex and role.form == "diagonal"
            else role
            for name, role in copies.roles.items()
        }
        self.differentiable = copies.differentiable

    @property
    def execution(self) -> str:
        """How the copies are run."""
        return getattr(self._copies, "execution", "")

    def respond(self, inputs: torch.Tensor, moved: Mapping[str, torch.Tensor]) -> torch.Tensor:
        return self._copies.respond(inputs, self._stored(moved))

    def respond_fan(
        self,
        inputs: torch.Tensor,
        directions: Mapping[str, torch.Tensor],
        sizes: torch.Tensor,
    ) -> torch.Tensor:
        return self._copies.respond_fan(inputs, self._stored(directions), sizes)

    def modes(self, moved: Mapping[str, torch.Tensor]) -> Mapping[str, torch.Tensor]:
        return self._copies.modes(self._stored(moved))

    def _stored(self, moved: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return {
            name: torch.view_as_complex(value.contiguous()) if name in self._complex else value
            for name, value in moved.items()
        }


def real_copies(copies: AbstractPerturbable) -> AbstractPerturbable:
    """The model itself where no weight is complex."""
    some = any(weight.is_complex() for weight in copies.weights.values())
    return RealCopies(copies) if some else copies
