"""Audits of torch's recurrent layers whose weights are kept in another form."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

import memaudit
from memaudit.testing.dynamics import check_dynamics
from memaudit.testing.perturbable import check_perturbable
from memaudit_rnn.copies import RawEnsemble
from tests.plugins.rnn_layers import CELLS, LAYERS, drawn, noise, retrofitted


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_a_retrofitted_layer_is_audited_by_its_raw_weights(kind: type, dtype: torch.dtype) -> None:
    plain = drawn(kind(3, 4, num_layers=2, bidirectional=True, dtype=dtype))
    module = retrofitted(copy.deepcopy(plain))
    module(noise(2, 6, 3, dtype=dtype))[0].sum().backward()  # what a training run leaves behind
    subject = memaudit.load(module)
    assert torch.equal(
        subject.respond(noise(2, 6, 3, dtype=dtype)),
        memaudit.load(plain).respond(noise(2, 6, 3, dtype=dtype)),
    )
    copies = subject.perturbable()
    assert isinstance(copies, RawEnsemble)
    assert not any(name.endswith("weight_hh_l0") for name in copies.weights)
    check_perturbable(subject)
    (dynamics,) = subject.dynamics().values()
    check_dynamics(dynamics)
    assert {block.parameterization for block in dynamics.blocks.values()} == {"exp"}


def test_raw_sizes_that_move_far_make_stable_modes() -> None:
    module = retrofitted(drawn(nn.RNN(2, 4, dtype=torch.float64)))
    subject = memaudit.load(module)
    copies = subject.perturbable()
    assert copies is not None
    (name,) = (n for n in copies.weights if n.endswith("original0"))
    far = copies.weights[name] + 4 * noise(3, *copies.weights[name].shape)
    for values in far:
        twin = copy.deepcopy(subject)
        (weights,) = (p.weights for p in [twin.perturbable()] if p is not None)
        weights[name].copy_(values)
        weight = twin.live_modules()[""].get_submodule("stack").weight_hh_l0
        assert isinstance(weight, Tensor)
        assert torch.linalg.eigvals(weight).abs().max() < 1.0


def test_the_roles_of_raw_weights_are_those_of_the_weight_that_they_make() -> None:
    subject = memaudit.load(retrofitted(drawn(nn.GRU(2, 4, dtype=torch.float64))))
    copies = subject.perturbable()
    assert copies is not None
    raw = {n.rpartition(".")[2]: role for n, role in copies.roles.items() if "original" in n}
    assert {role.group for role in raw.values()} == {"recurrent"}
    assert {role.layer for role in raw.values()} == {"gru.l0"}
    forms = {name: role.form for name, role in raw.items()}
    assert forms["original0"] == "diagonal"
    assert forms["original2"] == forms["original3"] == "matrix"


@pytest.mark.parametrize("kind", LAYERS)
def test_a_wider_copy_of_a_retrofitted_layer_is_the_plain_one(kind: type) -> None:
    plain = drawn(kind(3, 4))
    subject = memaudit.load(retrofitted(copy.deepcopy(plain)), dtype="float64")
    wanted = memaudit.load(plain, dtype="float64").respond(noise(2, 6, 3))
    assert torch.equal(subject.respond(noise(2, 6, 3)), wanted)
    assert isinstance(subject.perturbable(), RawEnsemble)


def test_half_precision_keeps_raw_weights_only_where_they_are_wider() -> None:
    half = retrofitted(drawn(nn.RNN(3, 4)).bfloat16())
    same = memaudit.load(half)
    assert isinstance(same.perturbable(), RawEnsemble)
    inputs = noise(1, 5, 3).bfloat16()
    expected = half(inputs.transpose(0, 1))[0].transpose(0, 1)
    torch.testing.assert_close(same.respond(inputs), expected.detach())
    narrowed = memaudit.load(retrofitted(drawn(nn.RNN(3, 4))), dtype="bfloat16")
    assert not isinstance(narrowed.perturbable(), RawEnsemble)
    assert any("plain weight that this makes" in note for note in narrowed.identity.notes)


@pytest.mark.parametrize("kind", CELLS)
def test_a_retrofitted_cell_is_run_by_what_it_makes_and_tells_its_form(kind: type) -> None:
    plain = drawn(kind(3, 4))
    subject = memaudit.load(retrofitted(copy.deepcopy(plain)))
    wanted = memaudit.load(plain).respond(noise(2, 6, 3).float())
    assert torch.equal(subject.respond(noise(2, 6, 3).float()), wanted)
    (dynamics,) = subject.dynamics().values()
    assert [block.parameterization for block in dynamics.blocks.values()] == ["exp"]
    assert any("weight_hh is kept as exp" in note for note in subject.identity.notes)


def test_training_on_does_not_move_the_subject_of_a_retrofitted_layer() -> None:
    module = retrofitted(drawn(nn.GRU(3, 4)))
    subject = memaudit.load(module)
    before = subject.respond(noise(1, 5, 3).float())
    with torch.no_grad():
        for weight in module.parameters():
            weight.add_(0.1)
    assert torch.equal(subject.respond(noise(1, 5, 3).float()), before)
    assert not torch.equal(memaudit.load(module).respond(noise(1, 5, 3).float()), before)
