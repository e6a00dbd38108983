"""Diagonal plus low-rank systems by the bilinear rule, with dense matrices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from memaudit.errors import SourceError
from memaudit.numerics.linear import DenseBank, System, eigenvalues_of

#: Beyond this condition number fewer than three digits of the readout are left in float64.
WORST_CONDITION = 1e13


@dataclass(frozen=True, slots=True)
class DplrBank(System):
    """Full state matrices (H,2N,2N) with `inputs` (H,2N), `readout` (C,H,2N) and D (C,H).

    `eigenvalues` may be known beforehand, in a better precision than the matrix. `condition` is the
    worst condition number of the equations that gave the readout; 1 when there were none.
    """

    matrix: Tensor
    inputs: Tensor
    readout: Tensor
    eigenvalues: Tensor | None = None
    direct: Tensor | None = None
    condition: float = 1.0
    banked: ClassVar[bool] = True

    @property
    def width(self) -> int:
        """Inputs."""
        return self.matrix.shape[0]

    def modes(self) -> Tensor:
        return eigenvalues_of(self.matrix) if self.eigenvalues is None else self.eigenvalues

    def kernel(self, start: int, stop: int) -> Tensor:
        return self._dense().kernel(start, stop)

    def reach(self, start: int, stop: int) -> Tensor:
        return self._dense().reach(start, stop)

    def transition(self) -> Tensor:
        return self._dense().transition()

    def convolve(self, u: Tensor) -> Tensor:
        return self._dense().convolve(u)

    def in_chunks(self, u: Tensor) -> Tensor:
        return self._dense().in_chunks(u)

    def step_through(self, u: Tensor) -> Tensor:
        return self._dense().step_through(u)

    def lightly(self, u: Tensor) -> Tensor:
        return self._dense().lightly(u)

    def _dense(self) -> DenseBank:
        return DenseBank(self.matrix, self.inputs, self.readout, self.direct)


def discretize_dplr(
    rates: Tensor, steps: Tensor, inputs: Tensor, *, left: Tensor, right: Tensor
) -> tuple[Tensor, Tensor]:
    """The matrix and the inputs of one step of x' = (diag(rates) - P Qᵀ) x + B u.

    Everything over both of each conjugate pair: rates and inputs (H,2N), left and right (R,H,2N).
    With M = diag(2 / step): (M - A)^-1 (M + A), and (M - A)^-1 2B.
    """
    full = torch.diag_embed(rates) - torch.einsum("rhn,rhm->hnm", left, right)
    two = torch.diag_embed((2.0 / steps).expand(rates.shape).to(rates.dtype))
    below = two - full
    matrix = torch.linalg.solve(below, two + full)
    return matrix, torch.linalg.solve(below, 2.0 * inputs.unsqueeze(-1)).squeeze(-1)


def restore_readout(
    matrix: Tensor, readout: Tensor, length: int, *, checked: bool = True
) -> tuple[Tensor, float]:
    """C from the stored C (I - A^length), and the condition number; E_WEIGHTS if none can be.

    Unless `checked`, nothing is refused, and the condition number is not asked for.
    """
    if length < 0:
        fact = f"the stored length of the kernel is {length}"
        raise SourceError("E_WEIGHTS", fact, hint="save the model again", stage="weights")
    if length == 0:
        return readout, 1.0
    eye = torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)
    gap = eye - torch.linalg.matrix_power(matrix, length)
    stored = readout.transpose(0, 1).mT
    if not checked:
        return torch.linalg.solve_ex(gap.mT, stored)[0].mT.transpose(0, 1), torch.nan
    tame = bool(gap.isfinite().all())
    condition = float(torch.linalg.cond(gap.detach()).max()) if tame else torch.inf
    # A comparison that NaN fails too.
    if not condition <= WORST_CONDITION:
        raise SourceError(
            "E_WEIGHTS",
            f"the readout cannot be restored: I - A^{length} is singular "
            f"(condition number {condition:.1e}), some mode returns or grows within {length} steps",
            hint="take a checkpoint of a stable model, or one with another kernel length",
            stage="weights",
        )
    return torch.linalg.solve(gap.mT, stored).mT.transpose(0, 1), condition
