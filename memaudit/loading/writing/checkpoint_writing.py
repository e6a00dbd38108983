"""Writes named tensors in the format that they came in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memaudit.loading.writing.msgpack_writing import write_msgpack
from memaudit.loading.writing.npz_writing import write_npz
from memaudit.loading.writing.safetensors_writing import write_safetensors
from memaudit.loading.writing.torch_writing import write_torch

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from torch import Tensor

#: What transformers wants to read in the header of a safetensors file.
WRITTEN_BY = {"format": "pt"}


def write_weights(
    path: Path,
    tensors: Mapping[str, Tensor],
    metadata: Mapping[str, str],
    *,
    file_format: str,
    container: str = "",
) -> None:
    """Write a checkpoint; `metadata` is what stood beside the weights."""
    if file_format == "safetensors":
        write_safetensors(path, tensors, metadata=metadata)
        return
    beside = {name: text for name, text in metadata.items() if (name, text) != ("format", "pt")}
    if file_format == "npz":
        write_npz(path, tensors, metadata=beside)
    elif file_format == "msgpack":
        write_msgpack(path, tensors, metadata=beside)
    else:
        write_torch(path, tensors, container=container, metadata=beside)
