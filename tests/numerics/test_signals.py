"""Probe vectors and lags."""

from __future__ import annotations

import pytest
import torch

from memaudit.numerics.signals import LEVELS, lag_grid, probe_vectors, seeded


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("width", [1, 2, 7, 300])
def test_probes_span_the_amplitudes_and_never_vanish(level: str, width: int) -> None:
    probes = probe_vectors(width, level=level, generator=seeded(0))
    sizes = probes.x.abs().amax(1)
    assert torch.allclose(sizes, probes.amplitude)
    assert sizes.min() == 2.0**-6
    assert sizes.max() == 2.0**6
    assert probes.sweep == (width if width <= 128 else 0)


def test_both_signs_are_probed_for_one_input() -> None:
    probes = probe_vectors(1, level="quick", generator=seeded(0))
    assert (probes.x < 0).any()
    assert (probes.x > 0).any()


@pytest.mark.parametrize("horizon", [8, 20, 21, 512, 4096])
def test_the_lag_grid_starts_dense_and_ends_at_the_horizon(horizon: int) -> None:
    lags = lag_grid(horizon)
    assert lags[: min(20, horizon)].tolist() == list(range(min(20, horizon)))
    assert lags[-1] == horizon - 1
    assert (lags.diff() > 0).all()
