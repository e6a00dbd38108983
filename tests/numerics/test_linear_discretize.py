"""One step of continuous time against the exponential of a matrix, and against its own rule."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from memaudit.numerics.linear import DISCRETIZATIONS, discretize

RATES = (0.0, -0.5, -1e-12, -40.0, 1.5, 2j, -0.3 + 7j, -1e-9 + 1e-9j, -1e-5 + 3j)
STEPS = (0.001, 0.1, 1.0)
cases = pytest.mark.parametrize(("rate", "dt"), [(r, dt) for r in RATES for dt in STEPS])


def exponential(matrix: np.ndarray) -> np.ndarray:
    """By its series after halving, in the widest numbers that numpy has."""
    halvings = max(0, int(np.ceil(np.log2(max(np.abs(matrix).sum(), 1e-300)))) + 4)
    small = matrix.astype(np.clongdouble) / 2**halvings
    term = total = np.eye(len(matrix), dtype=np.clongdouble)
    for k in range(1, 25):
        term = term @ small / k
        total = total + term
    for _ in range(halvings):
        total = total @ total
    return total


def found(rate: complex, dt: float, how: str) -> tuple[complex, complex]:
    rates = torch.tensor(rate, dtype=torch.complex128)
    mode, gain = discretize(rates, torch.tensor(dt, dtype=torch.float64), how=how)
    return mode.item(), gain.item()


@cases
def test_zoh_is_the_exponential_of_the_matrix_with_its_input(rate: complex, dt: float) -> None:
    held = exponential(np.array([[rate, 1.0], [0.0, 0.0]]) * dt)
    mode, gain = found(rate, dt, "zoh")
    assert abs(mode - held[0, 0]) < 1e-14 * max(1.0, abs(held[0, 0]))
    assert abs(gain - held[0, 1]) < 1e-14 * abs(held[0, 1])


@cases
def test_bilinear_keeps_the_trapezoidal_rule(rate: complex, dt: float) -> None:
    mode, gain = found(rate, dt, "bilinear")
    before = 0.7 - 0.2j
    after = mode * before + gain * 1.3
    # x' = rate x + u, with the mean of both ends of the step.
    assert abs((after - before) / dt - (rate * (before + after) / 2 + 1.3)) < 1e-10 * (
        1 + abs(rate) / dt
    )


def test_bilinear_comes_near_the_exponential_with_the_third_power_of_the_step() -> None:
    errors = [abs(found(-1.0, dt, "bilinear")[0] - np.exp(-dt)) for dt in (0.1, 0.05)]
    assert errors[0] / errors[1] == pytest.approx(8.0, rel=0.05)


@cases
def test_dirac_hits_the_state_at_once_and_lets_it_go(rate: complex, dt: float) -> None:
    mode, gain = found(rate, dt, "dirac")
    assert gain == 1
    assert abs(mode - exponential(np.array([[rate * dt]]))[0, 0]) < 1e-14 * max(1.0, abs(mode))


@pytest.mark.parametrize("how", ["zoh", "bilinear"])
def test_a_mode_that_does_not_move_integrates(how: str) -> None:
    assert found(0.0, 0.25, how) == (1.0, 0.25)


@pytest.mark.parametrize("how", DISCRETIZATIONS)
@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_the_precision_stays(how: str, dtype: torch.dtype) -> None:
    rates = torch.tensor([[-0.5 + 1j, 0.0], [-2.0, 1j]], dtype=dtype)
    dt = torch.tensor([[0.1], [0.2]], dtype=rates.real.dtype)
    mode, gain = discretize(rates, dt, how=how)
    assert mode.dtype == gain.dtype == dtype
    assert mode.shape == gain.shape == (2, 2)


def test_an_unknown_rule_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"euler.*zoh, bilinear, dirac"):
        discretize(torch.tensor(-1.0), torch.tensor(0.1), how="euler")
