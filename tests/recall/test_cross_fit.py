"""R² from samples against the closed form of linear systems."""

from __future__ import annotations

import pytest
import torch

from memaudit.numerics.signals import seeded
from memaudit.recall.decoding import CrossFit, gaussian, whitened
from tests.numerics.linear_systems import draw, table
from tests.recall.matrices import decodability, reachability

LAGS, STEPS, ROWS = 24, 2000, 8
EPS = torch.finfo(torch.float64).eps
SYSTEMS = table()


def states_of(system, u):
    """The states (B,T,n) by the recurrence itself, real parts before imaginary ones."""
    matrix = torch.diag(system.eigenvalues) if hasattr(system, "eigenvalues") else system.matrix
    wide = torch.promote_types(matrix.dtype, system.inputs.dtype)
    matrix, fed = matrix.to(wide), u.to(wide) @ system.inputs.to(wide).mT
    state, found = torch.zeros_like(fed[:, 0]), []
    for now in fed.unbind(1):
        state = state @ matrix.mT + now
        found.append(state)
    whole = torch.stack(found, 1)
    return torch.cat([whole.real, whole.imag], -1) if whole.is_complex() else whole


def fitted(states, channels, lags=LAGS, eps=EPS):
    fit = CrossFit(lags, eps=eps)
    half = len(states) // 2
    fit.add(0, states[:half], channels[:half])
    fit.add(1, states[half:], channels[half:])
    assert fit.samples == len(states) * (states.shape[1] - lags)
    return fit.values()


def noise(width, rows=ROWS):
    return gaussian((rows, STEPS, width), scale=1.0, generator=seeded(5)).inputs


@pytest.mark.parametrize("name", ["modal", "real modal", "dense", "symmetric"])
def test_measured_recall_is_that_of_the_closed_form(name):
    system, u = SYSTEMS[name], noise(3)
    measured, null = fitted(states_of(system, u), u)
    exact = decodability(reachability(system.reach(0, 300))).flip(0).view(300, 3).mean(1)
    torch.testing.assert_close(measured, exact[:LAGS], atol=0.01, rtol=0)
    floor = float(null.abs().max())
    assert floor < 5e-3
    # 15776 samples: the scatter of the sum over some ten lags is a percent or two.
    counted = 3 * float(measured[measured > floor].sum())
    assert counted == pytest.approx(3 * float(exact.sum()), rel=0.03)


def test_a_delay_line_is_recalled_wholly_and_nothing_before_it():
    u = noise(1)
    line = torch.cat([u.roll(k, 1) for k in range(5)], dim=-1)
    measured, null = fitted(line, u)
    torch.testing.assert_close(measured[:5], torch.ones(5).double(), atol=1e-10, rtol=0)
    assert float(measured[5:].max()) < 2 * float(null.abs().max())


def test_noise_does_not_count_as_memory():
    u, state = noise(2), draw(ROWS, STEPS, 50)
    measured, null = fitted(state, u)
    assert float(measured.max()) < 4e-3
    # The mean over lags of an estimate without bias is far below its scatter.
    assert abs(float(null.mean())) < 5e-4


def test_a_state_that_never_moves_recalls_nothing():
    u = noise(1)
    measured, null = fitted(torch.full((ROWS, STEPS, 3), 7.0).double(), u)
    assert not measured.any()
    assert not null.any()


def test_real_inputs_are_drawn_as_they_are_with_channels_of_unit_variance():
    vectors = draw(6, 4) @ torch.diag(torch.tensor([3.0, 1.0, 0.1, 0.0]).double()) + 2.0
    drawn = whitened(vectors, (4, 9000, 4), scale=1.0, generator=seeded(2))
    assert drawn.channels.shape == (4, 9000, 3)
    apart = (drawn.inputs.unsqueeze(2) - vectors).abs().amax(-1).amin(-1)
    assert float(apart.max()) < 1e-14
    flat = drawn.channels.flatten(0, 1)
    covariance = flat.mT @ flat / len(flat)
    torch.testing.assert_close(covariance, torch.eye(3).double(), atol=0.05, rtol=0)
    wide = whitened(vectors, (4, 9000, 4), scale=2.0, generator=seeded(2))
    centre = vectors.mean(0)
    torch.testing.assert_close(wide.inputs - centre, 2 * (drawn.inputs - centre))
