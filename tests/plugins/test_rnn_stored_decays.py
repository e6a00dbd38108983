"""What decides the modes of torch's recurrent layers, and audits of them in another form."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.func import jacrev
from torch.nn.utils import parametrizations

import memaudit
from memaudit.interfaces import DenseDecay, NoDecay
from memaudit_rnn.copies import RawEnsemble
from memaudit_rnn.stored_decays import CLOSED, GRU_NOTE, LSTM
from tests.module_laws import check_dynamics, check_perturbable
from tests.plugins.rnn_layers import CELLS, LAYERS, dense, drawn, noise, retrofitted, told

EXACT = 1e-13
SIZE = 5


class Nested(nn.Module):
    """Somebody's own module, with every kind of layer somewhere inside."""

    def __init__(self) -> None:
        super().__init__()
        self.front = nn.Sequential(nn.Linear(2, 2), nn.GRU(2, 3, num_layers=2))
        self.both = nn.RNN(3, 4, bidirectional=True)
        self.cell = nn.GRUCell(8, 2)
        self.lstm = nn.LSTM(2, 4, proj_size=2)


def stored(decay: DenseDecay) -> Tensor:
    return decay.owner.get_parameter(decay.name).detach()


@pytest.mark.parametrize("bias", [True, False])
def test_the_matrix_of_a_gru_is_the_jacobian_of_its_cell_at_rest(bias: bool) -> None:
    cell = nn.GRUCell(2, SIZE, bias=bias, dtype=torch.float64)
    drawn(cell, candidate=0.0)
    (decay,) = dense(cell)
    silent, rest = torch.zeros(1, 2).double(), torch.zeros(SIZE).double()
    jacobian = jacrev(lambda h: cell(silent, h[None])[0])(rest)
    matrix = decay.matrix(cell, stored(decay))
    torch.testing.assert_close(matrix.detach(), jacobian.detach(), rtol=0, atol=EXACT)
    assert decay.note == GRU_NOTE


def test_a_candidate_bias_is_what_the_matrix_of_a_gru_leaves_out() -> None:
    cell = nn.GRUCell(2, SIZE, dtype=torch.float64)
    drawn(cell, candidate=0.7)
    (decay,) = dense(cell)
    silent, rest = torch.zeros(1, 2).double(), torch.zeros(SIZE).double()
    jacobian = jacrev(lambda h: cell(silent, h[None])[0])(rest)
    assert (decay.matrix(cell, stored(decay)) - jacobian).abs().max() > 1e-2


@pytest.mark.parametrize("kind", CELLS)
def test_the_modes_of_a_cell_without_biases_are_those_that_the_audit_reports(kind: type) -> None:
    cell = drawn(kind(2, SIZE, bias=False, dtype=torch.float64))
    (decay,) = dense(cell)
    (dynamics,) = memaudit.load(cell).dynamics().values()
    silent = torch.zeros(1, 2, dtype=torch.float64)
    jacobian = jacrev(lambda h: dynamics.step(h[None], silent)[0])(dynamics.initial())
    matrix = decay.matrix(cell, stored(decay))
    torch.testing.assert_close(matrix.detach(), jacobian, rtol=0, atol=EXACT)
    assert list(dynamics.blocks) == [decay.layer]


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_joining_matrix_and_rest_gives_the_stored_weight(kind: type, dtype: torch.dtype) -> None:
    module = drawn(kind(3, SIZE, num_layers=2, bidirectional=True, dtype=dtype))
    decays = dense(module)
    assert len(decays) == 4
    for decay in decays:
        weight = stored(decay)
        matrix, rest = decay.matrix(module, weight), decay.rest(weight)
        assert matrix.shape == (SIZE, SIZE)
        again = decay.joined(module, matrix, rest).detach()
        # A sum with z and a division by (1 - z) r, which is about a fifth.
        assert (again - weight).abs().max() <= 16 * torch.finfo(dtype).eps


def test_any_matrix_is_the_step_of_the_weight_that_is_joined_from_it() -> None:
    gru = drawn(nn.GRU(3, SIZE, dtype=torch.float64))
    (decay,) = dense(gru)
    wanted, rest = noise(SIZE, SIZE), decay.rest(stored(decay))
    weight = decay.joined(gru, wanted, rest)
    torch.testing.assert_close(decay.matrix(gru, weight).detach(), wanted, rtol=0, atol=EXACT)
    assert torch.equal(decay.rest(weight), rest)


def test_the_joined_weight_follows_the_biases_and_has_their_gradients() -> None:
    gru = drawn(nn.GRU(3, SIZE, dtype=torch.float64))
    (decay,) = dense(gru)
    matrix, rest = decay.matrix(gru, stored(decay)).detach(), decay.rest(stored(decay))
    decay.joined(gru, matrix, rest).sum().backward()
    slope = gru.get_parameter("bias_hh_l0").grad
    assert slope is not None
    assert (slope[: 2 * SIZE] != 0).all()
    assert (slope[2 * SIZE :] == 0).all()
    with torch.no_grad():
        gru.get_parameter("bias_hh_l0").add_(0.3)
    moved = decay.joined(gru, matrix, rest)
    torch.testing.assert_close(decay.matrix(gru, moved), matrix, rtol=0, atol=EXACT)


def test_layers_are_called_as_in_spectra_by_their_path_in_any_module() -> None:
    assert [(decay.layer, decay.cell) for decay in told(Nested())] == [
        ("front.1.l0", "GRU"),
        ("front.1.l1", "GRU"),
        ("both.l0.forward", "RNN"),
        ("both.l0.backward", "RNN"),
        ("cell", "GRU"),
        ("lstm.l0", "LSTM"),
    ]


@pytest.mark.parametrize("kind", [*LAYERS, *CELLS])
def test_a_layer_alone_is_called_as_its_spectrum_calls_it(kind: type) -> None:
    module = kind(2, 3)
    (decay,) = dense(module)
    (dynamics,) = memaudit.load(module).dynamics().values()
    assert [decay.layer] == list(dynamics.blocks)


def test_half_precision_is_told_as_well() -> None:
    gru = drawn(nn.GRU(3, SIZE)).bfloat16()
    (decay,) = dense(gru)
    matrix = decay.matrix(gru, stored(decay).double())
    exact = dense(copy.deepcopy(gru).double())[0]
    assert torch.equal(matrix, exact.matrix(exact.owner, stored(exact)))


def test_an_lstm_has_no_weight_that_stands_for_a_mode() -> None:
    found = told(nn.Sequential(nn.LSTM(2, 3, bidirectional=True), nn.LSTMCell(6, 2)))
    assert found == [
        NoDecay(LSTM, "0.l0.forward", "LSTM"),
        NoDecay(LSTM, "0.l0.backward", "LSTM"),
        NoDecay(LSTM, "1", "LSTM"),
    ]


def test_a_weight_that_something_else_makes_is_refused() -> None:
    spectral = parametrizations.spectral_norm(nn.RNN(2, 3), "weight_hh_l0")
    dropped = nn.Module()
    dropped.module, dropped.weight_hh_l0_raw = nn.GRU(2, 3), nn.Parameter(torch.ones(9, 3))
    for module in (spectral, dropped):
        (decay,) = told(module)
        assert isinstance(decay, NoDecay)
        assert "weight_hh_l0 is computed from other weights" in decay.reason


def test_a_gru_with_a_gate_that_is_shut_is_refused() -> None:
    gru = nn.GRU(2, 3)
    with torch.no_grad():
        gru.get_parameter("bias_hh_l0")[0] = -60.0
    assert told(gru) == [NoDecay(CLOSED, "gru.l0", "GRU")]


def test_modules_without_recurrence_have_nothing() -> None:
    assert told(nn.Sequential(nn.Linear(2, 2), nn.MultiheadAttention(2, 1))) == []


def test_subjects_tell_their_modules_under_the_names_of_the_audit() -> None:
    alone = memaudit.load(drawn(nn.GRU(2, 3, num_layers=2)))
    assert _names(alone.live_modules()) == ["gru.l0", "gru.l1"]
    host = memaudit.load(Nested())
    assert list(host.live_modules()) == ["front.1", "both", "cell", "lstm"]
    recorded = [name for part in host.dynamics().values() for name in part.blocks]
    assert _names(host.live_modules()) == recorded


def _names(modules) -> list[str]:
    pairs = [(part, decay.layer) for part, module in modules.items() for decay in told(module)]
    return [".".join(filter(None, pair)) for pair in pairs]


def test_what_moves_in_the_live_module_moves_the_answers() -> None:
    subject = memaudit.load(drawn(nn.GRU(2, 3)))
    before = subject.respond(noise(1, 6, 2).float())
    (decay,) = dense(subject.live_modules()[""])
    decay.owner.get_parameter(decay.name).mul_(2.0)
    assert not torch.equal(subject.respond(noise(1, 6, 2).float()), before)


@pytest.mark.shared
def test_the_recorded_steps_at_rest_are_the_matrices_behind_their_tanh(shared: Path) -> None:
    """Biases put the fixture's rest at a state h other than zero: a step is Diag(1 - h²) W."""
    folder = shared / "fixtures" / "torch_rnn" / "rnn_uni"
    recorded = load_file(folder / "io.safetensors")
    slopes = (1.0 - recorded["zero_state64"].flatten().square()).chunk(2)
    (network,) = memaudit.load(folder, dtype="float64").live_modules().values()
    steps = recorded["zero_jacobian64"]
    for number, (decay, slope) in enumerate(zip(dense(network), slopes, strict=True)):
        assert decay.layer == f"rnn.l{number}"
        own = slice(64 * number, 64 * (number + 1))
        step = slope[:, None] * decay.matrix(decay.owner, stored(decay))
        torch.testing.assert_close(step, steps[own, own], rtol=0, atol=1e-9)


@pytest.mark.shared
@pytest.mark.parametrize("name", ["gru_uni", "gru_bi"])
def test_a_fixture_at_a_rest_of_zero_has_the_eigenvalues_of_its_matrices(
    shared: Path, name: str
) -> None:
    """Without candidate biases and with no input from below, every layer rests at zero."""
    subject = memaudit.load(shared / "fixtures" / "torch_rnn" / name, dtype="float64")
    (network,) = subject.live_modules().values()
    for key, weight in network.named_parameters():
        if "stack.bias" in key:
            weight.chunk(3)[2].zero_()
    (dynamics,) = subject.dynamics().values()
    rest, silent = dynamics.initial(), torch.zeros(1, dynamics.width, dtype=torch.float64)
    jacobian = jacrev(lambda h: dynamics.step(h[None], silent)[0])(rest)
    decays = {decay.layer: decay for decay in dense(network)}
    assert decays.keys() == dynamics.blocks.keys()
    for layer, block in dynamics.blocks.items():
        own = slice(block.start, block.stop)
        matrix = decays[layer].matrix(decays[layer].owner, stored(decays[layer]))
        wanted = torch.linalg.eigvals(jacobian[own, own])
        assert _farthest(torch.linalg.eigvals(matrix), wanted) < 1e-9


def _farthest(one: Tensor, other: Tensor) -> float:
    apart = (one[:, None] - other[None]).abs()
    return float(torch.maximum(apart.amin(0).amax(), apart.amin(1).amax()))


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
