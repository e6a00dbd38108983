"""The closed form of linear layers, and their runs."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import memaudit
from memaudit.closed_form import kernels
from memaudit.closed_form.probe import ClosedForm
from memaudit.closed_form.result import ClosedFormResult
from memaudit.interfaces import Setting, Status
from memaudit.report import Report
from memaudit.testing import check_probe
from tests.linear_parts import (
    BankPart,
    GivenPart,
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
def test_every_kind_of_decay_is_recognised(rho, kind):
    found = looked_at(by_lag(rho, 256))
    assert (found.decay.kind, found.measured_decay.kind) == (kind, kind)
    assert found.deviation <= ROUNDING


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


# Linear layers that run otherwise than their kernel says, run long, or run short of memory.


def other(change) -> GivenPart:
    kernel = 0.9 ** torch.arange(256, dtype=torch.float64)[:, None, None] * torch.ones(2, 3)
    return GivenPart(kernel, run=change(kernel.clone()))


def late(kernel):
    kernel[40, 0, 1] += 1e-4
    return kernel


def reversed_signs(kernel):
    return -kernel


def shifted(kernel):
    return kernel.roll(1, 0)


@pytest.mark.parametrize("change", [late, reversed_signs, shifted])
def test_a_wrong_kernel_is_found(change):
    found = looked_at(other(change))
    assert found.agrees is False
    assert found.tolerance == 1e-6


def test_an_answer_that_is_not_finite_is_infinitely_wrong_and_strict_json():
    found = looked_at(other(lambda kernel: kernel * torch.nan))
    assert found.deviation == math.inf
    assert found.agrees is False
    made = stored(found)
    data = made.to_dict()
    assert data["results"]["closed-form"]["layers"][0]["deviation"] == "infinite"
    assert Report.from_dict(data).closed_form[0].deviation == math.inf


def test_float32_is_allowed_its_rounding_and_no_more():
    found = looked_at(BankPart([0.9, 0.99], dtype=torch.float32), dtype=torch.float32)
    assert found.tolerance == 1e-3
    assert found.agrees
    assert 1e-9 < found.deviation < 1e-6
    wrong = GivenPart(other(late).given.float(), run=1.01 * other(late).given.float())
    assert looked_at(wrong, dtype=torch.float32).agrees is False


def test_signs_that_are_aimed_at_a_lag_attain_the_supremum_there(monkeypatch):
    monkeypatch.setattr(kernels, "WIDEST_BASIS", 4)
    draw = torch.randn(6, 8, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    part = MatrixPart(0.9 * torch.linalg.qr(draw @ draw.T).Q, draw, torch.eye(6))
    found = looked_at(part)
    ratio = found.measured / found.exact
    assert ratio.max() <= 1 + ROUNDING
    aimed = np.unique(np.geomspace(1, 255, kernels.MOST_AIMED).round()).astype(int)
    assert ratio[aimed].min() >= 1 - ROUNDING
    assert ratio.min() < 0.99  # a lower bound elsewhere
    assert f"loudest at {len(aimed)} of 256 lags" in found.fed
    assert found.deviation <= ROUNDING
    assert found.measured_decay.rate == pytest.approx(-math.log(0.9), rel=0.01)


def test_a_horizon_of_131072_asks_for_few_lags_at_once():
    bank = BankPart(np.linspace(0.9, 0.9999, 64))
    found = looked_at(bank, horizon=131_072)
    assert found.count == 131_072
    assert max(bank.asked) * 64 <= kernels.MOST_AT_ONCE
    assert sum(bank.asked) == 131_072 + 1  # and lag 0 alone, for the shape
    assert found.horizon == 1 + math.ceil(math.log(1e-3) / math.log(0.9999))
    assert found.agrees


def test_a_wide_layer_over_a_long_horizon_is_read_on_a_grid(monkeypatch):
    monkeypatch.setattr(kernels, "MOST_NUMBERS", 2**12)
    found = looked_at(rotation(0.999, 0.3), horizon=4096)
    assert 100 < found.count < 4096
    assert found.lags[0] == 0
    assert found.lags[-1] == 4095
    assert f"on a grid of {found.count} lags" in found.note
    assert found.decay.kind == "exponential"
    assert found.decay.rate == pytest.approx(-math.log(0.999), rel=0.02)
    assert found.deviation <= 1e-10


def test_batches_are_halved_when_memory_runs_short(monkeypatch):
    part = rotation(0.9, 0.2)
    honest = part.respond

    def short(u):
        if len(u) > 1:
            raise MemoryError
        return honest(u)

    monkeypatch.setattr(part, "respond", short)
    assert looked_at(part).agrees
    assert part.rows == [1, 1]


def test_a_layer_that_does_not_fit_says_so_and_leaves_the_others_alone(monkeypatch):
    broken = scalar(0.9)

    def short(u):
        raise MemoryError

    monkeypatch.setattr(broken, "respond", short)
    host = Host(
        {"broken": broken, "misshapen": GivenPart(torch.ones(3, 1, 1)), "good": scalar(0.5)}
    )
    first, second, third = ClosedForm().measure(host, Setting(horizon=64)).layers
    assert "memory ran short" in first.note
    assert second.note == (
        "a linear layer gives (3, 1, 1) for its kernel, not floats of the shape (64, 1, 1)"
    )
    assert (first.status, second.status) == (Status.NOT_MEASURED, Status.NOT_MEASURED)
    assert third.agrees


def test_the_probe_keeps_the_laws_and_leaves_other_models_alone():
    check_probe(ClosedForm(), Host({"a": rotation(0.9, 1.0), "b": BankPart([0.5, 0.9])}))
    assert ClosedForm().measure(Host({}), Setting()).layers == ()


def test_a_scan_looks_at_linear_layers_by_default_and_judges_them(tmp_path):
    parts = {"layers.0": scalar(0.9), "layers.1": other(late)}
    report = memaudit.scan(Host(parts), horizon=64, level="quick")
    assert [item.layer for item in report.closed_form] == ["layers.0", "layers.1"]
    (finding,) = [f for f in report.findings if f.code == "MA116"]
    assert (finding.severity, finding.where) == ("error", "layers.1")
    assert memaudit.Report.load(report.save(tmp_path / "report.json")) == report


def test_a_report_file_keeps_some_lags_and_their_number():
    found = looked_at(BankPart([0.5, 0.9999]), horizon=20_000)
    made = stored(found)
    again = Report.from_dict(made.to_dict())
    kept = again.closed_form[0]
    assert again == made
    assert kept.count == 20_000
    assert len(kept.lags) == len(kept.exact) == len(kept.measured) <= 512
    assert list(kept.lags[:64]) == list(range(64))
    assert kept.lags[-1] == 19_999
    assert np.array_equal(kept.exact, found.exact[kept.lags])
