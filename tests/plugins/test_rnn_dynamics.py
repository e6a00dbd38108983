"""A recurrent stack as a map of its state goes the way that torch's own modules go."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.func import jacrev

from memaudit.interfaces import AbstractDynamics, AbstractSubject, Request
from memaudit.loading.source import parse_source
from memaudit_rnn import RnnAdapter
from memaudit_rnn.network import advance, cell_weights, drive
from memaudit_rnn.subject import RnnDynamics, RnnHost
from memaudit_timm.recurrent import LayerSubject, recurrences

FOLDER = Path(__file__).parents[2].parent / "shared" / "fixtures" / "torch_rnn"
MODES = ("RNN_TANH", "RNN_RELU", "GRU", "LSTM")
EXACT = 1e-12
WIDE = torch.float64


def opened(source: object, dtype: torch.dtype | None = None) -> AbstractSubject:
    return RnnAdapter().load(
        parse_source(source), Request(torch.device("cpu"), dtype, None, options={})
    )


def noise(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=WIDE)


def layer_of(mode: str, *sizes: int, seed: int = 1, **options: object) -> nn.RNNBase:
    """A layer in double precision with weights of its own."""
    kind, *word = mode.split("_")
    if word:
        options["nonlinearity"] = word[0].lower()
    layer = getattr(nn, kind)(*sizes, batch_first=True, **options).to(WIDE)
    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in layer.parameters():
            weight.uniform_(-0.6, 0.6, generator=draw)
    return layer.eval().requires_grad_(False)


def walked(dynamics: AbstractDynamics, inputs: Tensor) -> Tensor:
    """The states (B,T,n) under the inputs (B,T,D)."""
    state = dynamics.initial().expand(len(inputs), -1)
    states = []
    for u in inputs.unbind(1):
        state = dynamics.step(state, u)
        states.append(state)
    return torch.stack(states, 1)


def only(subject: AbstractSubject) -> AbstractDynamics:
    (dynamics,) = subject.dynamics().values()
    return dynamics


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("cell", [nn.RNNCell, nn.GRUCell, nn.LSTMCell])
def test_a_step_is_that_of_torchs_cell(cell: type[nn.GRUCell], bias: bool) -> None:
    module = cell(3, 4, bias=bias, dtype=WIDE).requires_grad_(False)
    mode = {"RNNCell": "RNN_TANH", "GRUCell": "GRU", "LSTMCell": "LSTM"}[cell.__name__]
    named = {f"{name}_l0": value for name, value in module.named_parameters()}
    weights, x = cell_weights(named, "_l0"), noise(5, 3)
    state = tuple(noise(5, 4, seed=2 + part) for part in range(len(weights.sizes)))
    after = module(x, state if mode == "LSTM" else state[0])
    expected = after if mode == "LSTM" else (after,)
    for mine, theirs in zip(
        advance(mode, drive(mode, x, weights), state, weights), expected, strict=True
    ):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=EXACT)


@pytest.mark.parametrize("mode", MODES)
def test_copies_step_as_each_of_them_does_alone(mode: str) -> None:
    layers = [layer_of(mode, 3, 4, seed=seed) for seed in range(3)]
    named = [dict(layer.named_parameters()) for layer in layers]
    together = {name: torch.stack([each[name] for each in named]) for name in named[0]}
    weights = cell_weights(together, "_l0")
    x = noise(5, 3)
    state = tuple(noise(3, 5, 4, seed=part) for part in range(len(weights.sizes)))
    after = advance(mode, drive(mode, x, weights), state, weights)
    for k, each in enumerate(named):
        own = cell_weights(each, "_l0")
        alone = advance(mode, drive(mode, x, own), tuple(part[k] for part in state), own)
        for mine, theirs in zip(after, alone, strict=True):
            torch.testing.assert_close(mine[k], theirs, rtol=0, atol=EXACT)


@pytest.mark.parametrize("mode", MODES)
def test_the_last_block_holds_what_the_stack_answers(mode: str) -> None:
    layer, inputs = layer_of(mode, 3, 4, 3), noise(2, 9, 3)
    dynamics = only(opened(layer))
    states = walked(dynamics, inputs)
    name = mode.split("_")[0].lower()
    assert list(dynamics.blocks) == [f"{name}.l0", f"{name}.l1", f"{name}.l2"]
    start = dynamics.blocks[f"{name}.l2"].start
    torch.testing.assert_close(states[..., start : start + 4], layer(inputs)[0], rtol=0, atol=EXACT)


def test_a_projected_lstm_keeps_a_short_h_and_a_long_c() -> None:
    layer, inputs = layer_of("LSTM", 3, 5, 2, proj_size=2), noise(2, 9, 3)
    states = walked(only(opened(layer)), inputs)
    _, (h, c) = layer(inputs)
    expected = torch.cat([h[0], c[0], h[1], c[1]], dim=-1)
    torch.testing.assert_close(states[:, -1], expected, rtol=0, atol=EXACT)


def test_blocks_say_what_the_layer_is() -> None:
    for mode, kept in (("RNN_RELU", "direct"), ("GRU", "gated"), ("LSTM", "gated")):
        (block,) = only(opened(layer_of(mode, 3, 4))).blocks.values()
        assert (block.cell, block.parameterization) == (mode.split("_")[0], kept)


@pytest.mark.parametrize("mode", ["GRU", "LSTM"])
def test_the_jacobian_is_block_triangular(mode: str) -> None:
    dynamics = only(opened(layer_of(mode, 2, 3, 2, bidirectional=True)))
    state, u = walked(dynamics, noise(1, 4, 2))[:, -1], noise(1, 2, seed=9)
    jacobian = jacrev(lambda s: dynamics.step(s[None], u)[0])(state[0])
    blocks = list(dynamics.blocks.values())
    for k, block in enumerate(blocks):
        own = jacobian[block.start : block.stop]
        assert own[:, block.start : block.stop].abs().max() > 0
        for later in blocks[k + 1 :]:
            assert torch.equal(
                own[:, later.start : later.stop],
                torch.zeros_like(own[:, : later.stop - later.start]),
            )


@pytest.mark.parametrize("mode", MODES)
def test_two_directions_settle_where_the_middle_of_a_long_input_is(mode: str) -> None:
    layer = layer_of(mode, 2, 3, 2, bidirectional=True)
    with torch.no_grad():
        for weight in layer.parameters():
            weight.mul_(0.5)
    dynamics = only(opened(layer))
    assert not dynamics.causal
    name = mode.split("_")[0].lower()
    assert list(dynamics.blocks) == [
        f"{name}.l{depth}.{way}" for depth in range(2) for way in ("forward", "backward")
    ]
    inputs = noise(1, 1, 2).expand(1, 401, 2)
    settled = walked(dynamics, inputs)[0, -1]
    starts = [dynamics.blocks[f"{name}.l1.{way}"].start for way in ("forward", "backward")]
    shown = torch.cat([settled[start : start + 3] for start in starts])
    torch.testing.assert_close(shown, layer(inputs)[0][0, 200], rtol=0, atol=EXACT)


def test_a_step_is_done_in_the_dtype_of_the_state() -> None:
    layer = layer_of("LSTM", 3, 4)
    narrow = only(opened(layer, torch.float32))
    assert narrow.initial().dtype == torch.float32
    wide = RnnDynamics(layer.float().double(), ["rnn"])
    state, u = noise(2, 8), noise(2, 3)
    torch.testing.assert_close(narrow.step(state, u), wide.step(state, u), rtol=0, atol=EXACT)


def test_a_linear_encoder_belongs_to_the_step() -> None:
    layer, encoder = layer_of("GRU", 3, 4), nn.Linear(2, 3, dtype=WIDE).requires_grad_(False)
    dynamics, inputs = RnnDynamics(layer, ["rnn"], encoder=encoder), noise(2, 7, 2)
    assert dynamics.width == 2
    torch.testing.assert_close(
        walked(dynamics, inputs), layer(encoder(inputs))[0], rtol=0, atol=EXACT
    )


def test_a_host_has_the_stack_of_every_part() -> None:
    module = nn.ModuleDict({"a": nn.GRU(3, 4, 2), "b": nn.LSTMCell(4, 5)})
    host = opened(module)
    assert isinstance(host, RnnHost)
    stacks = host.dynamics()
    assert {name: list(stack.blocks) for name, stack in stacks.items()} == {
        "a": ["a.l0", "a.l1"],
        "b": ["b"],
    }


def test_a_recurrent_layer_of_timm_is_a_map_of_its_state() -> None:
    layer = layer_of("LSTM", 3, 4, bidirectional=True)
    identity = replace(opened(layer).identity, recurrences=recurrences("stages.0.rnn", layer))
    stacks = LayerSubject(layer, identity).dynamics()
    assert {name: list(stack.blocks) for name, stack in stacks.items()} == {
        "stages.0.rnn": ["stages.0.rnn.forward", "stages.0.rnn.backward"]
    }


@pytest.mark.shared
@pytest.mark.skipif(not FOLDER.is_dir(), reason="no reference checkpoints beside the checkout")
@pytest.mark.parametrize("name", ["lstm_uni", "gru_uni", "rnn_uni"])
def test_jacobians_of_the_reference_checkpoints_come_out_as_recorded(name: str) -> None:
    recorded = load_file(FOLDER / name / "io.safetensors")
    dynamics = only(opened(FOLDER / name))
    silence = torch.zeros(1, 512, dynamics.width, dtype=WIDE)
    state = walked(dynamics, silence)[0, -1]
    order = _by_kind(dynamics)
    torch.testing.assert_close(state[order], recorded["zero_state64"], rtol=0, atol=EXACT)
    jacobian = jacrev(lambda s: dynamics.step(s[None], silence[:, 0])[0])(state)
    torch.testing.assert_close(
        jacobian[order][:, order], recorded["zero_jacobian64"], rtol=0, atol=1e-11
    )
    spans = [slice(block.start, block.stop) for block in dynamics.blocks.values()]
    found = torch.cat([torch.linalg.eigvals(jacobian[span, span]) for span in spans])
    expected = torch.complex(recorded["eigs_real"], recorded["eigs_imag"])
    distances = (found[:, None] - expected[None]).abs()
    assert distances.amin(1).max() < 1e-9
    assert distances.amin(0).max() < 1e-9


def _by_kind(dynamics: AbstractDynamics) -> Tensor:
    """The order of the records: h of all layers, then c of all layers."""
    blocks = list(dynamics.blocks.values())
    parts = 2 if blocks[0].cell == "LSTM" else 1
    split = [torch.arange(block.start, block.stop).chunk(parts) for block in blocks]
    return torch.cat([indices[part] for part in range(parts) for indices in split])
