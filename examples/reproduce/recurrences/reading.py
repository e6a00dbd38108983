"""Reading a sequence back from the last state of a diagonal recurrence, in two ways."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from examples.reproduce.data import mnist
from memaudit.numerics.linear import Modal
from memaudit.recall.linear import Decomposition

#: Tokens of an image, read line by line.
TOKENS = 784
#: "complex" multiplies the state by V^+ and drops the imaginary part, as the paper writes it;
#: "real" knows that the inputs are real: N complex numbers are 2 N equations then.
WAYS = ("complex", "real")


def images(count: int) -> Tensor:
    """Test images of MNIST as sequences (784,count) between 0 and 1."""
    return mnist().test_x[:count].reshape(count, TOKENS).double().mT / 255


@dataclass(frozen=True, slots=True, eq=False)
class Reader:
    """The way back from a state to its inputs, through one decomposition of V."""

    parts: Decomposition
    way: str

    @classmethod
    def of(cls, matrix: Tensor, *, way: str) -> Reader:
        """For the map (N,L) from inputs to states; `way` is one of WAYS."""
        if way == "real":
            return cls(Decomposition.of(matrix), way)
        return cls(Decomposition(*torch.linalg.svd(matrix, full_matrices=False)), way)

    def read(self, state: Tensor) -> Tensor:
        """The inputs (L,B) of complex states (N,B)."""
        if self.way == "real":
            return self.parts.reconstruct(torch.cat([state.real, state.imag]))
        kept, values = self.parts.kept(), self.parts.values
        inverse = torch.where(kept, 1.0 / torch.where(kept, values, 1.0), 0.0)
        return (self.parts.right.mH @ (inverse[:, None] * (self.parts.left.mH @ state))).real

    def log_condition(self) -> float:
        """log10 cond(VᵀV) = 2 log10(s_max / s_min), infinite for more inputs than equations.

        Beyond about 31 the smallest singular value is nothing but rounding.
        """
        if self.parts.left.shape[0] < self.parts.right.shape[1]:
            return math.inf
        values = self.parts.values
        return 2 * math.log10(float(values[0] / values[-1]))


def stepped_state(modes: Tensor, u: Tensor) -> Tensor:
    """The last state (N,B), by stepping: what V u must be."""
    ones = torch.ones(len(modes), 1, dtype=modes.dtype)
    parts = [
        Modal(modes, ones, factor * torch.eye(len(modes), dtype=modes.dtype))
        for factor in (1.0, -1.0j)  # the readout is real: the imaginary part is that of -i x
    ]
    real, imaginary = (part.run(u.mT.unsqueeze(-1), "stepping")[:, -1].mT for part in parts)
    return torch.complex(real, imaginary)


def relative(found: Tensor, wanted: Tensor) -> float:
    """The mean over sequences of |found - wanted| / |wanted|."""
    return float(((found - wanted).norm(dim=0) / wanted.norm(dim=0)).mean())


def portion(found: Tensor, wanted: Tensor, tokens: slice) -> float:
    """The same over some of the tokens, all sequences together: some are empty there."""
    return float((found - wanted)[tokens].norm() / wanted[tokens].norm())
