"""The scan of Mamba-2 against closed forms, step by step, and against the library's own."""

from __future__ import annotations

import inspect

import pytest
import torch

from memaudit.numerics.scans import chunk_scan, selective_scan
from tests.numerics.scan_references import dual, relative

DOUBLE = torch.float64
POSITIONAL = ("hidden", "dt", "A", "B", "C")


def arguments(
    rows: int, length: int, *, heads: int = 4, groups: int = 2, dtype: torch.dtype = DOUBLE
) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(11)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=dtype)

    return {
        "hidden": normal(rows, length, heads, 5),
        "dt": normal(rows, length, heads),
        "A": -torch.exp(normal(heads)),
        "B": normal(rows, length, groups, 3),
        "C": normal(rows, length, groups, 3),
        "D": normal(heads),
        "dt_bias": normal(heads) - 1,
    }


def test_a_constant_input_gives_a_geometric_series() -> None:
    length, rate, pole = 300, 0.01, -1.5
    ones = torch.ones(1, length, 1, 1, dtype=DOUBLE)
    a = torch.tensor([pole], dtype=DOUBLE)
    y = chunk_scan(ones, rate * ones[..., 0], a, 2 * ones, ones, chunk_size=256)
    ratio = torch.exp(rate * a)
    series = 2 * rate * (1 - ratio ** torch.arange(1, length + 1)) / (1 - ratio)
    torch.testing.assert_close(y.flatten(), series, rtol=1e-12, atol=0)


@pytest.mark.parametrize("length", [1, 2, 63, 64, 65, 200])
@pytest.mark.parametrize("groups", [1, 2, 4])
def test_every_option_together_equals_the_plain_recurrence(length: int, groups: int) -> None:
    x = arguments(2, length, groups=groups)
    y, state = chunk_scan(**x, chunk_size=256, dt_softplus=True, return_final_states=True)
    expected, last = dual(x)
    assert relative(y, expected) < 1e-12
    assert relative(state, last) < 1e-12
    assert y.dtype == state.dtype == DOUBLE
    assert y.is_contiguous()


@pytest.mark.parametrize("chunk_size", [1, 3, 16, 1000])
def test_the_length_of_the_chunks_does_not_matter(chunk_size: int) -> None:
    x = arguments(2, 50)
    y = chunk_scan(**x, chunk_size=chunk_size, dt_softplus=True)
    assert relative(y, dual(x)[0]) < 1e-12


def test_a_scan_goes_on_where_another_stopped() -> None:
    x = arguments(2, 90)
    timed = ("hidden", "dt", "B", "C")
    first = {name: v[:, :31] if name in timed else v for name, v in x.items()}
    rest = {name: v[:, 31:] if name in timed else v for name, v in x.items()}
    options = {"chunk_size": 64, "dt_softplus": True, "return_final_states": True}
    whole, last = chunk_scan(**x, **options)
    y1, state = chunk_scan(**first, **options)
    y2, end = chunk_scan(**rest, **options, initial_states=state)
    assert relative(torch.cat([y1, y2], 1), whole) < 1e-13
    assert relative(end, last) < 1e-13


def test_one_head_of_one_group_is_a_selective_scan() -> None:
    x = arguments(2, 70, heads=1, groups=1)
    y = chunk_scan(*(x[k] for k in POSITIONAL), chunk_size=64, dt_softplus=True)
    same = selective_scan(
        x["hidden"][:, :, 0].transpose(1, 2),
        x["dt"].transpose(1, 2).expand(2, 5, 70),
        x["A"].expand(5, 3),
        x["B"][:, :, 0].transpose(1, 2),
        x["C"][:, :, 0].transpose(1, 2),
        delta_softplus=True,
    )
    assert relative(y[:, :, 0].transpose(1, 2), same) < 1e-13


def test_small_decays_after_a_total_reset_keep_their_precision() -> None:
    length = 60
    ones = torch.ones(1, length, 1, 1)
    dt = torch.full((1, length, 1), 1e-4)
    dt[0, 5] = 3e4  # the running sum of the logarithms is now too coarse for the steps after it
    y = chunk_scan(ones, dt, -torch.ones(1), ones, ones, chunk_size=64)
    h, expected = 0.0, []
    for rate in dt.double().flatten():
        h = torch.exp(-rate) * h + rate
        expected.append(h)
    torch.testing.assert_close(y.flatten().double(), torch.stack(expected), rtol=2e-6, atol=0)


def test_half_precision_is_worked_in_single_and_answered_in_half() -> None:
    x = {name: v.bfloat16() for name, v in arguments(2, 80, dtype=torch.float32).items()}
    y, state = chunk_scan(**x, chunk_size=64, dt_softplus=True, return_final_states=True)
    expected, last = dual({name: value.double() for name, value in x.items()})
    assert y.dtype == torch.bfloat16
    assert state.dtype == torch.float32
    assert relative(y, expected) < 2**-8
    assert relative(state, last) < 1e-5


@pytest.mark.parametrize("family", ["mamba2", "bamba", "zamba2", "falcon_h1", "nemotron_h"])
def test_it_equals_the_scan_of_transformers(family: str) -> None:
    module = pytest.importorskip(f"transformers.models.{family}.modeling_{family}")
    reference = inspect.unwrap(module.mamba2_chunk_scan)
    x = arguments(2, 150, dtype=torch.float32)
    options = {"dt_softplus": True, "return_final_states": True, "chunk_size": 32}
    initial = torch.ones(2, 4, 5, 3)
    y, state = chunk_scan(**x, **options, initial_states=initial)
    rest = {name: value for name, value in x.items() if name not in POSITIONAL}
    expected, last = reference(
        *(x[k] for k in POSITIONAL), **rest, **options, initial_states=initial
    )
    assert relative(y, expected) < 1e-5
    assert relative(state, last) < 1e-5
