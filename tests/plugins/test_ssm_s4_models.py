"""What S4 puts around its recurrence, alone and in its trainer, written out beside it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from memaudit.subjects.hosts import Host
from memaudit_ssm.subject import NetSubject
from tests.plugins import s4_models
from tests.plugins.s4_models import H, N, State, draw, kernel_state, opened, saved
from tests.plugins.test_ssm_s4 import version_2

T = 24
INPUT = draw(2, T, 1, seed=30)
BLOCK = "s4_layers.0."


def stack(block: State, mix: tuple[int, int] | None, *, key: str = "output_linear.0.") -> State:
    """One block between an encoder and a decoder, with a norm that is LayerNorm alone."""
    state = block | {
        "encoder.weight": draw(H, 1, seed=20),
        "encoder.bias": draw(H, seed=21),
        "decoder.weight": torch.eye(H, dtype=torch.float64),
        "decoder.bias": torch.zeros(H, dtype=torch.float64),
        "norms.0.weight": torch.ones(H, dtype=torch.float64),
        "norms.0.bias": torch.zeros(H, dtype=torch.float64),
    }
    if mix is not None:
        state[f"{BLOCK}{key}weight"] = draw(*mix, seed=22)
        state[f"{BLOCK}{key}bias"] = draw(mix[0], seed=23)
    return state


def encoded(state: State) -> Tensor:
    return functional.linear(INPUT, state["encoder.weight"], state["encoder.bias"])


def mixed(x: Tensor, state: State, key: str = "output_linear.0.") -> Tensor:
    return functional.linear(x, state[f"{BLOCK}{key}weight"], state[f"{BLOCK}{key}bias"])


def require_answer(subject: Any, x: Tensor, y: Tensor) -> None:
    assert subject.identity.whole
    wanted = functional.layer_norm(x + y, (H,))
    torch.testing.assert_close(subject.respond(INPUT), wanted, rtol=0, atol=1e-11)


def alone(folder: Path, state: State, u: Tensor, prefix: str) -> Tensor:
    """The answer of the recurrence by itself, with its channels flat."""
    inside = {
        f"layer.{key.removeprefix(prefix)}": tensor
        for key, tensor in state.items()
        if key.startswith((f"{prefix}D", f"{prefix}kernel."))
    }
    return opened(saved(folder / "alone", inside, {"layer": {"d_state": 2 * N}})).respond(u)


@pytest.mark.parametrize(
    ("settings", "channels", "rows", "before", "after"),
    [
        ({"activation": "glu"}, 2, 2 * H, functional.glu, functional.glu),
        ({"activation": None, "final_act": "id"}, 1, H, lambda y: y, lambda y: y),
        ({"mult_act": "tanh"}, 1, 2 * H, lambda y: functional.gelu(y).tanh(), functional.glu),
        ({"activation": "glu-silu"}, 2, 2 * H, None, functional.glu),
        ({"activation": "laplace", "final_act": "relu2"}, 1, H, None, lambda y: y.relu() ** 2),
    ],
)
def test_activations_are_those_that_the_config_names(
    tmp_path: Path,
    settings: dict[str, Any],
    channels: int,
    rows: int,
    before: Callable[[Tensor], Tensor] | None,
    after: Callable[[Tensor], Tensor],
) -> None:
    # Those that torch does not have, by their definitions.
    special = {
        "glu-silu": lambda y: y[..., :H] * functional.silu(y[..., H:]),
        "laplace": lambda y: torch.special.ndtr((y - 0.707107) / 0.282095),
    }
    before = before or special[settings["activation"]]
    state = stack(kernel_state(f"{BLOCK}layer.", channels=channels), (rows, H))
    subject = opened(saved(tmp_path, state, {"layer": settings}))
    x = encoded(state)
    inner = alone(tmp_path, state, x, f"{BLOCK}layer.")
    require_answer(subject, x, after(mixed(before(inner), state)))


@pytest.mark.parametrize("swapped", [True, False])
def test_channels_are_laid_out_as_the_config_says(tmp_path: Path, swapped: bool) -> None:
    state = stack(kernel_state(f"{BLOCK}layer.", channels=2), (2 * H, 2 * H))
    subject = opened(saved(tmp_path, state, {"layer": {"swap_channels": swapped}}))
    x = encoded(state)
    inner = functional.gelu(alone(tmp_path, state, x, f"{BLOCK}layer."))
    if swapped:
        inner = inner.unflatten(-1, (2, H)).mT.flatten(-2)
    require_answer(subject, x, functional.glu(mixed(inner, state)))


def test_a_block_may_do_without_a_mixing_layer(tmp_path: Path) -> None:
    state = stack(kernel_state(f"{BLOCK}layer."), None)
    subject = opened(saved(tmp_path, state, {"layer": {"final_act": None}}))
    x = encoded(state)
    require_answer(subject, x, functional.gelu(alone(tmp_path, state, x, f"{BLOCK}layer.")))


def test_a_bottleneck_of_one_is_a_linear_layer_in_front(tmp_path: Path) -> None:
    state = stack(kernel_state(f"{BLOCK}layer."), (2 * H, H))
    state[f"{BLOCK}input_linear.weight"] = draw(H, H, seed=24)
    state[f"{BLOCK}input_linear.bias"] = draw(H, seed=25)
    subject = opened(saved(tmp_path, state, {"layer": {"bottleneck": 1}}))
    x = encoded(state)
    inner = alone(tmp_path, state, mixed(x, state, "input_linear."), f"{BLOCK}layer.")
    require_answer(subject, x, functional.glu(mixed(functional.gelu(inner), state)))


def test_half_of_the_channels_of_an_older_block_may_multiply_the_other(tmp_path: Path) -> None:
    state = version_2(BLOCK, tied=True, kernels=2) | {f"{BLOCK}D": draw(2, H, seed=1)}
    # Version 2 has a z that is not finite, which a stack does not need.
    state = stack(state, (H, H), key="output_linear.")
    subject = opened(saved(tmp_path, state, {"layer": {"hyper_act": "tanh"}}))
    x = encoded(state)
    value, gate = alone(tmp_path, state, x, BLOCK).chunk(2, dim=-1)
    y = mixed(functional.gelu(gate.tanh() * value), state, "output_linear.")
    require_answer(subject, x, y)


LAYERS = 2


def trainer_saved(folder: Path, tensors: State, config: dict[str, Any]) -> Path:
    """As the trainer saves it: JSON is YAML too."""
    return s4_models.saved(folder, tensors, config, name="config.yaml")


def norm_state(prefix: str, kind: str, seed: int) -> State:
    if kind == "none":
        return {}
    if kind == "scalar":
        names = ("m", "s")
        return {f"{prefix}{n}": draw(1, seed=seed + i) for i, n in enumerate(names)}
    state = {f"{prefix}weight": draw(H, seed=seed), f"{prefix}bias": draw(H, seed=seed + 1)}
    if kind == "batch":
        state |= {
            f"{prefix}running_mean": draw(H, seed=seed + 2),
            f"{prefix}running_var": draw(H, seed=seed + 3).square() + 0.1,
            f"{prefix}num_batches_tracked": torch.tensor(7),
        }
    return state


def normed(x: Tensor, state: State, prefix: str) -> Tensor:
    if f"{prefix}m" in state:
        centred = x - x.mean(dim=-1, keepdim=True)
        spread = centred.square().mean(dim=-1, keepdim=True).sqrt()
        return state[f"{prefix}s"] * (centred + state[f"{prefix}m"]) / spread
    if f"{prefix}weight" not in state:
        return x
    weight, bias = state[f"{prefix}weight"], state[f"{prefix}bias"]
    if f"{prefix}running_mean" in state:
        scale = (state[f"{prefix}running_var"] + 1e-5).sqrt()
        return (x - state[f"{prefix}running_mean"]) / scale * weight + bias
    return functional.layer_norm(x, (H,), weight, bias)


def trainer_state(*, norm: str = "layer", prenorm: bool = True, tokens: int = 0) -> State:
    state: State = {}
    for i in range(LAYERS):
        block = f"model.layers.{i}."
        state |= kernel_state(f"{block}layer.layer.", copies=2, rank=i, length=8)
        state[f"{block}layer.output_linear.0.weight"] = draw(2 * H, H, seed=40 + i)
        state[f"{block}layer.output_linear.0.bias"] = draw(2 * H, seed=50 + i)
        state |= norm_state(f"{block}norm.norm.", norm, 60 + 10 * i)
    if prenorm:
        state |= norm_state("model.norm.norm.", norm, 90)
    if tokens:
        state["encoder.0.weight"] = draw(tokens, H, seed=31)
    else:
        state |= {"encoder.0.weight": draw(H, 2, seed=31), "encoder.0.bias": draw(H, seed=32)}
    state["decoder.0.output_transform.weight"] = draw(3, H, seed=33)
    state["decoder.0.output_transform.bias"] = draw(3, seed=34)
    return state


def trainer_config(**model: Any) -> dict[str, Any]:
    layer = {"_name_": "s4", "d_state": 2 * N, "activation": "gelu", "final_act": "glu"}
    return {
        "dataset": {"l_output": None},
        "encoder": {"_name_": "linear"},
        "decoder": {"_name_": "sequence", "mode": "last"},
        "model": {"layer": layer, "prenorm": True, "norm": "layer", "residual": "R", **model},
    }


def hidden(
    state: State, folder: Path, x: Tensor, *, prenorm: bool = True, residual: bool = True
) -> Tensor:
    """The hidden states behind the blocks, from layers that are opened one by one."""
    for i in range(LAYERS):
        block = f"model.layers.{i}."
        inside = {
            k.removeprefix(f"{block}layer."): t for k, t in state.items() if k.startswith(block)
        }
        alone = {k: t for k, t in inside.items() if k.startswith("layer.")}
        layer = opened(trainer_saved(folder / f"layer{i}", alone, {"layer": {"d_state": 2 * N}}))
        u = normed(x, state, f"{block}norm.norm.") if prenorm else x
        y = functional.gelu(layer.respond(u))
        weight = state[f"{block}layer.output_linear.0.weight"]
        y = functional.glu(
            functional.linear(y, weight, state[f"{block}layer.output_linear.0.bias"])
        )
        x = x + y if residual else y
        x = x if prenorm else normed(x, state, f"{block}norm.norm.")
    return normed(x, state, "model.norm.norm.") if prenorm else x


def decoded(x: Tensor, state: State) -> Tensor:
    name = "decoder.0.output_transform."
    return functional.linear(x, state[f"{name}weight"], state[f"{name}bias"])


def trainer_encoded(u: Tensor, state: State) -> Tensor:
    return functional.linear(u, state["encoder.0.weight"], state["encoder.0.bias"])


@pytest.mark.parametrize(
    ("norm", "residual", "prenorm"),
    [
        ("layer", "R", False),
        ("batch", None, True),
        ("scalar", "R", True),
        ("none", None, False),
        ("batch", "R", False),
    ],
)
def test_norms_and_residuals_stand_where_the_trainer_puts_them(
    tmp_path: Path, norm: str, residual: str | None, prenorm: bool
) -> None:
    state = trainer_state(norm=norm, prenorm=prenorm)
    named = {"scalar": "layer", "none": None}.get(norm, norm)
    config = trainer_config(norm=named, residual=residual, prenorm=prenorm)
    subject = opened(trainer_saved(tmp_path, state, config))
    assert isinstance(subject, NetSubject)
    assert subject.identity.coverage == pytest.approx(1.0)
    u = draw(2, T, 2)
    x = hidden(
        state, tmp_path, trainer_encoded(u, state), prenorm=prenorm, residual=residual == "R"
    )
    torch.testing.assert_close(subject.respond(u), decoded(x, state), rtol=0, atol=1e-10)


@pytest.mark.parametrize(
    ("mode", "kept"),
    [
        ("last", lambda x: x[:, -1]),
        ("first", lambda x: x[:, 0]),
        ("pool", lambda x: x.mean(dim=1)),
        ("sum", lambda x: x.sum(dim=1)),
    ],
)
def test_a_decoder_of_one_step_keeps_what_its_mode_says(
    tmp_path: Path, mode: str, kept: Any
) -> None:
    state = trainer_state()
    config = trainer_config() | {"decoder": {"_name_": "sequence", "mode": mode}}
    config["dataset"] = {"l_output": 0}
    subject = opened(trainer_saved(tmp_path, state, config))
    assert subject.pooled
    u = draw(2, T, 2)
    x = hidden(state, tmp_path, trainer_encoded(u, state))
    torch.testing.assert_close(subject.respond(u), decoded(kept(x), state), rtol=0, atol=1e-10)


def test_a_decoder_of_pictures_averages_unless_it_keeps_all(tmp_path: Path) -> None:
    state, u = trainer_state(), draw(2, T, 2)
    config = trainer_config()
    config["decoder"] = {"_name_": "nd"}
    pooled = opened(trainer_saved(tmp_path / "pool", state, config)).respond(u)
    config["decoder"] = {"_name_": "nd", "mode": "full"}
    full = opened(trainer_saved(tmp_path / "full", state, config)).respond(u)
    x = hidden(state, tmp_path, trainer_encoded(u, state))
    torch.testing.assert_close(full, decoded(x, state), rtol=0, atol=1e-10)
    torch.testing.assert_close(pooled, decoded(x.mean(dim=1), state), rtol=0, atol=1e-10)


def test_an_embedding_takes_tokens(tmp_path: Path) -> None:
    state = trainer_state(tokens=11)
    config = trainer_config() | {"encoder": "embedding"}
    subject = opened(trainer_saved(tmp_path, state, config))
    assert subject.vocabulary == 11
    tokens = torch.tensor([[3, 10, 0, 7, 7]])
    x = hidden(state, tmp_path, state["encoder.0.weight"][tokens])
    torch.testing.assert_close(subject.respond(tokens), decoded(x, state), rtol=0, atol=1e-10)


def test_blocks_are_hooked_by_their_names(tmp_path: Path) -> None:
    subject = opened(trainer_saved(tmp_path, trainer_state(), trainer_config()))
    heard: dict[str, Tensor] = {}
    subject.respond_with_hook(draw(1, T, 2), lambda name, x: heard.update({name: x}))
    assert tuple(heard) == subject.layers() == ("model.layers.0", "model.layers.1")
    assert all(x.shape == (1, T, H) for x in heard.values())


@pytest.mark.parametrize(
    ("model", "rest"),
    [
        ({"pool": {"_name_": "pool", "stride": 4, "expand": None}}, {}),
        ({"residual": "D"}, {}),
        ({"norm": {"_name_": "layer", "eps": 0.1}}, {}),
        ({"norm": "group"}, {}),
        ({"norm": {"_name_": "group"}}, {}),
        ({}, {"decoder": "retrieval"}),
        ({"encoder": "position"}, {}),
        ({}, {"decoder": {"_name_": "sequence", "mode": "ragged"}}),
        ({}, {"decoder": {"_name_": "sequence", "mode": "pool"}}),
        ({}, {"decoder": [{"_name_": "sequence"}, {"_name_": "linear"}]}),
        ({}, {"encoder": {"_name_": "conv1d"}}),
    ],
)
def test_what_is_not_known_around_the_layers_leaves_them_alone(
    tmp_path: Path, model: dict[str, Any], rest: dict[str, Any]
) -> None:
    config = trainer_config(**model) | rest
    subject = opened(trainer_saved(tmp_path, trainer_state(), config))
    assert isinstance(subject, Host)
    assert len(subject.parts()) == LAYERS
    assert any("one by one" in note for note in subject.identity.notes)


def test_a_second_direction_of_blocks_leaves_the_layers_alone(tmp_path: Path) -> None:
    state = trainer_state()
    state |= kernel_state("model.layers.0.reverse_layer.layer.")
    state["model.layers.0.bidirectional_linear.weight"] = draw(H, 2 * H)
    subject = opened(trainer_saved(tmp_path, state, trainer_config(bidirectional=True)))
    assert isinstance(subject, Host)
    assert len(subject.parts()) == LAYERS + 1
