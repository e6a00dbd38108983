"""The gated linear recurrence against closed forms and step by step."""

from __future__ import annotations

import pytest
import torch

from memaudit.numerics.scans import linear_scan
from tests.numerics.scan_references import relative

DOUBLE = torch.float64


def draw(*shape: int, dtype: torch.dtype = DOUBLE) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    gate = torch.rand(*shape, generator=generator, dtype=dtype)
    return gate, torch.randn(*shape, generator=generator, dtype=dtype)


def test_a_constant_gate_and_input_give_a_geometric_series() -> None:
    ones = torch.ones(1, 400, 1, dtype=DOUBLE)
    states, last = linear_scan(0.99 * ones, ones)
    series = (1 - 0.99 ** torch.arange(1, 401, dtype=DOUBLE)) / 0.01
    torch.testing.assert_close(states[0, :, 0], series, rtol=1e-12, atol=0)
    assert last.item() == states[0, -1, 0].item()


@pytest.mark.parametrize("length", [1, 2, 33, 2500])
def test_it_equals_the_plain_recurrence_from_any_initial_state(length: int) -> None:
    gate, inputs = draw(2, length, 3)
    initial = torch.tensor([[1.0, -2.0, 3.0], [0.5, 0.0, 4.0]], dtype=DOUBLE)
    kept = initial.clone()
    states, last = linear_scan(gate, inputs, initial)
    h, expected = initial, []
    for a, x in zip(gate.unbind(1), inputs.unbind(1), strict=True):
        h = a * h + x
        expected.append(h)
    assert relative(states, torch.stack(expected, 1)) < 1e-14
    assert relative(last, h) < 1e-14
    assert states.is_contiguous()
    assert torch.equal(initial, kept)


def test_a_scan_goes_on_where_another_stopped() -> None:
    gate, inputs = draw(2, 41, 3)
    whole, end = linear_scan(gate, inputs)
    first, state = linear_scan(gate[:, :13], inputs[:, :13])
    rest, last = linear_scan(gate[:, 13:], inputs[:, 13:], state)
    assert torch.equal(torch.cat([first, rest], 1), whole)
    assert torch.equal(last, end)


def test_half_precision_is_worked_in_single_and_answered_in_half() -> None:
    small = torch.full((1, 3000, 1), 2.0**-9, dtype=torch.bfloat16)
    states, last = linear_scan(torch.ones_like(small), small)
    assert states.dtype == torch.bfloat16
    assert last.dtype == torch.float32
    assert last.item() == 3000 * 2.0**-9  # a state in half precision stays behind at 0.5


def test_it_equals_the_scan_of_recurrent_gemma() -> None:
    name = "transformers.models.recurrent_gemma.modeling_recurrent_gemma"
    unit = pytest.importorskip(name).RecurrentGemmaRglru
    gate, inputs = draw(2, 65, 8, dtype=torch.float32)
    never = torch.zeros(2, 65, 1, dtype=torch.bool)
    expected, last = unit._rnn_scan(None, inputs, gate, never, None)
    states, state = linear_scan(gate, inputs)
    assert relative(states, expected) < 1e-6
    assert relative(state, last) < 1e-6
