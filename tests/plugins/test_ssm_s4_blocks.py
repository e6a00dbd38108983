"""What S4 puts around its recurrence, written out beside it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from tests.plugins.s4_models import H, N, State, draw, kernel_state, opened, saved
from tests.plugins.test_ssm_s4_old import version_2

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
