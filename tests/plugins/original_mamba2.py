"""A Mamba-2 language model in its first authors' format, and its formulas step by step."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file

State = dict[str, torch.Tensor]
Array = np.ndarray

WIDTH, INNER, HEADS, STATES, KERNEL, LAYERS, ROWS = 12, 24, 3, 5, 4, 2, 40
MIXED = INNER + 2 * STATES
#: As the original code writes it; the table is padded to a multiple of 8.
CONFIG: dict[str, Any] = {
    "d_model": WIDTH,
    "d_intermediate": 0,
    "n_layer": LAYERS,
    "vocab_size": 37,
    "ssm_cfg": {"layer": "Mamba2"},
    "attn_layer_idx": [],
    "attn_cfg": {},
    "rms_norm": True,
    "residual_in_fp32": True,
    "fused_add_norm": True,
    "pad_vocab_size_multiple": 8,
    "tie_embeddings": True,
}


def shapes(*, bias: bool = False, conv_bias: bool = True) -> dict[str, tuple[int, ...]]:
    """The shapes of the tensors of one mixer."""
    found: dict[str, tuple[int, ...]] = {
        "dt_bias": (HEADS,),
        "A_log": (HEADS,),
        "D": (HEADS,),
        "in_proj.weight": (INNER + MIXED + HEADS, WIDTH),
        "conv1d.weight": (MIXED, 1, KERNEL),
        "norm.weight": (INNER,),
        "out_proj.weight": (WIDTH, INNER),
    }
    found |= {"conv1d.bias": (MIXED,)} if conv_bias else {}
    return found | (
        {"in_proj.bias": (INNER + MIXED + HEADS,), "out_proj.bias": (WIDTH,)} if bias else {}
    )


def drawn(
    *,
    layers: int = LAYERS,
    bias: bool = False,
    conv_bias: bool = True,
    dtype: torch.dtype = torch.float64,
) -> State:
    """Random tensors by their original names, the head tied to the table."""
    generator = torch.Generator().manual_seed(11)

    def draw(*shape: int, middle: float = 0.0, spread: float = 1.0) -> torch.Tensor:
        noise = torch.randn(shape, generator=generator, dtype=torch.float64)
        return (middle + spread * noise).to(dtype)

    state = {"backbone.embedding.weight": draw(ROWS, WIDTH)}
    for number in range(layers):
        prefix = f"backbone.layers.{number}."
        for name, shape in shapes(bias=bias, conv_bias=conv_bias).items():
            middle = {"dt_bias": -2.0, "A_log": 0.5, "norm.weight": 1.0}.get(name, 0.0)
            state[f"{prefix}mixer.{name}"] = draw(*shape, middle=middle, spread=0.4)
        state[f"{prefix}norm.weight"] = draw(WIDTH, middle=1.0, spread=0.2)
    state["backbone.norm_f.weight"] = draw(WIDTH, middle=1.0, spread=0.2)
    state["lm_head.weight"] = state["backbone.embedding.weight"]
    return state


def written(
    folder: Path, state: State, *, safe: bool = False, config: Mapping[str, Any] | None = CONFIG
) -> Path:
    """A folder as the original code, or the hub's, writes it."""
    if safe:  # tied tensors share memory, which this format does not hold
        own = {name: tensor for name, tensor in state.items() if name != "lm_head.weight"}
        save_file(own, folder / "model.safetensors", metadata={"format": "pt"})
    else:
        torch.save(state, folder / "pytorch_model.bin")
    if config is not None:
        (folder / "config.json").write_text(json.dumps(config))
    return folder


def mixers(**changed: Any) -> dict[str, Any]:
    """The config with more said about its mixers."""
    return {**CONFIG, "ssm_cfg": {**CONFIG["ssm_cfg"], **changed}}


def stepped(
    state: State, inputs: Array, *, limit: tuple[float, float] = (0.0, np.inf)
) -> list[Array]:
    """The hidden states after every layer, then the normed last one, for inputs (B,T,width)."""
    weights = {name: tensor.double().numpy() for name, tensor in state.items()}
    hidden, found = inputs.astype(np.float64), []
    for number in range(sum(name.endswith(".A_log") for name in weights)):
        prefix = f"backbone.layers.{number}."
        own = {k.removeprefix(prefix): w for k, w in weights.items() if k.startswith(prefix)}
        normed = _normed(hidden, own["norm.weight"])
        mixer = {k.removeprefix("mixer."): w for k, w in own.items() if k.startswith("mixer.")}
        hidden = hidden + np.stack([_mixed(row, mixer, limit) for row in normed])
        found.append(hidden)
    return [*found, _normed(hidden, weights["backbone.norm_f.weight"])]


def eigenvalues(state: State, layer: int) -> Array:
    """What one step multiplies every head's state by while dt is at its bias."""
    prefix = f"backbone.layers.{layer}.mixer."
    rates, bias = (state[prefix + end].double().numpy() for end in ("A_log", "dt_bias"))
    return np.exp(-np.exp(rates) * np.log1p(np.exp(bias)))


def _mixed(inputs: Array, w: dict[str, Array], limit: tuple[float, float]) -> Array:
    """One mixer over one sequence (T,width), a step at a time."""
    heads = len(w["A_log"])
    inner = len(w["norm.weight"])
    channels, _, kernel = w["conv1d.weight"].shape
    n = (channels - inner) // 2
    window = np.zeros((channels, kernel))
    memory = np.zeros((heads, inner // heads, n))
    answers = []
    for u in inputs:
        projected = w["in_proj.weight"] @ u + w.get("in_proj.bias", 0.0)
        gate, mixed, dt = np.split(projected, [inner, inner + channels])
        window = np.column_stack([window[:, 1:], mixed])
        heard = _silu((window * w["conv1d.weight"][:, 0]).sum(1) + w.get("conv1d.bias", 0.0))
        x, b, c = np.split(heard, [inner, inner + n])
        dt = np.clip(np.log1p(np.exp(dt + w["dt_bias"])), *limit)
        x = x.reshape(heads, -1)
        for head in range(heads):
            memory[head] *= np.exp(-dt[head] * np.exp(w["A_log"][head]))
            memory[head] += dt[head] * np.outer(x[head], b)
        y = memory @ c + w["D"][:, None] * x
        normed = _normed(y.ravel() * _silu(gate), w["norm.weight"])
        answers.append(w["out_proj.weight"] @ normed + w.get("out_proj.bias", 0.0))
    return np.stack(answers)


def _normed(values: Array, weight: Array) -> Array:
    """The root mean square norm with the epsilon of the original code."""
    return weight * values / np.sqrt((values**2).mean(-1, keepdims=True) + 1e-5)


def _silu(values: Array) -> Array:
    return values / (1.0 + np.exp(-values))
