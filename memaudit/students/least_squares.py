"""Students that fit a kernel by least squares instead of training."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from memaudit.errors import ArgumentError
from memaudit.students.diagonal import DiagonalStudent
from memaudit.target import AbstractKernelTarget

if TYPE_CHECKING:
    from memaudit.reparam import AbstractReparam


def fitted(
    target: AbstractKernelTarget | str,
    size: int,
    *,
    reparam: str | AbstractReparam = "direct",
    largest: float = 1.0,
    steps: int = 400,
    ridge: float = 0.01,
) -> DiagonalStudent:
    """The sum of `size` exponentials next to the kernel of a linear target over `steps` lags.

    With rho(t) = sum_i a_i lambda_i^t this is the approximation of rho(log t) by polynomials on
    (0, 1]: the modes stand at the Chebyshev nodes of (0, `largest`), the a_i solve the least
    squares with a penalty of ridge² |a|², without which they grow beyond all bounds with the size.
    """
    from memaudit.targets.naming import target as named

    goal = named(target) if isinstance(target, str) else target
    if not isinstance(goal, AbstractKernelTarget):
        raise ArgumentError(f"the target {goal} has no kernel", hint="train a student by `fit`")
    if size < 1 or steps < 1:
        raise ArgumentError(f"{size} modes are to fit {steps} lags", hint="take at least one each")
    angles = (2 * torch.arange(size, dtype=torch.float64) + 1) * torch.pi / (2 * size)
    modes = largest * (1 + torch.cos(angles)) / 2
    t = torch.arange(steps, dtype=torch.float64)
    table = torch.cat([modes ** t[:, None], ridge * torch.eye(size, dtype=torch.float64)])
    wanted = torch.cat([goal.kernel(steps), torch.zeros(size, dtype=torch.float64)])
    # By singular values: where columns are nearly dependent the default driver may leave more
    # than it started with.
    amplitudes = torch.linalg.lstsq(table, wanted[:, None], driver="gelsd").solution[:, 0]
    return DiagonalStudent(modes, reparam=reparam, amplitudes=amplitudes)
