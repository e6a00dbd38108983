"""The exact memory function of linear layers against closed forms, and beside the measured one."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from memaudit.closed_form import kernels
from memaudit.closed_form.probe import ClosedForm
from memaudit.closed_form.result import ClosedFormResult
from memaudit.interfaces import Setting
from memaudit.memory.result import Status
from memaudit.report import Report
from tests.linear_parts import (
    BankPart,
    Host,
    MatrixPart,
    by_lag,
    jordan,
    rotation,
    scalar,
)

LAGS = np.arange(256)
#: Products of matrices lose a rounding in every one of 256 steps.
ROUNDING = 1e-12


def looked_at(part, *, horizon: int = 256, dtype: torch.dtype = torch.float64, **options):
    setting = Setting(horizon=horizon, **options)
    (found,) = ClosedForm().measure(Host({"layer": part}, dtype=dtype), setting).layers
    return found


def stored(found) -> Report:
    """A report that holds nothing else."""
    results = {"closed-form": ClosedFormResult((found,))}
    return Report(subject=Host({}).identity, settings={}, results=results)


def turned(t: np.ndarray) -> np.ndarray:
    return 0.95**t * (np.abs(np.cos(0.7 * t)) + np.abs(np.sin(0.7 * t)))


def powered() -> np.ndarray:
    a, c = np.array([[0.5, 0.4], [0.1, 0.8]]), np.array([[1.0, -2.0], [0.5, 0.5]])
    kernels = [c @ np.linalg.matrix_power(a, int(t)) for t in LAGS]
    return np.array([np.abs(kernel).sum(1).max() for kernel in kernels])


SLOW = (1.3 + math.sqrt(1.69 - 4 * 0.36)) / 2  # the larger eigenvalue of the 2x2 matrix
CASES = [
    pytest.param(scalar(0.9), 0.9**LAGS, -math.log(0.9), id="scalar"),
    pytest.param(rotation(0.95, 0.7), turned(LAGS), -math.log(0.95), id="rotation"),
    pytest.param(
        MatrixPart([[0.5, 0.4], [0.1, 0.8]], np.eye(2), [[1.0, -2.0], [0.5, 0.5]]),
        powered(),
        -math.log(SLOW),
        id="matrix power",
    ),
    pytest.param(
        BankPart(np.linspace(0.1, 0.95, 64)), 0.95**LAGS, -math.log(0.95), id="bank of 64"
    ),
]


@pytest.mark.parametrize(("part", "memory", "rate"), CASES)
def test_the_exact_memory_function_is_the_closed_form(part, memory, rate):
    found = looked_at(part)
    assert np.array_equal(found.lags, LAGS)
    assert np.abs(found.exact - memory).max() <= ROUNDING * memory.max()
    assert found.decay.kind == "exponential"
    assert found.decay.rate == pytest.approx(rate, rel=5e-3)
    assert found.status is Status.OK


@pytest.mark.parametrize(("part", "memory", "rate"), CASES)
def test_the_measured_one_is_beside_it_and_as_long(part, memory, rate):
    found = looked_at(part)
    assert np.abs(found.measured - memory).max() <= ROUNDING * memory.max()
    assert found.deviation <= ROUNDING
    assert found.agrees
    assert found.measured_horizon == found.horizon
    assert found.measured_decay.rate == pytest.approx(rate, rel=5e-3)


def test_horizon_and_half_life_of_a_scalar_are_those_of_lam_to_the_t():
    found = looked_at(scalar(0.9))
    # 0.9^t < 1e-3 · 0.9^1, lag 0 being the present
    assert found.horizon == 1 + math.ceil(math.log(1e-3) / math.log(0.9))
    assert found.half_life == pytest.approx(math.log(0.5) / math.log(0.9), rel=1e-9)


def test_another_epsilon_gives_another_horizon():
    found = looked_at(scalar(0.9), epsilon=1e-2)
    assert found.horizon == 1 + math.ceil(math.log(1e-2) / math.log(0.9))


def test_a_jordan_block_rises_first_and_falls_with_its_eigenvalue():
    found = looked_at(jordan(0.9), horizon=512)
    t = np.arange(512)
    assert np.abs(found.exact - t * 0.9 ** (t - 1.0)).max() <= ROUNDING * found.exact.max()
    assert int(found.lags[np.argmax(found.exact)]) in (9, 10)
    assert found.decay.kind == "exponential"
    assert found.deviation <= ROUNDING


@pytest.mark.parametrize(
    ("rho", "kind"),
    [
        (lambda t: (t + 1) ** -0.8, "polynomial"),
        (lambda t: np.ones_like(t), "persistent"),
        (lambda t: 1.02**t, "growing"),
        (lambda t: (t < 20) * 1.0, "finite"),
        (lambda t: (t == 0) * 1.0, "memoryless"),
        (lambda t: 0 * t, "memoryless"),
    ],
)
def test_every_kind_of_decay_is_told(rho, kind):
    found = looked_at(by_lag(rho, 256))
    assert (found.decay.kind, found.measured_decay.kind) == (kind, kind)
    assert found.deviation <= ROUNDING


def test_lag_zero_stands_in_the_values_but_is_not_memory():
    found = looked_at(by_lag(lambda t: np.where(t == 0, 1e6, 0.9**t), 256))
    assert found.exact[0] == 1e6
    assert found.horizon == 1 + math.ceil(math.log(1e-3) / math.log(0.9))


@pytest.mark.parametrize("lam", [30.0, 1e200, -1e120])
def test_a_kernel_that_overflows_is_growing_and_strict_json(lam):
    found = looked_at(scalar(lam))
    assert found.decay.kind == "growing"
    assert found.status is Status.DIVERGED
    assert found.count == len(found.exact) < 256
    assert np.isfinite(found.exact).all()
    assert found.note.startswith(f"the kernel is not finite from lag {found.count} on")
    made = stored(found)
    assert Report.from_dict(made.to_dict()) == made


def test_an_unstable_layer_is_run_for_as_long_as_it_can_be():
    found = looked_at(scalar(30.0))
    assert 90 < len(found.measured) < len(found.exact)
    assert found.measured_decay.kind == "growing"
    assert found.deviation <= ROUNDING


def test_a_kernel_without_any_finite_number_is_not_run():
    found = looked_at(by_lag(lambda t: t * np.nan, 256))
    assert found.status is Status.DIVERGED
    assert found.measured_status is Status.NOT_MEASURED
    assert found.deviation is None
    assert found.agrees is None
    assert kernels.TOO_LARGE in found.note
