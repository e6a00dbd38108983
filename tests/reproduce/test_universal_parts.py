"""The stacks and features from which rows of the paper on universality are built."""

import pytest
import torch

from examples.reproduce.universal.features import exponentials, fitted, modulus, staircase
from examples.reproduce.universal.stacks import StateSpace, pointwise


def draw(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def normal(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=draw(), dtype=torch.float64)


def test_a_layer_is_its_recurrence():
    w, u, b, c, d = 0.3 * normal(3, 3), normal(3, 2), normal(3), normal(1, 3), normal(1, 2)
    x, state, wanted = normal(1, 7, 2), torch.zeros(3, dtype=torch.float64), []
    for now in x[0]:
        state = w @ state + u @ now + b
        wanted.append(c @ state + d @ now)
    layer = StateSpace(w, u, b=b, c=c, d=d)
    assert torch.allclose(layer(x)[0], torch.stack(wanted), atol=1e-12)


@pytest.mark.parametrize("count", [8, 64])
def test_a_staircase_stays_within_twice_the_modulus(count: int):
    x = torch.linspace(-1, 1, 2001, dtype=torch.float64)[None, :, None]
    found = pointwise(*staircase(torch.square, count, -1, 1))(x)
    assert (found - x.square()).abs().max() <= 2 * modulus(torch.square, 2 / (count - 1), -1, 1)


def test_fitted_features_are_better_than_the_staircase():
    x = torch.linspace(-1, 1, 2001, dtype=torch.float64)[None, :, None]
    both = (pointwise(*make(torch.sin, 64, -1, 1))(x) for make in (fitted, staircase))
    close, coarse = ((found - x.sin()).abs().max() for found in both)
    assert close < 0.01 * coarse


def test_exponentials_meet_a_kernel_that_is_one():
    kernel = 0.7 ** torch.arange(40, dtype=torch.float64)[None]
    modes, coefficients = exponentials(kernel, 24)
    lags = torch.arange(40, dtype=torch.float64)
    assert torch.allclose(coefficients @ modes[:, None] ** lags, kernel, atol=1e-8)
