"""Tiny checkpoints of every format, with a recurrence whose modes are all stable."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file

from memaudit.numerics.signals import seeded
from tests.loading.msgpack_writing import flax
from tests.retrofitting.models import recurrent


def rnn_state(*, dtype: torch.dtype = torch.float32) -> dict[str, torch.Tensor]:
    return {f"rnn.{name}": value.to(dtype) for name, value in recurrent().state_dict().items()}


def lru_tree() -> dict[str, torch.Tensor]:
    """One LRU of Flax: |lambda| = exp(-exp(nu_log))."""
    generator, size, width = seeded(0), 4, 3
    draw = {
        "nu_log": (size,),
        "theta_log": (size,),
        "gamma_log": (size,),
        "B_re": (size, width),
        "B_im": (size, width),
        "C_re": (width, size),
        "C_im": (width, size),
        "D": (width,),
    }
    return {
        f"params/seq/{name}": 0.5 * torch.randn(shape, generator=generator) - 1.0
        for name, shape in draw.items()
    }


def nested(flat: dict[str, torch.Tensor]) -> dict:
    tree: dict = {}
    for name, value in flat.items():
        *above, last = name.split("/")
        node = tree
        for key in above:
            node = node.setdefault(key, {})
        node[last] = value
    return tree


def write(folder: Path, kind: str) -> Path:
    """A checkpoint of that kind in the folder."""
    path = folder / {"torch": "rnn.pt", "contained": "last.ckpt"}.get(kind, f"weights.{kind}")
    if kind == "torch":
        torch.save(rnn_state(), path)
    elif kind == "contained":
        state = {"epoch": 3, "name": "tiny", "model_state_dict": rnn_state()}
        torch.save(state, path)
    elif kind == "safetensors":
        save_file(rnn_state(), path, metadata={"format": "pt", "trained_on": "noise"})
    elif kind == "npz":
        arrays: dict[str, Any] = {name: value.numpy() for name, value in lru_tree().items()}
        np.savez(path, **arrays)
    else:
        path.write_bytes(flax(nested(lru_tree())))
    return path


KINDS = ("torch", "contained", "safetensors", "npz", "msgpack")
