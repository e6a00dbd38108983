"""GGUF files, through the package gguf: shapes and formats, and the numbers that make the modes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from memaudit.errors import clean
from memaudit.extras import needs
from memaudit.loading.checkpoint import Checkpoint
from memaudit.loading.files import Stamp, open_regular
from memaudit.loading.formats import corrupt

MAGIC = b"GGUF"
#: Its names inside a block, and those of the libraries that the files are converted from.
_OWN = re.compile(r"blk\.(\d+)\.(ssm_a|ssm_d|ssm_dt\.bias)$")


@dataclass(frozen=True)
class GgufTensors:
    """The checkpoint, whose tensors have no numbers, in what format each is, and the numbers."""

    checkpoint: Checkpoint
    formats: dict[str, str]
    entries: dict[str, Any]

    def read(self, name: str) -> torch.Tensor:
        """One tensor, dequantized by the scales beside it; the file holds A where others log it."""
        from gguf import dequantize

        entry = self.entries[name]
        values = torch.from_numpy(dequantize(entry.data, entry.tensor_type).copy())
        values = values.reshape(self.checkpoint.tensors[name].shape)
        return values.double().neg().log() if name.endswith(".A_log") else values


def is_gguf(path: Path | None) -> bool:
    """Whether a file begins as they do."""
    if path is None or not path.is_file():
        return False
    with open_regular(path) as file:
        return file.read(0, min(file.size, 4)) == MAGIC


def open_gguf(path: Path) -> GgufTensors:
    """The names, shapes and formats of a file."""
    with needs("gguf", extra="gguf"):
        from gguf import GGUFReader
    with open_regular(path) as file:
        stamp = Stamp.of(file, "")
    try:
        reader = GGUFReader(path)
        values = {name: entry.contents() for name, entry in reader.fields.items() if _plain(entry)}
        shapes = {t.name: [int(n) for n in t.shape][::-1] for t in reader.tensors}
        formats = {t.name: t.tensor_type.name for t in reader.tensors}
    except Exception as error:
        fact = f"the GGUF file is cut short or damaged: {clean(error, limit=200)}"
        raise corrupt(fact).at(path) from None
    architecture = clean(values.get("general.architecture", ""), limit=60)
    names = {name: _name(name, shapes) for name in shapes}
    tensors = {names[name]: torch.empty(_shape(name, shapes), device="meta") for name in shapes}
    context = values.get(f"{architecture}.context_length")
    checkpoint = Checkpoint(
        path=path,
        files=(path,),
        format="gguf",
        tensors=tensors,
        container="",
        config={"model_type": architecture, "max_position_embeddings": context},
        config_path=None,
        metadata={},
        sha256="",
        notes=(),
        stamps=(stamp,),
    )
    entries = {names[t.name]: t for t in reader.tensors}
    return GgufTensors(checkpoint, {names[name]: formats[name] for name in formats}, entries)


def _plain(entry: Any) -> bool:
    """Whether a field is one number or one text: the arrays are those of the tokenizer."""
    return len(entry.types) == 1


def _shape(name: str, shapes: Mapping[str, list[int]]) -> list[int]:
    """The shape, without the axis that vectors of Mamba-2 are stored with."""
    shape = shapes[name]
    return shape[:-1] if _OWN.match(name) and len(shape) == 2 and shape[-1] == 1 else shape


def _name(name: str, shapes: Mapping[str, list[int]]) -> str:
    """The name that the recurrent layers of the libraries have."""
    found = _OWN.match(name)
    if found is None:
        return name
    rates = f"blk.{found[1]}.ssm_a"
    per_channel = rates in shapes and len(_shape(rates, shapes)) == 2
    bias = "dt_proj.bias" if per_channel else "dt_bias"
    own = {"ssm_a": "A_log", "ssm_d": "D", "ssm_dt.bias": bias}[found[2]]
    return f"layers.{found[1]}.mixer.{own}"
