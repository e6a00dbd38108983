"""A weight with one number for every mode, in another form."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from memaudit.numerics.reparameterization import raw_domain
from memaudit.retrofitting.form import RetrofittedWeight, at_least_single, either, held, reached

if TYPE_CHECKING:
    from memaudit.reparam import AbstractReparam
    from memaudit.stored_decay import DiagonalDecay

EVERYWHERE = (-math.inf, math.inf)


class DiagonalWeight(RetrofittedWeight):
    """stored = law⁻¹(form(raw)): the eigenvalues of the form, in the way of the checkpoint.

    Of complex numbers the imaginary part is left as it is. A stable form is held inside of what
    its numbers can tell from the boundary.
    """

    def __init__(self, decay: DiagonalDecay, form: AbstractReparam, stored: Tensor) -> None:
        super().__init__(form, stored)
        self.law = decay.law
        self.part = decay.part
        self.limits = EVERYWHERE
        self.begin_with(stored, self._inverted(stored))

    def made(self, *raw: Tensor) -> Tensor:
        (given,) = raw
        numbers = held(numbers_of(given, self.part), self.limits)
        return with_numbers(given, self._stored(numbers), self.part).to(self.dtype_of(given))

    def forward(self, *raw: Tensor) -> Tensor:
        return either(raw[0] == self.starts()[0], self.anchor, self.made(*raw))

    def reaches(self, stored: Tensor) -> bool:
        return bool(reached(self.form, self._modes(stored)).all())

    def right_inverse(self, stored: Tensor) -> tuple[Tensor, ...]:
        raw = self._inverted(stored)
        self.begin_with(stored, raw)
        return raw

    def _stored(self, numbers: Tensor) -> Tensor:
        return self.law.inverse(self.form.forward(numbers))

    def _modes(self, stored: Tensor) -> Tensor:
        return self.law.forward(numbers_of(widened(stored), self.part))

    def _inverted(self, stored: Tensor) -> tuple[Tensor, ...]:
        lam, wide = self._modes(stored), widened(stored)
        raw = with_numbers(wide, self.form.inverse(lam), self.part).to(at_least_single(stored))
        if self.form.stable:
            numbers = numbers_of(raw, self.part)
            self.limits = raw_domain(
                self.form.forward,
                numbers,
                time=self.form.time,
                stored=self._stored,
                apart=torch.finfo(stored.dtype).eps,
            )
        return (raw,)


def widened(stored: Tensor) -> Tensor:
    """In double precision, without its gradient."""
    return stored.detach().to(torch.complex128 if stored.is_complex() else torch.float64)


def numbers_of(tensor: Tensor, part: str) -> Tensor:
    """The numbers that decay, out of a stored or a raw tensor."""
    if part == "real":
        return tensor.real
    return tensor[..., 0] if part == "pairs" else tensor


def with_numbers(tensor: Tensor, numbers: Tensor, part: str) -> Tensor:
    """The tensor with other numbers in their place."""
    if part == "real":
        return torch.complex(numbers, tensor.imag)
    return torch.stack([numbers, tensor[..., 1]], dim=-1) if part == "pairs" else numbers
