"""Linear target functionals y_t = sum_s rho(s) u_{t-s}, by their kernels rho."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from memaudit.numerics.linear.convolution import convolve

if TYPE_CHECKING:
    pass


def filtered(inputs: torch.Tensor, kernel: torch.Tensor) -> torch.Tensor:
    """The answers (B,T,M) to inputs (B,T,D) in float64; a shorter kernel ends in zeros."""
    u = inputs.to(torch.float64)
    steps = u.shape[1]
    rho = torch.zeros(steps, *kernel.shape[1:], dtype=torch.float64, device=u.device)
    rho[: len(kernel)] = kernel[:steps].to(u.device)
    return convolve(u, rho.permute(1, 2, 0)).sum(-1)
