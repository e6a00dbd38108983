"""Number formats on the reference checkpoints, against weights that were rounded by hand."""

from __future__ import annotations

import pytest
import torch

import memaudit
from memaudit.interfaces import Setting
from memaudit.loading.filling import digest_tensors
from memaudit.precision.probe import Precision
from memaudit.subjects.moves import error_norm, perturbing_inputs

FIXTURES = [
    "torch_rnn/lstm_uni",
    "torch_rnn/gru_uni",
    "s4d_standalone/small",
    "lru_jax/small",
    "s5_pytorch/small",
    "curse_of_memory/diagonalrnn",
]
#: A batch of copies and one model alone round in another order.
ROUNDING = 1e-9


def opened(shared, name: str):
    return memaudit.load(str(shared / "fixtures" / name))


@pytest.mark.shared
@pytest.mark.parametrize("name", FIXTURES)
def test_the_error_is_that_of_a_model_cast_by_hand_and_the_weights_come_back(shared, name):
    subject, other = opened(shared, name), opened(shared, name)
    before = digest_tensors(subject.weights())
    found = Precision(formats=("bf16", "int4")).measure(subject, Setting())
    assert digest_tensors(subject.weights()) == before
    assert found.weights
    fine, coarse = found.roundings
    assert fine.layers
    assert 0 < fine.betas["max-abs"] < coarse.betas["max-abs"]

    inputs = perturbing_inputs(other, Setting())
    own = other.respond(inputs).double()
    live = other.weights()
    for weight in found.weights:
        numbers = live[weight]
        numbers = torch.view_as_real(numbers) if numbers.is_complex() else numbers
        numbers.copy_(numbers.float().bfloat16())
    apart = (other.respond(inputs).double() - own)[None]
    by_hand = float(error_norm(apart, "sobolev", pooled=other.pooled)[0])
    assert fine.error == pytest.approx(by_hand, rel=ROUNDING)


@pytest.mark.shared
def test_modes_that_a_relu_holds_on_the_circle_are_not_the_format_s_doing(shared):
    found = Precision(formats=("bf16", "int4")).measure(
        opened(shared, "curse_of_memory/diagonalrnn"), Setting()
    )
    (fine,), (coarse,) = (rounding.layers for rounding in found.roundings)
    assert (fine.margin_before, fine.margin_after, fine.reached) == (0.0, 0.0, 0)
    assert coarse.reached == 3
