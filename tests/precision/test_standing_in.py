"""Other values in the place of weights, and the old bits afterwards."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

import memaudit
from memaudit.errors import MachineError
from memaudit.loading.digest import digest_tensors
from memaudit.precision.rounding import own_tensors, replaced_weights


def bits(tensor: torch.Tensor) -> str:
    return digest_tensors({"": tensor})


def test_the_values_stand_there_and_the_old_bits_afterwards():
    kept = torch.tensor([1.0, -0.0, math.nan, 5e-324], dtype=torch.float64)
    before = bits(kept)
    with replaced_weights({"a": kept}, {"a": torch.zeros(4, dtype=torch.float64)}):
        assert kept.tolist() == [0.0] * 4
    assert bits(kept) == before


def test_a_parameter_is_written_without_a_trace_for_gradients():
    weight = nn.Parameter(torch.ones(2))
    with replaced_weights({"w": weight}, {"w": torch.zeros(2)}):
        assert weight.tolist() == [0.0, 0.0]
    assert weight.tolist() == [1.0, 1.0]
    assert weight.requires_grad
    assert weight.grad is None


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_whatever_happens_inside_the_weights_come_back(error):
    kept = torch.ones(3)
    with pytest.raises(error), replaced_weights({"a": kept}, {"a": torch.zeros(3)}):
        raise error
    assert kept.tolist() == [1.0] * 3


def test_a_value_of_another_shape_changes_nothing():
    kept = {"a": torch.ones(3), "b": torch.ones(2)}
    wrong = {"a": torch.zeros(3), "b": torch.zeros(5)}
    with pytest.raises(RuntimeError), replaced_weights(kept, wrong):
        pass
    assert kept["a"].tolist() == [1.0] * 3


def test_weights_that_cannot_be_put_back_are_an_error():
    kept = {"a": torch.ones(3)}
    with pytest.raises(MachineError, match="E_WEIGHTS"), replaced_weights(kept, {}):
        kept["a"] = torch.zeros(4)


def test_tensors_are_found_by_name_else_by_place():
    layer = nn.Linear(2, 2)
    subject = memaudit.wrap(layer, input_size=2)
    found = own_tensors(subject, {"weight": layer.weight.detach(), "b": layer.bias.detach()})
    assert found is not None
    assert found["weight"].data_ptr() == layer.weight.data_ptr()
    assert found["b"].data_ptr() == layer.bias.data_ptr()
    assert own_tensors(subject, {"c": torch.ones(2)}) is None
    assert own_tensors(subject, {"weight": torch.ones(2, 2)}) is None
