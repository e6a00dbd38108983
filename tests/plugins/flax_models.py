"""Random classifiers of minimal-LRU and S5 in flax, and what they answer, in numpy."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

INPUTS, WIDTH, STATES, OUTPUTS, LAYERS = 3, 4, 5, 6, 2

Tree = dict[str, np.ndarray]


def lru_layer(rng: np.random.Generator) -> Tree:
    """An LRU with modes well inside the unit circle."""
    draw = rng.standard_normal
    tree = {"nu_log": draw(STATES) - 1.5, "theta_log": draw(STATES), "gamma_log": draw(STATES) - 1}
    tree |= {name: draw((STATES, WIDTH)) for name in ("B_re", "B_im")}
    return tree | {name: draw((WIDTH, STATES)) for name in ("C_re", "C_im")} | {"D": draw(WIDTH)}


def s5_layer(rng: np.random.Generator, *, readout: str = "C") -> Tree:
    """An S5 layer; readout is C, two directions in one (C2P), or apart (C1C2)."""
    draw = rng.standard_normal
    tree = {"Lambda_re": -np.exp(draw(STATES)), "Lambda_im": draw(STATES), "D": draw(WIDTH)}
    tree |= {"B": draw((STATES, WIDTH, 2)), "log_step": draw((STATES, 1)) - 1}
    if readout == "C1C2":
        return tree | {name: draw((WIDTH, STATES, 2)) for name in ("C1", "C2")}
    return tree | {"C": draw((WIDTH, STATES * (2 if readout == "C2P" else 1), 2))}


def classifier(
    rng: np.random.Generator,
    layers: list[Tree],
    *,
    norm: str,
    outs: tuple[str, ...] = ("out1", "out2"),
    batch: bool = False,
) -> Tree:
    """The flat tree of a whole model around the layers."""
    tree = {"params/encoder/encoder/" + k: v for k, v in _dense(rng, INPUTS, WIDTH).items()}
    tree |= {"params/decoder/" + k: v for k, v in _dense(rng, WIDTH, OUTPUTS).items()}
    for i, layer in enumerate(layers):
        here = f"encoder/layers_{i}"
        tree |= {f"params/{here}/seq/{k}": v for k, v in layer.items()}
        for out in outs:
            tree |= {f"params/{here}/{out}/{k}": v for k, v in _dense(rng, WIDTH, WIDTH).items()}
        tree[f"params/{here}/{norm}/scale"] = 1 + 0.3 * rng.standard_normal(WIDTH)
        tree[f"params/{here}/{norm}/bias"] = rng.standard_normal(WIDTH)
        if batch:
            tree[f"batch_stats/{here}/{norm}/mean"] = rng.standard_normal(WIDTH)
            tree[f"batch_stats/{here}/{norm}/var"] = np.exp(rng.standard_normal(WIDTH))
    return tree


def saved(folder: Path, tree: Tree, config: Mapping[str, Any] | None = None) -> Path:
    """The tree as params.npz, with a config beside it."""
    folder.mkdir(parents=True, exist_ok=True)
    np.savez(folder / "params.npz", **tree)  # type: ignore[arg-type]
    if config is not None:
        (folder / "config.json").write_text(json.dumps(config), "utf-8")
    return folder


def run_lru(layer: Tree, u: np.ndarray) -> np.ndarray:
    """The recurrence of minimal-LRU on (T,H), step by step."""
    lam = np.exp(-np.exp(layer["nu_log"]) + 1j * np.exp(layer["theta_log"]))
    b = (layer["B_re"] + 1j * layer["B_im"]) * np.exp(layer["gamma_log"])[:, None]
    c, d = layer["C_re"] + 1j * layer["C_im"], layer["D"]
    return (stepped(lam, b, u) @ c.T).real + (u @ d.T if d.ndim == 2 else d * u)


def run_s5(layer: Tree, u: np.ndarray, config: Mapping[str, Any]) -> np.ndarray:
    """The recurrence of S5 on (T,H), step by step, both ways where it has two readouts."""
    real = layer["Lambda_re"]
    real = np.minimum(real, -1e-4) if config.get("clip_eigs") else real
    rates, dt = real + 1j * layer["Lambda_im"], np.exp(layer["log_step"][:, 0])
    b = layer["B"][..., 0] + 1j * layer["B"][..., 1]
    if config.get("discretization") == "bilinear":
        lam = (1 + dt * rates / 2) / (1 - dt * rates / 2)
        b = (dt / (1 - dt * rates / 2))[:, None] * b
    else:
        lam = np.exp(rates * dt)
        b = ((lam - 1) / rates)[:, None] * b
    readouts = [layer[name] for name in ("C", "C1", "C2") if name in layer]
    c = np.concatenate([r[..., 0] + 1j * r[..., 1] for r in readouts], axis=1)
    states = stepped(lam, b, u)
    if c.shape[1] == 2 * len(lam):
        states = np.concatenate([states, stepped(lam, b, u[::-1])[::-1]], axis=1)
    return (2 if config.get("conj_sym", True) else 1) * (states @ c.T).real + layer["D"] * u


def stepped(lam: np.ndarray, b: np.ndarray, u: np.ndarray) -> np.ndarray:
    """The states (T,P), one after the other."""
    state, states = np.zeros_like(lam), []
    for now in u:
        state = lam * state + b @ now
        states.append(state)
    return np.stack(states)


def answer(tree: Tree, u: np.ndarray, config: Mapping[str, Any], *, norm: str) -> np.ndarray:
    """What the whole model says to (T,D)."""
    x = _apply(tree, "encoder/encoder", u)
    for i in range(LAYERS):
        here = f"encoder/layers_{i}"
        front = f"params/{here}/seq/"
        seq = {k.removeprefix(front): v for k, v in tree.items() if k.startswith(front)}
        fed = _normed(tree, f"{here}/{norm}", x) if config["prenorm"] else x
        y = run_lru(seq, fed) if "nu_log" in seq else run_s5(seq, fed, config)
        x = x + _gated(tree, here, y, config.get("activation", ""))
        x = x if config["prenorm"] else _normed(tree, f"{here}/{norm}", x)
    how = config.get("pooling", config.get("mode"))
    x = x.mean(0) if how in ("mean", "pool") else x[-1] if how == "last" else x
    x = _apply(tree, "decoder", x)
    shape, groups = x.shape, config.get("multidim", 1)
    x = x.reshape(*shape[:-1], -1, groups) if groups > 1 else x
    return (x - np.log(np.exp(x).sum(-1, keepdims=True))).reshape(shape)


def _gated(tree: Tree, here: str, y: np.ndarray, activation: str) -> np.ndarray:
    active = 0.5 * y * (1 + np.tanh(np.sqrt(2 / np.pi) * (y + 0.044715 * y**3)))
    if f"params/{here}/out2/kernel" not in tree:
        return active
    gate = 1 / (1 + np.exp(-_apply(tree, f"{here}/out2", active)))
    if f"params/{here}/out1/kernel" in tree:
        return _apply(tree, f"{here}/out1", active) * gate
    return (y if activation == "half_glu2" else active) * gate


def _normed(tree: Tree, name: str, x: np.ndarray) -> np.ndarray:
    mean, var, epsilon = x.mean(-1, keepdims=True), x.var(-1, keepdims=True), 1e-6
    if f"batch_stats/{name}/mean" in tree:
        mean, var = tree[f"batch_stats/{name}/mean"], tree[f"batch_stats/{name}/var"]
        epsilon = 1e-5
    scale, bias = tree[f"params/{name}/scale"], tree[f"params/{name}/bias"]
    return (x - mean) / np.sqrt(var + epsilon) * scale + bias


def _apply(tree: Tree, name: str, x: np.ndarray) -> np.ndarray:
    return x @ tree[f"params/{name}/kernel"] + tree[f"params/{name}/bias"]


def _dense(rng: np.random.Generator, inputs: int, outputs: int) -> Tree:
    return {"kernel": rng.standard_normal((inputs, outputs)), "bias": rng.standard_normal(outputs)}
