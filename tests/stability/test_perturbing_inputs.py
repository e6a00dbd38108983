"""The inputs on which moved weights are compared."""

from __future__ import annotations

import pytest
import torch

import memaudit
from memaudit.contracts import Setting
from memaudit.stability.moves import perturbing_inputs


def subject(width: int = 3, *, natural: torch.Tensor | None = None, longest: int | None = None):
    made = memaudit.wrap(lambda u: u, input_size=width)
    made.longest = longest
    made.natural_inputs = lambda count, generator: natural  # type: ignore[method-assign]
    return made


def test_constants_an_impulse_signs_and_noise_come_first():
    u = perturbing_inputs(subject(), Setting())
    assert u.shape == (8, 100, 3)
    assert torch.equal(u[0], torch.ones(100, 3, dtype=torch.float64))
    assert torch.equal(u[1], -u[0])
    assert u[2, 0].tolist() == [1.0, 1.0, 1.0]
    assert not u[2, 1:].any()
    assert torch.equal(u[3].abs(), u[0])
    assert 0.3 < u[4].abs().mean() < 0.7


@pytest.mark.parametrize("natural", [None, 7 * torch.randn(5, 3, generator=torch.Generator())])
def test_no_entry_is_larger_than_one(natural):
    assert perturbing_inputs(subject(natural=natural), Setting()).abs().max() <= 1.0


def test_natural_inputs_are_scaled_together_and_stand_at_the_end():
    natural = torch.tensor([[4.0, 0.0, 0.0], [0.0, 2.0, 0.0]])
    u = perturbing_inputs(subject(natural=natural), Setting())
    rows = {tuple(row) for row in u[5:].reshape(-1, 3).tolist()}
    assert rows == {(1.0, 0.0, 0.0), (0.0, 0.5, 0.0)}


def test_small_natural_inputs_keep_their_size():
    u = perturbing_inputs(subject(natural=torch.full((1, 3), 0.25)), Setting())
    assert (u[5:] == 0.25).all()


def test_the_seed_decides_and_the_longest_sequence_limits():
    first, again = (perturbing_inputs(subject(), Setting(seed=3)) for _ in range(2))
    assert torch.equal(first, again)
    assert not torch.equal(first, perturbing_inputs(subject(), Setting(seed=4)))
    assert perturbing_inputs(subject(longest=12), Setting(), steps=50).shape[1] == 12
    assert len(perturbing_inputs(subject(), Setting(), rows=2)) == 2
