"""The largest beta that holds, asked for many betas at a time."""

from __future__ import annotations

import math

import numpy as np
import pytest

from memaudit.stability.radius import narrowed


@pytest.mark.parametrize("edge", [1e-9, 1e-3, 0.0123, 0.9, 15.9])
@pytest.mark.parametrize("rtol", [1e-1, 1e-3, 1e-6])
def test_the_edge_is_found_from_below(edge: float, rtol: float) -> None:
    found = narrowed(lambda betas: betas > edge, low=1e-3, high=16.0, rtol=rtol)
    assert edge / (1 + rtol) <= found <= edge


def test_what_holds_up_to_the_end_is_infinite() -> None:
    assert narrowed(lambda betas: betas > 17.0, low=1e-3, high=16.0, rtol=1e-3) == math.inf


def test_what_fails_everywhere_is_zero() -> None:
    found = narrowed(lambda betas: np.ones(len(betas), bool), low=1e-3, high=16.0, rtol=1e-3)
    assert found == 0.0


def test_of_two_edges_the_first_counts() -> None:
    def fails(betas: np.ndarray) -> np.ndarray:
        return ((betas > 0.1) & (betas < 3.0)) | (betas > 10.0)

    assert narrowed(fails, low=1e-3, high=16.0, rtol=1e-3) == pytest.approx(0.1, rel=2e-3)
