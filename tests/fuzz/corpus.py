"""Honest files of every format, which the fuzzers damage."""

from __future__ import annotations

import argparse
import io
import json
import pickle
from functools import cache
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save

from tests.loading import msgpack_writing as write


def weights() -> dict[str, torch.Tensor]:
    """A tiny recurrent layer, the same in every file."""
    generator = torch.Generator().manual_seed(0)
    shapes = {"weight_ih_l0": (3, 2), "weight_hh_l0": (3, 3), "bias_ih_l0": (3,)}
    return {f"rnn.{k}": torch.randn(s, generator=generator) for k, s in shapes.items()}


@cache
def files() -> dict[str, bytes]:
    """Name → the bytes of an honest file."""
    tensors = weights()
    arrays = {name: tensor.numpy() for name, tensor in tensors.items()}
    plain, packed = io.BytesIO(), io.BytesIO()
    np.savez(plain, **arrays)
    np.savez_compressed(packed, **arrays)
    settings = argparse.Namespace(hidden=3, folder=Path("runs"))
    trained = {"state_dict": tensors, "epoch": 3, "hyper_parameters": {"args": settings}}
    return {
        "a.safetensors": save(tensors, metadata={"format": "pt"}),
        "b.pt": torch_bytes(tensors),
        "c.pt": torch_bytes(tensors, zipped=False),
        "d.npz": plain.getvalue(),
        "e.npz": packed.getvalue(),
        "f.ckpt": torch_bytes(trained),
        "g.ckpt": torch_bytes(trained, zipped=False),
        "h.pkl": pickle.dumps({"a": [1, 2.0, "x"], "b": settings}),
    }


def torch_bytes(content: object, *, zipped: bool = True) -> bytes:
    """What torch.save writes."""
    stream = io.BytesIO()
    torch.save(content, stream, _use_new_zipfile_serialization=zipped)
    return stream.getvalue()


def config() -> bytes:
    """The text of an honest config."""
    values = {"model_type": "rnn", "hidden_size": 3, "num_hidden_layers": 1, "nested": {"a": [1]}}
    return json.dumps(values).encode()


def yaml_config() -> bytes:
    """The text of honest settings as trainers write them."""
    lines = ("model:", "  net: &net", "    size: 3", "  other: *net", "lr: 1e-3", "all: [1, ~]", "")
    return "\n".join(lines).encode()


def flax() -> bytes:
    """Honest parameters as flax writes them."""
    return write.flax(weights())


def index() -> bytes:
    """The text of an honest index of shards."""
    shards = {name: "model-00001-of-00001.safetensors" for name in weights()}
    return json.dumps({"metadata": {"total_size": 72}, "weight_map": shards}).encode()
