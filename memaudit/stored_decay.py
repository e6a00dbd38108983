"""The contract of a retrofit: which stored weights make the modes of a layer, and how."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch
    from torch import nn

    from memaudit.reparam import AbstractReparam

#: Which numbers of the stored tensor the law is about: all of them, the real part of complex
#: numbers, or the first of every pair (real, imaginary) on the last axis.
PARTS = ("all", "real", "pairs")


@dataclass(frozen=True, slots=True, eq=False)
class DiagonalDecay:
    """One number for every mode: lambda = law(stored), in the time of the law.

    Laws: `owner` has a parameter `name`; its numbers, and no others, decide through `law` alone
    how fast the modes of the layer decay, up to step sizes and gates, which keep a stable mode
    stable; the imaginary parts of complex numbers may be anything. `note` is a sentence for what
    the law does not promise.
    """

    layer: str
    cell: str
    owner: nn.Module
    name: str
    law: AbstractReparam
    part: str = "all"
    note: str = ""


def _whole_matrix(owner: nn.Module, stored: torch.Tensor) -> torch.Tensor:
    del owner
    return stored


def _no_rest(stored: torch.Tensor) -> torch.Tensor:
    return stored[:0]


def _matrix_alone(owner: nn.Module, matrix: torch.Tensor, rest: torch.Tensor) -> torch.Tensor:
    del owner, rest
    return matrix


@dataclass(frozen=True, slots=True, eq=False)
class DenseDecay:
    """A whole matrix whose eigenvalues are the modes of one step at rest, in discrete time.

    Laws: `matrix(owner, stored)` (n,n) has these modes as its eigenvalues, with the other weights
    that the owner has by then; `rest(stored)` are the numbers that the matrix does not use, perhaps
    none; `joined(owner, matrix, rest)` is the stored tensor with that matrix: the inverse of the
    two, and differentiable. Without these three the stored tensor is the matrix.
    """

    layer: str
    cell: str
    owner: nn.Module
    name: str
    matrix: Callable[[nn.Module, torch.Tensor], torch.Tensor] = _whole_matrix
    rest: Callable[[torch.Tensor], torch.Tensor] = _no_rest
    joined: Callable[[nn.Module, torch.Tensor, torch.Tensor], torch.Tensor] = _matrix_alone
    note: str = ""


@dataclass(frozen=True, slots=True)
class NoDecay:
    """A recurrent layer whose modes cannot be put into another form, with the reason."""

    layer: str
    cell: str
    reason: str


StoredDecay = DiagonalDecay | DenseDecay | NoDecay
