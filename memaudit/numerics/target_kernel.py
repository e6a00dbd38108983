"""Linear target functionals y_t = sum_s rho(s) u_{t-s}, by their kernels rho."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from memaudit.errors import ArgumentError, clean
from memaudit.numerics.linear.convolution import convolve

if TYPE_CHECKING:
    import numpy as np

#: name → what stands behind its colon.
NAMED = {"exp": "rho(t) = a^t, as in exp:0.9", "poly": "rho(t) = (t+1)^-p, as in poly:1.1"}


def named_kernel(name: str, number: str, steps: int) -> torch.Tensor:
    """The kernel (T,) of `exp:a`, a^t, or of `poly:p`, (t+1)^-p."""
    try:
        value = float(number)
    except ValueError:
        value = float("nan")
    good = -1 < value < 1 if name == "exp" else 0 < value <= 100
    if not good:
        hint = "a number between -1 and 1" if name == "exp" else "a positive number up to 100"
        fact = f"the target {clean(name)}:{clean(number)} has no number that fits"
        raise ArgumentError(fact, hint=f"give {hint}, as in {NAMED[name].rpartition(' ')[2]}")
    t = torch.arange(steps, dtype=torch.float64)
    return value**t if name == "exp" else (t + 1) ** -value


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
