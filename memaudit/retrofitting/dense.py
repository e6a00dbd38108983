"""A recurrent matrix whose eigenvalues have a form: W = V D V⁻¹."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from memaudit.numerics.reparameterization import raw_domain
from memaudit.retrofitting.form import RetrofittedWeight, at_least_single, either, held, reached

if TYPE_CHECKING:
    from memaudit.reparam import AbstractReparam
    from memaudit.stored_decay import DenseDecay

#: Eigenvectors that are this nearly parallel lose too many digits.
WORST_CONDITION = 1e6
#: The change of basis I + E has |E| below this, so that three times the first condition is most.
TURN = 0.5
#: The most that is given away of the unit disc so that rounding leads no mode out of it.
MOST_APART = 1e-2


@dataclass(frozen=True, slots=True, eq=False)
class EigenForm:
    """W = V D V⁻¹ in real numbers: real modes first, then pairs, of which one each is listed.

    `sizes` are the |lambda| of all, `signs` those of the real ones, `angles` those of the pairs,
    `basis` is V (n,n) with columns of length one, or real and imaginary part of one.
    """

    sizes: Tensor
    signs: Tensor
    angles: Tensor
    basis: Tensor

    def modes(self, sizes: Tensor) -> Tensor:
        """D with other sizes."""
        return blocks(sizes, self.signs, self.angles)

    @property
    def condition(self) -> float:
        """The condition number of V, infinite where W has too few eigenvectors."""
        return float(torch.linalg.cond(self.basis).nan_to_num(nan=torch.inf))


def eigen_form(matrix: Tensor) -> EigenForm:
    """The form of a real matrix (n,n), in float64."""
    lam, vectors = torch.linalg.eig(matrix.detach().double())
    real = lam.imag == 0.0
    upper = lam.imag > 0.0
    vectors_of_pairs = vectors[:, upper]
    halves = torch.stack([vectors_of_pairs.real, vectors_of_pairs.imag], dim=2).flatten(1)
    return EigenForm(
        sizes=torch.cat([lam[real].abs(), lam[upper].abs()]),
        signs=torch.where(lam[real].real < 0.0, -1.0, 1.0).double(),
        angles=lam[upper].angle(),
        basis=torch.cat([vectors.real[:, real], halves], dim=1),
    )


def blocks(sizes: Tensor, signs: Tensor, angles: Tensor) -> Tensor:
    """D: real modes on the diagonal, pairs as blocks ((a, b), (-b, a))."""
    single, paired = sizes[: len(signs)] * signs, sizes[len(signs) :]
    cosines = (paired * angles.cos()).repeat_interleave(2)
    sines = torch.stack([paired * angles.sin(), torch.zeros_like(paired)], dim=1).flatten()
    beside = torch.cat([torch.zeros_like(single), sines])[: len(single) + len(sines) - 1]
    return torch.diag(torch.cat([single, cosines])) + _beside(beside) - _beside(beside).mT


def _beside(values: Tensor) -> Tensor:
    return torch.diag(values, 1)


def _length(turn: Tensor) -> Tensor:
    """The Euclidean length; squares of huge numbers must not overflow."""
    scale = turn.detach().abs().amax().clamp(min=1.0)
    return torch.linalg.vector_norm(turn / scale) * scale


def rounding_of_modes(found: EigenForm, dtype: torch.dtype) -> float:
    """How far the eigenvalues of V D V⁻¹ may be from D when it is stored in that dtype.

    By Bauer and Fike: the condition of V times the error of the product, which is that condition
    times the rounding of n terms. A turn makes the condition three times as large at most. More
    than a hundredth is not given away: a worse basis has no strict promise.
    """
    condition = (1.0 + TURN) / (1.0 - TURN) * found.condition
    return min(torch.finfo(dtype).eps * len(found.basis) * condition**2, MOST_APART)


class DenseWeight(RetrofittedWeight):
    """Raw sizes of the modes, angles of the pairs, a change of basis, and what is no matrix.

    The change of basis is bounded, so that no step, however large, makes eigenvectors parallel:
    the modes are always those of the form. It begins with none.
    """

    signs: Tensor
    basis: Tensor
    inverse_basis: Tensor
    witness: Tensor

    def __init__(self, decay: DenseDecay, form: AbstractReparam, stored: Tensor) -> None:
        super().__init__(form, stored)
        # The owner is no part of its parametrization: a tuple is not registered.
        self._owner = (decay.owner,)
        self._ways = (decay.matrix, decay.rest, decay.joined)
        self.begin_with(stored, self._inverted(stored))

    def made(self, *raw: Tensor) -> Tensor:
        # There is no solution of equations in half precision.
        sizes, angles, turn, rest = (one.to(at_least_single(one)) for one in raw)
        # Infinite angles and turns are none: a step may have been that large.
        angles, turn = (torch.where(one.isinf(), 0.0, one) for one in (angles, turn))
        bound = TURN / (TURN + _length(turn))
        change = torch.eye(len(turn), dtype=turn.dtype, device=turn.device) + turn * bound
        inner = torch.linalg.solve(change, change @ self._modes(sizes, angles), left=False)
        matrix = self.basis.to(inner) @ inner @ self.inverse_basis.to(inner)
        return self._ways[2](self._owner[0], matrix, rest).to(self.dtype_of(raw[0]))

    def forward(self, *raw: Tensor) -> Tensor:
        # The products of autocast, in half precision, would lead modes out.
        with torch.autocast(self.anchor.device.type, enabled=False):
            return self._stored(*raw)

    def _stored(self, *raw: Tensor) -> Tensor:
        kept = [(one == start).all() for one, start in zip(raw, self.starts(), strict=True)]
        # Of a GRU other weights decide too what the matrix is.
        # It may be in another dtype than the witness was by now.
        off = (self.matrix_of(self.anchor) - self.witness).abs()
        kept.append((off <= self.tolerance * self.witness.abs().amax()).all())
        return either(torch.stack(kept).all(), self.anchor, self.made(*raw))

    def reaches(self, stored: Tensor) -> bool:
        found = eigen_form(self.matrix_of(stored.detach().double()))
        return bool(reached(self.form, found.sizes).all()) and found.condition < WORST_CONDITION

    def right_inverse(self, stored: Tensor) -> tuple[Tensor, ...]:
        raw = self._inverted(stored)
        self.begin_with(stored, raw)
        return raw

    def matrix_of(self, stored: Tensor) -> Tensor:
        """The matrix of a stored weight, with the other weights that the owner has now."""
        return self._ways[0](self._owner[0], stored)

    def _modes(self, sizes: Tensor, angles: Tensor) -> Tensor:
        return blocks(self.form.forward(held(sizes, self.limits)), self.signs, angles)

    def _inverted(self, stored: Tensor) -> tuple[Tensor, ...]:
        matrix = self.matrix_of(stored.detach().double())
        found, dtype = eigen_form(matrix), at_least_single(stored)
        sizes = self.form.inverse(found.sizes).to(dtype)
        self.limits = (-torch.inf, torch.inf)
        if self.form.stable:
            apart = rounding_of_modes(found, stored.dtype)
            self.limits = raw_domain(self.form.forward, sizes, time=self.form.time, apart=apart)
        self.register_buffer("signs", found.signs.to(dtype))
        self.register_buffer("basis", found.basis.to(dtype))
        self.register_buffer("inverse_basis", torch.linalg.inv(found.basis).to(dtype).contiguous())
        self.register_buffer("witness", self.matrix_of(stored.detach()))
        self.tolerance = 4.0 * torch.finfo(stored.dtype).eps
        turn = torch.zeros(len(matrix), len(matrix), dtype=dtype, device=stored.device)
        rest = self._ways[1](stored.detach()).to(dtype)
        return sizes, found.angles.to(dtype), turn, rest
