"""The attention of RWKV-4 against closed forms, as a weighted mean, and the library's own."""

from __future__ import annotations

import pytest
import torch

from memaudit.numerics.scans import wkv_scan
from tests.numerics.scan_references import attention, relative

DOUBLE = torch.float64


def arguments(
    rows: int, length: int, width: int = 4, *, dtype: torch.dtype = DOUBLE, spread: float = 1.0
) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(5)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=dtype)

    key, value = spread * normal(rows, length, width), normal(rows, length, width)
    return normal(width) - 2, normal(width), key, value


def test_an_impulse_fades_by_the_decay_over_the_sum_of_the_weights() -> None:
    length, decay = 50, 0.05
    value = torch.zeros(1, length, 1, dtype=DOUBLE)
    value[0, 0] = 1
    log_decay = torch.tensor([decay], dtype=DOUBLE).log()
    y, _ = wkv_scan(log_decay, torch.zeros(1, dtype=DOUBLE), torch.zeros_like(value), value)
    age = torch.arange(length - 1, dtype=DOUBLE)  # of the impulse, seen from the step before
    weights = torch.exp(-decay * age)
    expected = weights / (weights.cumsum(0) + 1)
    torch.testing.assert_close(y[0, 1:, 0], expected, rtol=1e-12, atol=0)
    assert y[0, 0, 0] == 1


@pytest.mark.parametrize("length", [1, 2, 35, 300])
@pytest.mark.parametrize("spread", [1.0, 200.0])
def test_it_equals_the_weighted_mean(length: int, spread: float) -> None:
    x = arguments(2, length, spread=spread)
    y, state = wkv_scan(*x)
    assert relative(y, attention(*x)) < 1e-12
    assert y.dtype == DOUBLE
    assert state is None


def test_a_decay_that_underflows_leaves_the_last_two_steps() -> None:
    _, first, key, value = arguments(1, 20)
    decay = torch.full_like(first, 9.0)  # e^{-e^9} is zero
    y, _ = wkv_scan(decay, first, key, value)
    now, before = torch.exp(key[:, 1:] + first), torch.exp(key[:, :-1])
    expected = (now * value[:, 1:] + before * value[:, :-1]) / (now + before)
    assert relative(y[:, 1:], expected) < 1e-13


def test_a_scan_goes_on_where_another_stopped() -> None:
    decay, first, key, value = arguments(2, 60)
    whole, last = wkv_scan(decay, first, key, value, return_state=True)
    y1, state = wkv_scan(decay, first, key[:, :23], value[:, :23], return_state=True)
    assert state is not None
    kept = [part.clone() for part in state]
    y2, end = wkv_scan(decay, first, key[:, 23:], value[:, 23:], state)
    assert last is not None
    assert end is not None
    assert torch.equal(torch.cat([y1, y2], 1), whole)
    assert all(torch.equal(a, b) for a, b in zip(end, last, strict=True))
    assert all(torch.equal(a, b) for a, b in zip(state, kept, strict=True))


def test_half_precision_is_worked_in_single_and_answered_in_half() -> None:
    x = tuple(part.bfloat16() for part in arguments(2, 70, dtype=torch.float32))
    y, state = wkv_scan(*x, return_state=True)
    assert state is not None
    assert y.dtype == torch.bfloat16
    assert {part.dtype for part in state} == {torch.float32}
    assert relative(y, attention(*(part.double() for part in x))) < 2**-8


def test_it_equals_the_attention_of_transformers() -> None:
    rwkv = pytest.importorskip("transformers.models.rwkv.modeling_rwkv")
    x = arguments(2, 120, 16, dtype=torch.float32, spread=3.0)
    y, state = wkv_scan(*x, return_state=True)
    expected, last = rwkv.rwkv_linear_attention_cpu(*x, return_state=True)
    assert state is not None
    assert relative(y, expected) < 1e-6
    for found, wanted in zip(state, last, strict=True):
        assert relative(found, wanted) < 1e-6
