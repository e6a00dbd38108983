"""The selective scan against closed forms, step by step, and against the library's own."""

from __future__ import annotations

import inspect

import pytest
import torch

from memaudit.numerics import scans
from memaudit.numerics.scans import selective_scan
from tests.numerics.scan_references import bytes_beyond_output, relative
from tests.numerics.scan_references import selective as step_by_step

DOUBLE = torch.float64


def arguments(
    rows: int, width: int, length: int, *, size: int = 4, dtype: torch.dtype = DOUBLE
) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(7)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=dtype)

    mixed = normal(rows, length, 2 * size)  # B and C are strided slices in a model
    return {
        "hidden": normal(rows, width, length),
        "dt": normal(rows, width, length),
        "A": -torch.exp(normal(width, size)),
        "B": mixed[..., :size].transpose(1, 2),
        "C": mixed[..., size:].transpose(1, 2),
        "D": normal(width),
        "z": normal(rows, length, 2 * width)[..., width:].transpose(1, 2),
        "delta_bias": normal(width) - 1,
    }


def test_a_constant_input_gives_a_geometric_series() -> None:
    length, rate, pole = 300, 0.01, -1.5
    ones = torch.ones(1, 1, length, dtype=DOUBLE)
    y = selective_scan(ones, rate * ones, torch.full((1, 1), pole, dtype=DOUBLE), 2 * ones, ones)
    ratio = torch.exp(torch.tensor(rate * pole, dtype=DOUBLE))
    series = 2 * rate * (1 - ratio ** torch.arange(1, length + 1)) / (1 - ratio)
    torch.testing.assert_close(y[0, 0], series, rtol=1e-13, atol=0)


@pytest.mark.parametrize("length", [1, 2, 17, 101])
@pytest.mark.parametrize("rows", [1, 3])
def test_every_option_together_equals_the_plain_recurrence(rows: int, length: int) -> None:
    x = arguments(rows, 5, length)
    y, state = selective_scan(**x, delta_softplus=True, return_last_state=True)
    expected, last = step_by_step(x)
    assert relative(y, expected) < 1e-12
    assert relative(state, last) < 1e-12
    assert y.shape == (rows, 5, length)
    assert state.dtype == y.dtype == DOUBLE


@pytest.mark.parametrize(("states", "budget"), [(8, 64), (20, 40), (1, 1), (60, 10**6)])
def test_rows_channels_and_chunks_are_cut_without_a_trace(
    monkeypatch: pytest.MonkeyPatch, states: int, budget: int
) -> None:
    x = arguments(3, 5, 23)
    whole = selective_scan(**x, delta_softplus=True)
    monkeypatch.setattr(scans, "_STATES", states)
    monkeypatch.setattr("memaudit.numerics.chunking.BUDGET", budget)
    assert relative(selective_scan(**x, delta_softplus=True), whole) < 1e-14


@pytest.mark.parametrize("inference", [False, True])
@pytest.mark.parametrize("threads", [1, 2, 3, 7])
def test_rows_side_by_side_are_those_one_after_another(threads: int, inference: bool) -> None:
    x = arguments(5, 6, 30)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(threads)
        with torch.inference_mode(inference):
            y, last = selective_scan(**x, delta_softplus=True, return_last_state=True)
        assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
    expected, state = step_by_step(x)
    assert relative(y.clone(), expected) < 1e-12
    assert relative(last.clone(), state) < 1e-12


def test_a_scan_goes_on_where_another_stopped() -> None:
    x = arguments(2, 6, 50)
    timed = ("hidden", "dt", "B", "C", "z")
    first = {name: v[..., :19] if name in timed else v for name, v in x.items()}
    rest = {name: v[..., 19:] if name in timed else v for name, v in x.items()}
    whole, last = selective_scan(**x, delta_softplus=True, return_last_state=True)
    y1, state = selective_scan(**first, delta_softplus=True, return_last_state=True)
    kept = state.clone()
    y2, end = selective_scan(
        **rest, delta_softplus=True, return_last_state=True, initial_state=state
    )
    assert relative(torch.cat([y1, y2], 2), whole) < 1e-13
    assert relative(end, last) < 1e-13
    assert torch.equal(state, kept)


def test_decays_that_underflow_leave_no_memory_and_no_nan() -> None:
    x = arguments(2, 3, 40)
    x["A"] = torch.full_like(x["A"], -1e6)
    y = selective_scan(x["hidden"], x["dt"].abs() + 0.1, x["A"], x["B"], x["C"])
    present = (x["dt"].abs() + 0.1) * x["hidden"] * (x["B"] * x["C"]).sum(1, keepdim=True)
    assert relative(y, present) < 1e-14


def test_half_precision_is_worked_in_single_and_answered_in_half() -> None:
    x = arguments(2, 3, 60, dtype=torch.float32)
    half = {name: value.bfloat16() for name, value in x.items()}
    y, state = selective_scan(**half, delta_softplus=True, return_last_state=True)
    exact, last = step_by_step({name: value.double() for name, value in half.items()})
    assert y.dtype == torch.bfloat16
    assert state.dtype == torch.float32
    assert relative(y, exact) < 2**-8  # one rounding of the answer
    assert relative(state, last) < 1e-5


@pytest.mark.parametrize("family", ["mamba", "falcon_mamba", "jamba", "zamba"])
def test_it_equals_the_scan_of_transformers(family: str) -> None:
    module = pytest.importorskip(f"transformers.models.{family}.modeling_{family}")
    reference = inspect.unwrap(module.mamba_selective_scan)
    x = arguments(2, 24, 77, size=16, dtype=torch.float32)
    options = {"delta_softplus": True, "return_last_state": True}
    y, state = selective_scan(**x, **options)
    expected, last = reference(
        *(x[k] for k in ("hidden", "dt", "A", "B", "C")),
        **options,
        **{k: x[k] for k in ("D", "z", "delta_bias")},
    )
    assert relative(y, expected) < 1e-5
    assert relative(state, last) < 1e-5


def test_memory_beyond_the_output_does_not_grow_with_time() -> None:
    def extra(length: int) -> int:
        x = arguments(2, 64, length, size=16, dtype=torch.float32)
        beyond, _ = bytes_beyond_output(lambda: selective_scan(**x, delta_softplus=True))
        return beyond

    assert extra(8192) <= extra(2048)
    assert extra(8192) < 8192 * 2 * 64 * 16 * 4 / 4  # a quarter of all states
