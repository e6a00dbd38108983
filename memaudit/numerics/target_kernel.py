"""Linear target functionals y_t = sum_s rho(s) u_{t-s}, by their kernels rho."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from memaudit.errors import ArgumentError
from memaudit.numerics.linear.convolution import convolve

if TYPE_CHECKING:
    import numpy as np


def shaped_kernel(values: np.ndarray, outputs: int, inputs: int) -> torch.Tensor:
    """A kernel (T,), (T,M·D) or (T,M,D) as (T,M,D); refuses one of other widths."""
    kernel = torch.as_tensor(values, dtype=torch.float64)
    fits = kernel.shape[1:] in ((outputs, inputs), (outputs * inputs,))
    if not kernel.numel() or not (fits or (kernel.ndim == 1 and outputs * inputs == 1)):
        fact = f"the kernel has the shape {tuple(kernel.shape)}"
        hint = f"these models map {inputs} inputs to {outputs} outputs: give (T, {outputs}, "
        raise ArgumentError(fact, hint=f"{hint}{inputs}), or a function in Python")
    return kernel.reshape(-1, outputs, inputs)


def filtered(inputs: torch.Tensor, kernel: torch.Tensor) -> torch.Tensor:
    """The answers (B,T,M) to inputs (B,T,D) in float64; a shorter kernel ends in zeros."""
    u = inputs.to(torch.float64)
    steps = u.shape[1]
    rho = torch.zeros(steps, *kernel.shape[1:], dtype=torch.float64, device=u.device)
    rho[: len(kernel)] = kernel[:steps].to(u.device)
    return convolve(u, rho.permute(1, 2, 0)).sum(-1)
