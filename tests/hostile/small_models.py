"""A small LSTM in every form in which people keep weights, and evil files in the same forms."""

from __future__ import annotations

import json
import os
import pickle
from typing import TYPE_CHECKING

import numpy as np
import torch
from safetensors.torch import save_file
from torch import nn

if TYPE_CHECKING:
    from pathlib import Path

#: A scan that takes a second.
QUICK = ("--quick", "--horizon", "32", "--json", "report.json")
SHARDS = ("model-00001-of-00002", "model-00002-of-00002")


def lstm() -> dict[str, torch.Tensor]:
    """Weights of an LSTM, the same every time."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return {f"rnn.{k}": v.detach().clone() for k, v in nn.LSTM(2, 4).state_dict().items()}


def write(path: Path, *, legacy: bool = False, dtype: torch.dtype | None = None) -> Path:
    """The LSTM in the format that the suffix names."""
    weights = {name: tensor.to(dtype or tensor.dtype) for name, tensor in lstm().items()}
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".safetensors":
        save_file(weights, path)
    elif path.suffix == ".npz":
        np.savez(path, **{name: tensor.numpy() for name, tensor in weights.items()})
    else:
        torch.save(weights, path, _use_new_zipfile_serialization=not legacy)
    return path


def write_shards(folder: Path, suffix: str = ".safetensors") -> Path:
    """The LSTM in two shards with their index."""
    weights = list(lstm().items())
    folder.mkdir(parents=True, exist_ok=True)
    weight_map = {}
    for shard, part in zip(SHARDS, (weights[:2], weights[2:]), strict=True):
        name = shard.replace("model", "pytorch_model" if suffix == ".bin" else "model") + suffix
        if suffix == ".bin":
            torch.save(dict(part), folder / name)
        else:
            save_file(dict(part), folder / name)
        weight_map |= {tensor: name for tensor, _ in part}
    write_index(folder, weight_map, suffix=suffix)
    return folder


def write_index(folder: Path, weight_map: object, *, suffix: str = ".safetensors") -> None:
    """An index that says this."""
    name = {".safetensors": "model.safetensors", ".bin": "pytorch_model.bin"}[suffix]
    folder.mkdir(parents=True, exist_ok=True)
    index = {"metadata": {"total_size": 1}, "weight_map": weight_map}
    (folder / f"{name}.index.json").write_text(json.dumps(index))


def write_evil(path: Path, canary: Path, *, raw: bool = False) -> Path:
    """A file that creates the canary when it is unpickled."""

    class Evil:
        def __reduce__(self) -> tuple[object, ...]:
            return os.system, (f"touch {canary}",)

    path.parent.mkdir(parents=True, exist_ok=True)
    content = {**lstm(), "evil": Evil()}
    if raw:
        path.write_bytes(pickle.dumps(content))
    else:
        torch.save(content, path)
    return path
