"""Writes a safetensors file."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import torch

from memaudit.errors import MachineError, SourceError, clean
from memaudit.loading.writing.failing import writing

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

#: What the format has no name for.
_UNNAMED = (torch.complex128, torch.complex32)


def write_safetensors(
    path: Path, tensors: Mapping[str, torch.Tensor], *, metadata: Mapping[str, str] | None = None
) -> None:
    """Write the tensors in their dtypes; tied ones are written as often as they are named."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    odd = next((name for name, value in tensors.items() if value.dtype in _UNNAMED), None)
    if odd is not None:
        raise SourceError(
            "E_UNSUPPORTED",
            f"the tensor {clean(odd)!r} has the dtype {tensors[odd].dtype}, for which the "
            "safetensors format has no name",
            hint="save the checkpoint in complex64 first",
            stage="write",
        )
    try:
        with writing(path):
            save_file(_alone(tensors), path, metadata=dict(metadata or {}))
            path.chmod(_usual_mode())  # the library writes for the owner alone
    except SafetensorError as error:
        raise MachineError(
            "E_DISK",
            f"cannot write: {clean(error)}",
            hint="choose a place that is writable and has room",
            source=path,
            stage="write",
        ) from error


def _usual_mode() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask


def _alone(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The tensors, dense and in storage of their own: the library refuses to share any."""
    seen: set[int] = set()
    found: dict[str, torch.Tensor] = {}
    for name, value in tensors.items():
        dense = value.detach().cpu().contiguous()
        place = dense.untyped_storage().data_ptr()
        size = dense.numel() * dense.element_size()
        if place in seen or size != dense.untyped_storage().nbytes():
            dense = dense.clone()
        seen.add(dense.untyped_storage().data_ptr())
        found[name] = dense
    return found
