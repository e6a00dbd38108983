"""State dicts of S4 made on the spot, and its recurrence written out step by step in numpy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor

from memaudit.interfaces import AbstractSubject, Request
from memaudit.loading import parse_source
from memaudit_ssm import SsmAdapter

State = dict[str, Tensor]
Array = np.ndarray[Any, Any]
#: Features and stored modes of the layers here.
H, N = 4, 3


def draw(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def kernel_state(
    prefix: str = "layer.",
    *,
    copies: int = H,
    channels: int = 1,
    both: bool = False,
    rank: int = 0,
    real: bool = False,
    per_mode: bool = False,
    length: int = 0,
) -> State:
    """A layer of version 4 under a prefix: D and kernel.*, with slow and fast modes."""
    pair = () if real else (2,)
    inside = f"{prefix}kernel."
    state = {
        f"{prefix}D": draw(channels, H, seed=1),
        f"{inside}C": draw(channels * (2 if both else 1), H, N, *pair, seed=2),
        f"{inside}B": draw(1, copies, N, *pair, seed=3),
        f"{inside}inv_dt": 0.5 * draw(H, N if per_mode else 1, seed=4) - 1.5,
        f"{inside}A_real": 0.5 * draw(copies, N, seed=5) - 0.5,
    }
    if not real:
        state[f"{inside}A_imag"] = 2.0 * draw(copies, N, seed=6).abs()
    if rank:
        state[f"{inside}P"] = 0.5 * draw(rank, copies, N, 2, seed=7)
        state[f"{inside}l_kernel"] = torch.tensor(length)
    return state


def saved(
    folder: Path,
    tensors: State,
    config: dict[str, Any] | None = None,
    *,
    name: str = "config.json",
) -> Path:
    """A folder with the tensors and, unless it is None, a config beside them."""
    folder.mkdir(parents=True, exist_ok=True)
    stored = {key: tensor.clone().contiguous() for key, tensor in tensors.items()}
    save_file(stored, folder / "m.safetensors")
    if config is not None:
        (folder / name).write_text(json.dumps(config), encoding="utf-8")
    return folder


def opened(path: Path, dtype: torch.dtype = torch.float64, **options: Any) -> AbstractSubject:
    request = Request(torch.device("cpu"), dtype, None, options=options)
    return SsmAdapter().load(parse_source(path), request)


def require_close(found: Array, wanted: Array) -> None:
    """Equal within the rounding of some hundred products in float64."""
    np.testing.assert_allclose(found, wanted, rtol=0.0, atol=1e-11)


def pairs(tensor: Tensor) -> Array:
    """The last axis (real, imaginary) as complex numbers."""
    return np.asarray(torch.view_as_complex(tensor.contiguous()))


def one_step(rates: Array, left: Array, right: Array, given: Array, dt: Array, how: str) -> Any:
    """The matrix and the input of one step of one feature, over both of each pair."""
    full = np.diag(rates) - np.einsum("rn,rm->nm", left, right)
    steps = np.diag(np.broadcast_to(dt, rates.shape)).astype(complex)
    eye = np.eye(len(rates))
    if how == "bilinear":
        below = eye - steps @ full / 2
        return np.linalg.solve(below, eye + steps @ full / 2), np.linalg.solve(below, steps @ given)
    # x' = A x + B u, u' = 0: its exponential holds both; per-mode steps scale the rows.
    joint = np.zeros((len(rates) + 1,) * 2, dtype=complex)
    joint[:-1, :-1], joint[:-1, -1] = steps @ full, steps @ given
    moved = np.asarray(torch.linalg.matrix_exp(torch.from_numpy(joint)))
    return moved[:-1, :-1], given if how == "dirac" else moved[:-1, -1]


def both_of(half: Array) -> Array:
    return np.concatenate([half, half.conj()], axis=-1)


def bank_answer(parts: dict[str, Array], u: Array, *, how: str, length: int = 0) -> Array:
    """The answer (T,C,H) to u (T,H): rates, inputs (H,N), readout (C,H,N), left, right (R,H,N).

    The readout is undone where it belongs to a kernel of some length; there is no D here.
    """
    steps, features = u.shape
    out = np.zeros((steps, len(parts["readout"]), features))
    for h in range(features):
        rows = {k: both_of(v[..., h, :]) for k, v in parts.items() if k != "dt"}
        dt = parts["dt"][h]
        dt = np.concatenate([dt, dt]) if dt.size > 1 else dt
        moved, fed = one_step(rows["rates"], rows["left"], rows["right"], rows["inputs"], dt, how)
        readout = rows["readout"]
        if length:
            gap = np.eye(len(moved)) - np.linalg.matrix_power(moved, length)
            readout = readout @ np.linalg.inv(gap)
        state = np.zeros(len(moved), dtype=complex)
        for t in range(steps):
            state = moved @ state + fed * u[t, h]
            out[t, :, h] = (readout @ state).real
    return out


def parts_of(
    state: State, prefix: str = "layer.", *, spread: bool = True, dt: Array | None = None
) -> dict[str, Array]:
    """The arrays of `bank_answer` for a complex layer with exp, none and exp as transforms."""
    inside = f"{prefix}kernel."
    rates = -torch.exp(state[f"{inside}A_real"]) - 1j * state[f"{inside}A_imag"]
    low = state.get(f"{inside}P", torch.zeros(0, len(rates), N, 2, dtype=torch.float64))
    left = pairs(low)
    # Feature h takes copy h mod S.
    copies = np.arange(H) % len(rates) if spread else np.arange(H)
    return {
        "rates": np.asarray(rates)[copies],
        "inputs": pairs(state[f"{inside}B"])[0][copies],
        "readout": pairs(state[f"{inside}C"]),
        "left": left[:, copies],
        "right": left.conj()[:, copies],
        "dt": np.exp(np.asarray(state[f"{inside}inv_dt"])) if dt is None else dt,
    }
