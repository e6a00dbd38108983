"""Rounded weights in the place of the own ones, and eigenvalues before and after."""

from __future__ import annotations

import math
from itertools import permutations

import numpy as np
import pytest
import torch
from torch import nn

import memaudit
from memaudit.errors import MachineError
from memaudit.loading.filling import digest_tensors
from memaudit.precision.rounding import (
    own_tensors,
    paired,
    reached,
    replaced_weights,
    shift,
)


def bits(tensor: torch.Tensor) -> str:
    return digest_tensors({"": tensor})


def test_the_values_stand_there_and_the_old_bits_afterwards():
    kept = torch.tensor([1.0, -0.0, math.nan, 5e-324], dtype=torch.float64)
    before = bits(kept)
    with replaced_weights({"a": kept}, {"a": torch.zeros(4, dtype=torch.float64)}):
        assert kept.tolist() == [0.0] * 4
    assert bits(kept) == before


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_whatever_happens_inside_the_weights_come_back(error):
    kept = torch.ones(3)
    with pytest.raises(error), replaced_weights({"a": kept}, {"a": torch.zeros(3)}):
        raise error
    assert kept.tolist() == [1.0] * 3


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


def turned(count: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.uniform(0.1, 0.95, count) * np.exp(2j * np.pi * rng.uniform(size=count))


@pytest.mark.parametrize("seed", range(20))
def test_modes_that_moved_a_little_and_were_permuted_have_the_shift_of_their_moves(seed):
    rng = np.random.default_rng(seed)
    before = turned(40, seed)
    gaps = np.abs(before[:, None] - before[None]) + np.eye(40)
    # Half of the smallest gap at most: then the true pairing is that of the least moves.
    moves = 0.49 * gaps.min() * rng.uniform(0, 1, 40) * np.exp(2j * np.pi * rng.uniform(size=40))
    after = (before + moves)[rng.permutation(40)]
    assert shift(before, after) == pytest.approx(np.abs(moves).max(), rel=1e-9)


@pytest.mark.parametrize("seed", range(20))
def test_no_other_order_of_crowded_modes_has_a_smaller_sum_of_moves(seed):
    rng = np.random.default_rng(seed)
    before = turned(6, seed)
    after = (before + 0.3 * turned(6, seed + 100))[rng.permutation(6)]
    least = min(np.abs(np.array(p) - before).sum() for p in permutations(after))
    found = paired(before, after)
    in_order = np.abs(after - before).max() <= np.abs(found - before).max()
    assert in_order or np.abs(found - before).sum() == pytest.approx(least, rel=1e-12)


def test_a_diagonal_layer_keeps_its_order_where_neighbours_mislead():
    before = np.array([0.5, 0.6, 0.7])
    after = np.array([0.59, 0.69, 0.79])
    assert shift(before, after) == pytest.approx(0.09)


def test_on_the_circle_counts_and_who_was_there_before_does_not():
    before = np.array([0.999, -0.5, 1.0, 1.2, 0.9j])
    after = np.array([1.0, -0.5, 1.1, 1.2, 1.01j])
    assert reached(before, after) == 2
    assert reached(after, before) == 0
    assert reached(before, before) == 0


def test_a_modulus_that_rounds_to_just_below_one_is_on_the_circle():
    angles = np.linspace(0.01, 3.0, 200)
    moduli = np.abs(np.exp(1j * angles))
    assert (moduli < 1).any()
    assert reached(0.99 * np.exp(1j * angles), np.exp(1j * angles)) == 200


def test_modes_that_come_or_go_are_counted_and_have_no_shift():
    assert shift(np.array([0.5]), np.array([0.5, 0.6])) is None
    assert reached(np.array([0.5]), np.array([0.5, 1.0])) == 1
    assert reached(np.array([0.5, 1.0]), np.array([1.0])) == 0
