"""Eigenvalues of selective scans: closed forms, quantiles over data, and what is measured."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn.functional import softplus

from memaudit.audit import scan
from memaudit.errors import ArgumentError
from tests.plugins.ssm_models import State, draw, mixer, one_channel, opened, picture_scan


def test_at_rest_the_eigenvalues_are_those_of_the_bias(tmp_path: Path) -> None:
    state = mixer("m.")
    (found,) = opened(state, tmp_path).spectra()
    dt = softplus(state["m.dt_proj.bias"])
    expected = torch.exp(-dt[:, None] * state["m.A_log"].exp()).flatten().numpy()
    np.testing.assert_allclose(found.eigenvalues, expected, rtol=1e-14)
    assert (found.layer, found.cell, found.parameterization) == ("m", "mamba1", "exp")
    assert found.count == 12
    assert found.points == ()


def test_margin_and_time_scale_are_those_of_the_slowest_mode(tmp_path: Path) -> None:
    (found,) = opened(one_channel([0.99, 0.5]), tmp_path).spectra()
    assert found.margin == pytest.approx(0.01)
    assert found.time_scale == pytest.approx(-1 / math.log(0.99))


def test_a_bias_of_the_projection_moves_the_rest(tmp_path: Path) -> None:
    state = mixer()
    state["x_proj.bias"] = draw(10, seed=9)
    (found,) = opened(state, tmp_path).spectra()
    low = state["dt_proj.weight"] @ state["x_proj.bias"][:2]
    dt = softplus(low + state["dt_proj.bias"])
    expected = torch.exp(-dt[:, None] * state["A_log"].exp()).flatten().numpy()
    np.testing.assert_allclose(found.eigenvalues, expected, rtol=1e-14)


def test_over_data_the_eigenvalues_follow_the_quantiles_of_dt(tmp_path: Path) -> None:
    state, inputs = mixer(), draw(3, 50, 3, seed=5)
    (found,) = opened(state, tmp_path).spectra(inputs)
    low = inputs @ state["x_proj.weight"][:2].T
    dt = softplus(low @ state["dt_proj.weight"].T + state["dt_proj.bias"]).flatten(0, 1).numpy()
    assert [point.at for point in found.points] == ["dt 5 %", "dt 50 %", "dt 95 %"]
    for share, point in zip((0.05, 0.5, 0.95), found.points, strict=True):
        steps = np.quantile(dt, share, axis=0)
        expected = np.exp(-steps[:, None] * np.exp(state["A_log"].numpy())).ravel()
        np.testing.assert_allclose(point.eigenvalues, expected, rtol=1e-13)
    scales = [point.time_scale for point in found.points]
    assert scales == sorted(scales, reverse=True)


def test_a_host_gives_the_spectra_of_all_its_scans(tmp_path: Path) -> None:
    host = opened(picture_scan("ss.") | mixer("m."), tmp_path)
    assert [found.layer for found in host.spectra()] == list(host.parts())
    with pytest.raises(ArgumentError, match="no input in common"):
        host.spectra(draw(1, 5, 3))


def test_inputs_of_another_width_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match=r"\(B, T, 3\)"):
        opened(mixer(), tmp_path).spectra(draw(1, 5, 4))


def slow_mixer(seed: int) -> State:
    """Rates of 1 to n as models start with, and steps small enough for a long memory."""
    state = mixer("m.", d=4, n=3, rank=2, seed=seed)
    state["m.A_log"] = torch.log(torch.arange(1.0, 4.0, dtype=torch.float64)).repeat(4, 1)
    state["m.A_log"] += 0.1 * draw(4, 3, seed=seed + 7)
    state["m.dt_proj.weight"] *= 0.3
    return state


@pytest.mark.parametrize("seed", range(6))
def test_the_slowest_predicted_mode_is_the_measured_rate(tmp_path: Path, seed: int) -> None:
    """A constant input holds dt, B and C still: the scan is linear and time-invariant then."""
    part = opened(slow_mixer(seed), tmp_path).parts()["m"]
    (found,) = part.spectra(torch.ones(1, 4, 4, dtype=torch.float64))
    (time_scale,) = {point.time_scale for point in found.points}
    # The faster modes must have died away: twenty time scales are nine decades of the slowest.
    horizon = math.ceil(20 * time_scale)
    report = scan(part, horizon=horizon, queries=["heaviside"], normalization="universal")
    decay = report.memory["heaviside"].decay
    assert decay.kind == "exponential"
    assert decay.rate == pytest.approx(1 / time_scale, rel=0.05)
    # What the input sets is what counts: the bias alone would have been wrong.
    assert found.time_scale != pytest.approx(time_scale, rel=0.05)
