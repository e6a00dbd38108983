"""Kernels as functionals: every output is made of every input."""

from __future__ import annotations

import torch

from memaudit.numerics.convolution import filtered


def test_every_output_is_made_of_every_input_by_its_own_kernel():
    draw = torch.Generator().manual_seed(0)
    kernel = torch.rand(7, 2, 3, generator=draw, dtype=torch.float64)
    u = torch.rand(2, 12, 3, generator=draw, dtype=torch.float64)
    wanted = torch.zeros(2, 12, 2, dtype=torch.float64)
    for t in range(12):
        for s in range(min(7, t + 1)):
            wanted[:, t] += u[:, t - s] @ kernel[s].T
    torch.testing.assert_close(filtered(u, kernel), wanted, rtol=0, atol=1e-13)
