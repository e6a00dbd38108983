"""Lags, sizes and differences of linear layers, against what they must be."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from memaudit.closed_form import kernels

LAGS = np.arange(4)


def test_the_size_of_a_kernel_is_reached_by_its_signs():
    kernel = torch.randn(3, 4, 5, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    sizes = kernels.size_of(kernel, banked=False)
    for lag in range(3):
        x = kernels.signs_for(kernel[lag])
        assert float((kernel[lag] @ x).abs().amax()) == pytest.approx(float(sizes[lag]), rel=1e-15)
    assert float(kernels.size_of(kernel, banked=True)[1]) == float(kernel[1].abs().max())


def test_rounding_in_every_step_is_allowed_for_over_long_horizons():
    assert kernels.tolerance_of(torch.float64, 131_072) == 1e-6
    assert kernels.tolerance_of(torch.float32, 512) == 1e-3
    assert kernels.tolerance_of(torch.float32, 131_072) == 2 * 131_072 * 2.0**-23
    assert kernels.tolerance_of(torch.bfloat16, 8) == 0.125


@pytest.mark.parametrize(
    ("difference", "exact", "share"),
    [
        ([0, 0.1, 0, 0], [9, 2, 1, 1], 0.05),  # of the largest memory, not of the present
        ([0.9, 0, 0, 0], [9, 2, 1, 1], 0.1),  # of the present, at lag 0
        ([0, 0, 0, 0], [0, 0, 0, 0], 0.0),
        ([0, 1e-9, 0, 0], [0, 0, 0, 0], np.inf),
        ([0, np.nan, 0, 0], [9, 2, 1, 1], np.inf),
    ],
)
def test_a_deviation_is_a_share_of_what_it_deviates_from(difference, exact, share):
    arrays = (np.array(difference, dtype=float), np.array(exact, dtype=float))
    found = kernels.deviation(*arrays, LAGS, rounding=2.0**-52, limit=1e-6)
    assert found == pytest.approx(share, rel=1e-12)


def test_the_rounding_of_a_loud_present_is_no_deviation_of_a_tiny_memory():
    exact, noise = np.array([1.0, 0.0, 0.0, 0.0]), np.array([0.0, 1e-15, 2e-15, 0.0])
    assert kernels.deviation(noise, exact, LAGS, rounding=2.0**-52, limit=1e-6) <= 1e-6
    wrong = np.array([0.0, 1e-12, 0.0, 0.0])
    assert kernels.deviation(wrong, exact, LAGS, rounding=2.0**-52, limit=1e-6) > 1e-6
