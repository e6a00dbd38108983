"""Kernels as functionals: every output hears every input, and shapes that do not fit."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from memaudit.errors import ArgumentError
from memaudit.numerics.target_kernel import filtered, shaped_kernel


def test_every_output_hears_every_input_by_its_own_kernel():
    draw = torch.Generator().manual_seed(0)
    kernel = torch.rand(7, 2, 3, generator=draw, dtype=torch.float64)
    u = torch.rand(2, 12, 3, generator=draw, dtype=torch.float64)
    wanted = torch.zeros(2, 12, 2, dtype=torch.float64)
    for t in range(12):
        for s in range(min(7, t + 1)):
            wanted[:, t] += u[:, t - s] @ kernel[s].T
    flat = shaped_kernel(kernel.reshape(7, 6).numpy(), 2, 3)
    torch.testing.assert_close(filtered(u, flat), wanted, rtol=0, atol=1e-13)


@pytest.mark.parametrize("shape", [(), (0,), (5, 3), (5, 1, 2), (5, 2, 1, 1)])
def test_a_kernel_of_other_widths_is_refused(shape):
    with pytest.raises(ArgumentError, match="the kernel has the shape"):
        shaped_kernel(np.zeros(shape), 2, 1)
