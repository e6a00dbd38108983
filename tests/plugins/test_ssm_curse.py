"""The models of Curse-of-memory come out as they were recorded, and as their recurrence says."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

import memaudit
from memaudit.errors import MemauditError, SourceError
from memaudit.loading import open_checkpoint
from memaudit_ssm.curse import ACTIVATIONS, BLOCKS, CELLS, CurseFamily, ResidualRNN
from memaudit_ssm.settings import Hyperparameters

FOLDER = Path(__file__).parents[2].parent / "shared" / "fixtures" / "curse_of_memory"
NAMES = ("rnn", "softplusrnn", "diagonalrnn", "lru", "ssm")
recorded = [
    pytest.mark.shared,
    pytest.mark.skipif(not FOLDER.is_dir(), reason="no reference checkpoints beside the checkout"),
]


def shared_test(test: Any) -> Any:
    for mark in recorded:
        test = mark(test)
    return test


def made(cell: str, *, activation: str = "linear", dt: float = 0.3, width: int = 6) -> ResidualRNN:
    generator = torch.Generator().manual_seed(4)
    layer = BLOCKS[cell](width, dt=dt, activation=activation, generator=generator).double()
    if cell in ("rnn", "softplusrnn", "ssm"):
        # Training leaves P near an orthogonal matrix, not at one.
        with torch.no_grad():
            layer.get_parameter("P.weight").mul_(1.1).add_(0.02)
    return layer.requires_grad_(False)


def stepped(layer: ResidualRNN, x: torch.Tensor) -> torch.Tensor:
    """The recurrence of the paper's code, one product after the other."""
    raw, act = layer.W.weight, ACTIVATIONS[layer.activation]
    h, states = torch.zeros_like(x[:, 0]), []
    for now in x.unbind(1):
        if layer.cell == "lru":
            w = torch.exp(-torch.exp(raw)) - 1
            h = h + layer.dt * act(w * h + torch.sqrt(1 - w * w) * now)
        else:
            w = torch.nn.functional.softplus(raw) if layer.cell == "softplusrnn" else raw.relu()
            p = (
                torch.eye(layer.width, dtype=x.dtype)
                if layer.cell == "diagonalrnn"
                else layer.P.weight
            )
            h = h + layer.dt * act(now - (w * (h @ p.mT)) @ p)
        states.append(h)
    return torch.stack(states, 1)


@pytest.mark.parametrize("cell", NAMES)
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_every_cell_is_its_recurrence(cell: str, activation: str) -> None:
    layer = made(cell, activation=activation)
    x = 3.0 * torch.randn(2, 80, 6, generator=torch.Generator().manual_seed(1)).double()
    for execution in ("auto", "convolution", "stepping"):
        layer.execution = execution
        torch.testing.assert_close(layer.run(x), stepped(layer, x), rtol=0, atol=1e-12)


@pytest.mark.parametrize("cell", NAMES)
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_the_modes_are_those_of_the_step_at_rest(cell: str, activation: str) -> None:
    layer = made(cell, activation=activation)
    still = torch.zeros(1, 1, 6, dtype=torch.float64)

    def step(h: torch.Tensor) -> torch.Tensor:
        # A first step of x / dt / gain puts the state at x, if the activation lets it through.
        gains = layer.dt * layer.gains()
        return stepped(layer, torch.cat([(h / gains)[None, None], still], 1))[0, -1]

    jacobian = torch.autograd.functional.jacobian(step, torch.zeros(6, dtype=torch.float64))
    expected = torch.linalg.eigvals(jacobian)
    assert float(expected.imag.abs().max()) < 1e-12
    found = layer.modes()
    assert float(found.imag.abs().max()) == 0.0
    torch.testing.assert_close(
        found.real.sort().values, expected.real.sort().values, rtol=0, atol=1e-12
    )


@pytest.mark.parametrize("cell", NAMES)
def test_a_linear_cell_has_its_kernel_and_another_has_none(cell: str) -> None:
    assert made(cell, activation="tanh").systems() == {}
    layer = made(cell)
    (system,) = layer.systems().values()
    u = torch.zeros(1, 90, 6, dtype=torch.float64)
    u[0, 0, 2] = 1.0
    kernel = system.kernel(0, 90)
    column = torch.zeros(90, 6, dtype=torch.float64)
    if system.banked:
        column[:, 2] = kernel[:, 0, 2]
    else:
        column = kernel[:, :, 2]
    torch.testing.assert_close(column, stepped(layer, u)[0], rtol=0, atol=1e-13)


@pytest.mark.parametrize("cell", ["rnn", "diagonalrnn", "ssm"])
def test_a_weight_that_is_not_positive_keeps_its_state_for_ever(cell: str) -> None:
    layer = made(cell)
    with torch.no_grad():
        layer.W.weight[:3] = torch.tensor([-1.0, 0.0, -1e-9])
    modes = layer.modes().real
    assert int((modes == 1.0).sum()) >= 3
    assert float(modes.max()) == 1.0


def test_an_unknown_activation_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"relu.*linear, tanh, hardtanh"):
        CELLS["rnn"](3, activation="relu")


def facts(options: dict[str, Any], config: dict[str, Any] | None = None) -> Hyperparameters:
    return Hyperparameters(options, config or {})


def state_of(layer: ResidualRNN) -> dict[str, torch.Tensor]:
    return {f"net.{name}": tensor for name, tensor in layer.state_dict().items()}


@pytest.mark.parametrize("cell", NAMES)
def test_without_a_config_class_step_and_activation_are_asked_for_by_name(cell: str) -> None:
    state, family = state_of(made(cell)), CurseFamily()
    (group,) = family.find(state)
    asked = facts({})
    family.layer(group, state, asked)
    with pytest.raises(SourceError, match=r"cell, dt, activation") as caught:
        asked.settle()
    assert caught.value.code == "E_CONFIG"
    told = facts({"cell": cell, "dt": 0.3, "activation": "tanh"})
    layer = family.layer(group, state, told)
    told.settle()
    assert (layer.cell, layer.dt, layer.activation) == (cell, 0.3, "tanh")
    assert told.assumed == {}


@pytest.mark.parametrize("word", ["src.models.recurrent.simple_rnn.SimpleRNN", "SimpleRNN", "rnn"])
def test_the_class_is_known_by_its_path_its_name_and_its_short_name(word: str) -> None:
    state, family = state_of(made("rnn")), CurseFamily()
    said = facts({}, {"model": {"net": {"_target_": word}}})
    layer = family.layer(family.find(state)[0], state, said)
    said.settle()
    assert (layer.cell, layer.dt, layer.activation) == ("rnn", 1.0, "linear")
    assert set(said.assumed) == {"dt", "activation"}


@pytest.mark.parametrize(
    ("net", "words"),
    [
        ({"_target_": "src.Transformer"}, ["src.Transformer", "softplusrnn"]),
        ({"_target_": "LRU"}, ["lru", "net.P.weight"]),
        ({"_target_": "SimpleSSM"}, ["ssm", "net.g.linear1.weight"]),
        ({"_target_": "SimpleRNN", "rec1_size": 5}, ["rec1_size = 5", "net.W.weight", "6"]),
        ({"_target_": "SimpleRNN", "dt": -1.0}, ["dt is -1", "positive"]),
        ({"_target_": "SimpleRNN", "dt": float("nan")}, ["dt is nan", "positive"]),
        ({"_target_": "SimpleRNN", "dt": None}, ["dt"]),
        ({"_target_": "SimpleRNN", "activation": "relu"}, ["activation is relu", "hardtanh"]),
    ],
)
def test_a_config_that_contradicts_the_weights_is_refused(
    net: dict[str, Any], words: list[str]
) -> None:
    state, family = state_of(made("rnn")), CurseFamily()
    with pytest.raises(MemauditError) as caught:
        family.layer(family.find(state)[0], state, facts({}, {"net": net}))
    assert caught.value.code == "E_CONFIG"
    assert all(word in caught.value.line() for word in words)


def test_a_net_built_without_relu_is_refused_where_that_matters() -> None:
    layer = made("diagonalrnn")
    assert bool((layer.W.weight < 0).any())
    state, family = state_of(layer), CurseFamily()
    said = facts({}, {"net": {"_target_": "SimpleDiagonalRNN", "training": False}})
    with pytest.raises(SourceError, match=r"W\.weight, which has negative entries"):
        family.layer(family.find(state)[0], state, said)


@pytest.mark.parametrize("name", ["head.W.weight", "W.weight.x", "net.WW.weight"])
def test_a_vector_called_w_somewhere_is_not_enough(name: str) -> None:
    assert CurseFamily().find({name: torch.zeros(4), "other": torch.zeros(4, 4)}) == []


def probe(kind: str) -> torch.Tensor:
    signal = torch.zeros(1, 512, 1, dtype=torch.float64)
    if kind == "heaviside":
        signal[:] = 1.0
    if kind == "impulse":
        signal[:, 0] = 1.0
    return signal


@shared_test
def test_the_last_state_alone_is_read_when_the_config_says_so(tmp_path: Path) -> None:
    shutil.copy(FOLDER / "rnn" / "last.ckpt", tmp_path)
    text = (FOLDER / "rnn" / "config.yaml").read_text()
    (tmp_path / "config.yaml").write_text(text.replace("sequences: true", "sequences: false"))
    subject, signal = memaudit.load(tmp_path), probe("heaviside")
    assert subject.pooled
    expected = memaudit.load(FOLDER / "rnn").respond(signal)[:, -1]
    torch.testing.assert_close(subject.respond(signal), expected, rtol=0, atol=1e-12)


@shared_test
@pytest.mark.parametrize("name", ["curse_of_memory/rnn", "stablessm/exp"])
def test_the_activation_behind_the_decoder_is_the_one_of_its_own_config(
    tmp_path: Path, name: str
) -> None:
    folder = FOLDER.parent / name
    shutil.copy(folder / "last.ckpt", tmp_path)
    text, signal = (folder / "config.yaml").read_text(), probe("impulse")
    said = text.replace("  decoder:\n", "  decoder:\n    activation: tanh\n")
    (tmp_path / "config.yaml").write_text(said)
    answer = memaudit.load(tmp_path).respond(signal)
    expected = torch.tanh(memaudit.load(folder).respond(signal))
    torch.testing.assert_close(answer, expected, rtol=0, atol=1e-12)
    (tmp_path / "config.yaml").write_text(said.replace("activation: tanh", "activation: sine"))
    with pytest.raises(SourceError, match=r"sine.*softmax"):
        memaudit.load(tmp_path)


@shared_test
def test_the_net_alone_is_run_without_its_surroundings(tmp_path: Path) -> None:
    tensors = dict(open_checkpoint(FOLDER / "ssm").tensors)
    net = {name: t.contiguous() for name, t in tensors.items() if name.startswith("net.")}
    save_file(net, tmp_path / "model.safetensors")
    shutil.copy(FOLDER / "ssm" / "config.yaml", tmp_path)
    host = memaudit.load(tmp_path)
    assert not host.identity.whole
    (layer,) = host.parts().values()
    assert sorted(layer.weights()) == ["P.weight", "W.weight"]
    # g and f stand around the recurrence, and are not run.
    assert host.identity.coverage == (64 + 64 * 64) / sum(t.numel() for t in net.values())
    assert any("g.linear1.weight" in note for note in host.identity.notes)
