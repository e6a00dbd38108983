"""Recurrent layers of torch as maps of their state: their eigenvalues, and the weights behind."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import jacrev
from torch.nn.utils import parametrizations

import memaudit
from memaudit.interfaces import (
    AbstractDynamics,
    AbstractSubject,
    DenseDecay,
    NoDecay,
    Setting,
    StoredDecay,
)
from memaudit.reparams import Exp
from memaudit.retrofitting.weights import swap
from memaudit.spectrum.probe import Spectrum
from memaudit_rnn import RnnAdapter
from memaudit_rnn.stored_decays import CLOSED, GRU_NOTE, LSTM
from memaudit_rnn.subject import RnnDynamics
from tests.module_laws import check_dynamics, check_perturbable
from tests.plugins.recorded_answers import recorded_modes, records

MODES = ("RNN_TANH", "RNN_RELU", "GRU", "LSTM")
LAYERS = [nn.RNN, nn.GRU]
CELLS = [nn.RNNCell, nn.GRUCell]
EXACT = 1e-12
SIZE = 5


def noise(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64).to(
        dtype
    )


def drawn(module: nn.Module, *, candidate: float | None = None) -> nn.Module:
    """Weights of moderate size; of a GRU perhaps with that bias for all candidates."""
    draw = torch.Generator().manual_seed(3)
    for name, weight in module.named_parameters():
        weight.data.uniform_(-0.5, 0.5, generator=draw)
        if candidate is not None and "bias" in name:
            weight.data.chunk(3)[2].fill_(candidate)
    return module


def layer_of(mode: str, *sizes: int, **options: Any) -> Any:
    kind, *word = mode.split("_")
    if word:
        options["nonlinearity"] = word[0].lower()
    layer = getattr(nn, kind)(*sizes, batch_first=True, dtype=torch.float64, **options)
    return drawn(layer).eval().requires_grad_(False)


def only(subject: AbstractSubject) -> AbstractDynamics:
    (dynamics,) = subject.dynamics().values()
    return dynamics


def walked(dynamics: AbstractDynamics, inputs: Tensor) -> Tensor:
    """The states (B,T,n) under the inputs (B,T,D)."""
    state = dynamics.initial().expand(len(inputs), -1)
    states = []
    for u in inputs.unbind(1):
        state = dynamics.step(state, u)
        states.append(state)
    return torch.stack(states, 1)


def farthest(one: Tensor, other: Tensor) -> float:
    """How far the eigenvalues of either list are from the nearest of the other at most."""
    apart = (one[:, None] - other[None]).abs()
    return float(torch.maximum(apart.amin(0).amax(), apart.amin(1).amax()))


# -- The recurrence as a map of its state.


@pytest.mark.parametrize("mode", MODES)
def test_the_states_are_those_that_torch_goes_through(mode: str) -> None:
    layer, inputs = layer_of(mode, 3, 4, 3), noise(2, 9, 3)
    dynamics = only(memaudit.load(layer))
    check_dynamics(dynamics)
    name = mode.split("_")[0].lower()
    assert list(dynamics.blocks) == [f"{name}.l0", f"{name}.l1", f"{name}.l2"]
    kept = "direct" if name == "rnn" else "gated"
    for block in dynamics.blocks.values():
        assert (block.cell, block.parameterization) == (name.upper(), kept)
    start = dynamics.blocks[f"{name}.l2"].start
    states = walked(dynamics, inputs)[..., start : start + 4]
    torch.testing.assert_close(states, layer(inputs)[0], rtol=0, atol=EXACT)


def test_a_projected_lstm_keeps_a_short_h_and_a_long_c() -> None:
    layer, inputs = layer_of("LSTM", 3, 5, 2, proj_size=2), noise(2, 9, 3)
    states = walked(only(memaudit.load(layer)), inputs)
    _, (h, c) = layer(inputs)
    expected = torch.cat([h[0], c[0], h[1], c[1]], dim=-1)
    torch.testing.assert_close(states[:, -1], expected, rtol=0, atol=EXACT)


@pytest.mark.parametrize("mode", MODES)
def test_two_directions_settle_where_the_middle_of_a_long_input_is(mode: str) -> None:
    layer = layer_of(mode, 2, 3, 2, bidirectional=True)
    for weight in layer.parameters():
        weight.mul_(0.5)
    dynamics = only(memaudit.load(layer))
    check_dynamics(dynamics)
    assert not dynamics.causal
    name = mode.split("_")[0].lower()
    ways = [f"{name}.l{depth}.{way}" for depth in range(2) for way in ("forward", "backward")]
    assert list(dynamics.blocks) == ways
    inputs = noise(1, 1, 2).expand(1, 401, 2)
    settled = walked(dynamics, inputs)[0, -1]
    starts = [dynamics.blocks[way].start for way in ways[2:]]
    shown = torch.cat([settled[start : start + 3] for start in starts])
    torch.testing.assert_close(shown, layer(inputs)[0][0, 200], rtol=0, atol=EXACT)


def test_a_step_is_done_in_the_dtype_of_the_state() -> None:
    layer = layer_of("LSTM", 3, 4)
    narrow = only(memaudit.load(layer, dtype="float32"))
    assert narrow.initial().dtype == torch.float32
    wide = RnnDynamics(layer.float().double(), ["rnn"])
    state, u = noise(2, 8), noise(2, 3)
    torch.testing.assert_close(narrow.step(state, u), wide.step(state, u), rtol=0, atol=EXACT)


def test_a_linear_encoder_belongs_to_the_step() -> None:
    layer, encoder = layer_of("GRU", 3, 4), nn.Linear(2, 3, dtype=torch.float64)
    dynamics, inputs = RnnDynamics(layer, ["rnn"], encoder=encoder), noise(2, 7, 2)
    assert dynamics.width == 2
    expected = layer(encoder(inputs))[0]
    torch.testing.assert_close(walked(dynamics, inputs), expected, rtol=0, atol=EXACT)


def test_a_host_has_the_stack_of_every_part() -> None:
    host = memaudit.load(nn.ModuleDict({"a": nn.GRU(3, 4, 2), "b": nn.LSTMCell(4, 5)}))
    stacks = {name: list(stack.blocks) for name, stack in host.dynamics().items()}
    assert stacks == {"a": ["a.l0", "a.l1"], "b": ["b"]}


@pytest.mark.shared
@pytest.mark.parametrize("name", ["lstm_uni", "gru_uni", "rnn_uni"])
def test_states_jacobians_and_eigenvalues_at_rest_are_those_recorded(
    shared: Path, name: str
) -> None:
    folder = shared / "fixtures" / "torch_rnn" / name
    recorded, subject = records(folder), memaudit.load(folder)
    dynamics = only(subject)
    zero = torch.zeros(1, 512, dynamics.width, dtype=torch.float64)
    state = walked(dynamics, zero)[0, -1]
    # In the order of the records: h of all layers, then c of all layers.
    parts = 2 if name == "lstm_uni" else 1
    split = [torch.arange(b.start, b.stop).chunk(parts) for b in dynamics.blocks.values()]
    order = torch.cat([indices[part] for part in range(parts) for indices in split])
    torch.testing.assert_close(state[order], recorded["zero_state64"], rtol=0, atol=EXACT)
    jacobian = jacrev(lambda s: dynamics.step(s[None], zero[:, 0])[0])(state)
    found = jacobian[order][:, order]
    torch.testing.assert_close(found, recorded["zero_jacobian64"], rtol=0, atol=1e-11)
    layers = Spectrum(trajectory=32).measure(subject, Setting(level="quick")).layers
    modes = torch.cat([torch.from_numpy(item.eigenvalues) for item in layers])
    wanted = recorded_modes(folder).flatten()
    assert len(modes) == len(wanted)
    assert farthest(modes, wanted) < 1e-9
    assert all(item.at.startswith("rest: zero input, settled") for item in layers)


@pytest.mark.shared
@pytest.mark.parametrize("name", ["lstm_bi", "gru_bi"])
def test_two_directions_have_spectra_of_their_own_and_no_trajectory(
    shared: Path, name: str
) -> None:
    subject = memaudit.load(shared / "fixtures" / "torch_rnn" / name)
    found = Spectrum().measure(subject, Setting()).layers
    assert len(found) == 4
    assert all(item.lyapunov is None for item in found)
    assert not any("trajectory" in point.at for item in found for point in item.points)


@pytest.mark.parametrize("name", ["lstm", "gru", "rnn"])
def test_the_demos_measure_what_their_spectra_say(name: str) -> None:
    report = memaudit.scan(f"demo:{name}", queries=["reversed"])
    (found,) = report["spectrum"].predictions
    assert found.measured == pytest.approx(found.rate, rel=0.02)
    assert report.spectrum[0].lyapunov < 0  # type: ignore[operator]


# -- The weights that make the modes.


class Nested(nn.Module):
    """Somebody's own module, with every kind of layer somewhere inside."""

    def __init__(self) -> None:
        super().__init__()
        self.front = nn.Sequential(nn.Linear(2, 2), nn.GRU(2, 3, num_layers=2))
        self.both = nn.RNN(3, 4, bidirectional=True)
        self.cell = nn.GRUCell(8, 2)
        self.lstm = nn.LSTM(2, 4, proj_size=2)


def told(module: nn.Module) -> list[StoredDecay]:
    return list(RnnAdapter().stored_decays(module))


def dense(module: nn.Module) -> list[DenseDecay]:
    found = told(module)
    decays = [decay for decay in found if isinstance(decay, DenseDecay)]
    assert len(decays) == len(found)
    return decays


def stored(decay: DenseDecay) -> Tensor:
    return decay.owner.get_parameter(decay.name).detach()


def at_rest(cell: nn.Module) -> Tensor:
    """The Jacobian of a cell of two inputs at the state zero, without input."""
    silent, rest = torch.zeros(1, 2).double(), torch.zeros(SIZE).double()
    return jacrev(lambda h: cell(silent, h[None])[0])(rest).detach()


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("kind", CELLS)
def test_the_matrix_of_a_cell_is_its_jacobian_at_rest(kind: type, bias: bool) -> None:
    cell = kind(2, SIZE, bias=bias, dtype=torch.float64)
    drawn(cell, candidate=0.0 if kind is nn.GRUCell else None)
    if kind is nn.RNNCell and bias:
        nn.init.zeros_(cell.bias_ih)
        nn.init.zeros_(cell.bias_hh)
    (decay,) = dense(cell)
    matrix = decay.matrix(cell, stored(decay)).detach()
    torch.testing.assert_close(matrix, at_rest(cell), rtol=0, atol=EXACT)
    assert kind is nn.RNNCell or decay.note == GRU_NOTE
    assert list(only(memaudit.load(cell)).blocks) == [decay.layer]


def test_a_candidate_bias_is_what_the_matrix_of_a_gru_leaves_out() -> None:
    cell = drawn(nn.GRUCell(2, SIZE, dtype=torch.float64), candidate=0.7)
    (decay,) = dense(cell)
    assert (decay.matrix(cell, stored(decay)) - at_rest(cell)).abs().max() > 1e-2


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_matrix_and_rest_join_to_the_stored_weight(kind: type, dtype: torch.dtype) -> None:
    module = drawn(kind(3, SIZE, num_layers=2, bidirectional=True, dtype=dtype))
    decays = dense(module)
    assert len(decays) == 4
    for decay in decays:
        weight = stored(decay)
        matrix, rest = decay.matrix(module, weight), decay.rest(weight)
        again = decay.joined(module, matrix, rest).detach()
        # A sum with z and a division by (1 - z) r, which is about a fifth.
        assert (again - weight).abs().max() <= 16 * torch.finfo(dtype).eps
        wanted = noise(SIZE, SIZE, dtype=dtype)
        moved = decay.matrix(module, decay.joined(module, wanted, rest)).detach()
        assert (moved - wanted).abs().max() <= 64 * torch.finfo(dtype).eps


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
    expected = ["front.1.l0", "front.1.l1", "both.l0.forward", "both.l0.backward", "cell"]
    assert [decay.layer for decay in told(Nested())] == [*expected, "lstm.l0"]
    host = memaudit.load(Nested())
    recorded = [name for part in host.dynamics().values() for name in part.blocks]
    live = host.live_modules()
    assert list(live) == ["front.1", "both", "cell", "lstm"]
    pairs = [(part, decay.layer) for part, module in live.items() for decay in told(module)]
    assert [".".join(filter(None, pair)) for pair in pairs] == recorded
    for kind in (*LAYERS, *CELLS):
        assert [d.layer for d in told(kind(2, 3))] == list(only(memaudit.load(kind(2, 3))).blocks)


def test_half_precision_is_reported_as_well() -> None:
    gru = drawn(nn.GRU(3, SIZE)).bfloat16()
    (decay,) = dense(gru)
    (exact,) = dense(copy.deepcopy(gru).double())
    matrix = decay.matrix(gru, stored(decay).double())
    assert torch.equal(matrix, exact.matrix(exact.owner, stored(exact)))


def test_what_has_no_weight_that_stands_for_a_mode_says_why() -> None:
    found = told(nn.Sequential(nn.LSTM(2, 3, bidirectional=True), nn.LSTMCell(6, 2)))
    assert found == [NoDecay(LSTM, name, "LSTM") for name in ("0.l0.forward", "0.l0.backward", "1")]
    shut = nn.GRU(2, 3)
    with torch.no_grad():
        shut.get_parameter("bias_hh_l0")[0] = -60.0
    assert told(shut) == [NoDecay(CLOSED, "gru.l0", "GRU")]
    spectral = parametrizations.spectral_norm(nn.RNN(2, 3), "weight_hh_l0")
    dropped = nn.Module()
    dropped.module, dropped.weight_hh_l0_raw = nn.GRU(2, 3), nn.Parameter(torch.ones(9, 3))
    for module in (spectral, dropped):
        (decay,) = told(module)
        assert isinstance(decay, NoDecay)
        assert "weight_hh_l0 is computed from other weights" in decay.reason
    assert told(nn.Sequential(nn.Linear(2, 2), nn.MultiheadAttention(2, 1))) == []


@pytest.mark.shared
def test_the_recorded_steps_at_rest_are_the_matrices_behind_their_tanh(shared: Path) -> None:
    """Biases put the fixture's rest at a state h other than zero: a step is Diag(1 - h²) W."""
    folder = shared / "fixtures" / "torch_rnn" / "rnn_uni"
    recorded = records(folder)
    slopes = (1.0 - recorded["zero_state64"].flatten().square()).chunk(2)
    (network,) = memaudit.load(folder, dtype="float64").live_modules().values()
    for number, (decay, slope) in enumerate(zip(dense(network), slopes, strict=True)):
        assert decay.layer == f"rnn.l{number}"
        own = slice(64 * number, 64 * (number + 1))
        step = slope[:, None] * decay.matrix(decay.owner, stored(decay))
        torch.testing.assert_close(step, recorded["zero_jacobian64"][own, own], rtol=0, atol=1e-9)


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
    dynamics = only(subject)
    rest, silent = dynamics.initial(), torch.zeros(1, dynamics.width, dtype=torch.float64)
    jacobian = jacrev(lambda h: dynamics.step(h[None], silent)[0])(rest)
    decays = {decay.layer: decay for decay in dense(network)}
    assert decays.keys() == dynamics.blocks.keys()
    for layer, block in dynamics.blocks.items():
        own = slice(block.start, block.stop)
        matrix = decays[layer].matrix(decays[layer].owner, stored(decays[layer]))
        wanted = torch.linalg.eigvals(jacobian[own, own])
        assert farthest(torch.linalg.eigvals(matrix), wanted) < 1e-9


# -- Retrofitted layers.


def retrofitted(module: nn.Module) -> nn.Module:
    """The module with all its dense weights behind exp."""
    for decay in told(module):
        if isinstance(decay, DenseDecay):
            swap(decay, Exp(time="discrete"))
    return module


def moves_raw_weights(subject: AbstractSubject) -> bool:
    """Whether the raw weights move in its copies; the one that they make does not, then."""
    copies = subject.perturbable()
    assert copies is not None
    raw = any("weight_hh_l0.original" in name for name in copies.weights)
    assert raw != any(name.endswith("weight_hh_l0") for name in copies.weights)
    return raw


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_a_retrofitted_layer_is_audited_by_its_raw_weights(kind: type, dtype: torch.dtype) -> None:
    plain = drawn(kind(3, 4, num_layers=2, bidirectional=True, dtype=dtype))
    module = retrofitted(copy.deepcopy(plain))
    inputs = noise(2, 6, 3, dtype=dtype)
    module(inputs)[0].sum().backward()  # what a training run leaves behind
    subject = memaudit.load(module)
    before = subject.respond(inputs)
    assert torch.equal(before, memaudit.load(plain).respond(inputs))
    moved = subject.perturbable()
    assert moved is not None
    assert moves_raw_weights(subject)
    raw = {n: role for n, role in moved.roles.items() if "original" in n}
    assert {role.group for role in raw.values()} == {"recurrent"}
    assert {role.form for n, role in raw.items() if n.endswith("original0")} == {"diagonal"}
    assert not any(name.endswith("weight_hh_l0") for name in moved.weights)
    check_perturbable(subject)
    check_dynamics(only(subject))
    assert {block.parameterization for block in only(subject).blocks.values()} == {"exp"}
    wide = memaudit.load(module, dtype="float64")
    wanted = memaudit.load(plain, dtype="float64").respond(noise(2, 6, 3))
    assert torch.equal(wide.respond(noise(2, 6, 3)), wanted)
    assert moves_raw_weights(wide)
    with torch.no_grad():
        for weight in module.parameters():
            weight.add_(0.1)
    assert torch.equal(subject.respond(inputs), before)


def test_raw_sizes_that_move_far_make_stable_modes() -> None:
    subject = memaudit.load(retrofitted(drawn(nn.RNN(2, 4, dtype=torch.float64))))
    moved = subject.perturbable()
    assert moved is not None
    (name,) = (n for n in moved.weights if n.endswith("original0"))
    for values in moved.weights[name] + 4 * noise(3, *moved.weights[name].shape):
        twin = copy.deepcopy(subject)
        twin.perturbable().weights[name].copy_(values)  # type: ignore[union-attr]
        weight = twin.live_modules()[""].get_submodule("stack").weight_hh_l0
        assert torch.linalg.eigvals(weight).abs().max() < 1.0  # type: ignore[arg-type]


def test_half_precision_keeps_raw_weights_only_where_they_are_wider() -> None:
    half = retrofitted(drawn(nn.RNN(3, 4)).bfloat16())
    same = memaudit.load(half)
    assert moves_raw_weights(same)
    inputs = noise(1, 5, 3).bfloat16()
    expected = half(inputs.transpose(0, 1))[0].transpose(0, 1)
    torch.testing.assert_close(same.respond(inputs), expected.detach())
    narrowed = memaudit.load(retrofitted(drawn(nn.RNN(3, 4))), dtype="bfloat16")
    assert not moves_raw_weights(narrowed)
    assert any("plain weight that this makes" in note for note in narrowed.identity.notes)


@pytest.mark.parametrize("kind", CELLS)
def test_a_retrofitted_cell_is_run_by_what_it_makes_and_names_its_form(kind: type) -> None:
    plain = drawn(kind(3, 4))
    subject = memaudit.load(retrofitted(copy.deepcopy(plain)))
    wanted = memaudit.load(plain).respond(noise(2, 6, 3).float())
    assert torch.equal(subject.respond(noise(2, 6, 3).float()), wanted)
    assert [block.parameterization for block in only(subject).blocks.values()] == ["exp"]
    assert any("weight_hh is kept as exp" in note for note in subject.identity.notes)
