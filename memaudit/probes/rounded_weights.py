"""The weights of a model that a number format is applied to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from memaudit.numerics.perturbation.balls import BALLS, size
from memaudit.numerics.rounding import rounded
from memaudit.probes.standing_in import live_tensors, place

if TYPE_CHECKING:
    from collections.abc import Mapping

    from memaudit.contracts import AbstractPerturbable, AbstractSubject

ALL_ROUNDED = "nothing says which weights are recurrent: all of them were rounded"
NONE_RECURRENT = "no weight of the model is recurrent"
NO_WEIGHTS = "the model has no weights that could be rounded"
NOT_LIVE = "eigenvalues and memory were not measured: the weights in use are not within reach"


@dataclass(frozen=True, slots=True, eq=False)
class RoundedWeights:
    """Weights and how they act; `live` are the subject's own tensors, None when out of reach.

    `copies` answers with other weights, None when the model cannot do that.
    """

    tensors: Mapping[str, torch.Tensor]
    forms: Mapping[str, str]
    copies: AbstractPerturbable | None
    live: Mapping[str, torch.Tensor] | None
    note: str = ""

    def rounded(self, name: str) -> dict[str, torch.Tensor]:
        """All of them in a format."""
        return {key: rounded(tensor, name) for key, tensor in self.tensors.items()}

    def betas(self, values: Mapping[str, torch.Tensor]) -> dict[str, float]:
        """The size of the move in every ball, the largest over the tensors."""
        moves = {key: _move(self.tensors[key], value) for key, value in values.items()}
        if not all(bool(move.isfinite().all()) for move in moves.values()):
            return dict.fromkeys(BALLS, torch.inf)
        return {
            ball: max(_size(move, self.forms[key], ball) for key, move in moves.items())
            for ball in BALLS
        }

    def overflows(self, values: Mapping[str, torch.Tensor]) -> int:
        """How many numbers were finite and are not any more."""
        return sum(
            int((self.tensors[key].isfinite() & ~value.isfinite()).sum())
            for key, value in values.items()
        )


def choose(subject: AbstractSubject, weights: str) -> RoundedWeights:
    """The recurrent weights of a subject, or "all"; tied ones once."""
    copies = subject.perturbable()
    if copies is None:
        own = {n: t for n, t in subject.weights().items() if isinstance(t, torch.Tensor)}
        floats = _distinct({n: t for n, t in own.items() if _rounds(t)})
        forms = {name: "matrix" if t.ndim > 1 else "vector" for name, t in floats.items()}
        return RoundedWeights(floats, forms, None, floats, ALL_ROUNDED if floats else NO_WEIGHTS)
    roles = copies.roles
    asked = {
        name: tensor.detach()
        for name, tensor in copies.weights.items()
        if _rounds(tensor) and (weights == "all" or roles[name].group == "recurrent")
    }
    chosen = _distinct(asked)
    forms = {name: roles[name].form for name in chosen}
    live = live_tensors(subject, chosen)
    note = "" if chosen and live is not None else NOT_LIVE if chosen else NONE_RECURRENT
    return RoundedWeights(chosen, forms, copies, live, note)


def _rounds(tensor: torch.Tensor) -> bool:
    return bool(tensor.numel()) and (tensor.is_floating_point() or tensor.is_complex())


def _distinct(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """One name for every tensor, the first."""
    first: dict[object, str] = {}
    for name, tensor in tensors.items():
        first.setdefault(place(tensor), name)
    return {name: tensors[name] for name in first.values()}


def _size(move: torch.Tensor, form: str, ball: str) -> float:
    """The size of one move; a complex matrix is as large as its real form, twice as wide."""
    if move.is_complex():
        if ball == "spectral" and form == "matrix" and move.ndim > 1:
            re, im = move.real.flatten(1), move.imag.flatten(1)
            move = torch.cat([torch.cat([re, -im], 1), torch.cat([im, re], 1)])
        else:
            move = move.abs()
    return float(size(move[None], form, ball)[0])


def _move(before: torch.Tensor, after: torch.Tensor) -> torch.Tensor:
    """The difference in double precision."""
    wide = torch.complex128 if before.is_complex() else torch.float64
    return after.to(wide) - before.to(wide)
