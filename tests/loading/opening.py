"""Opens bytes as a file of their own, through the one door."""

from __future__ import annotations

import io
import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch

from memaudit.errors import MemauditError
from memaudit.loading import Checkpoint, open_checkpoint
from memaudit.loading.access import Access, Limits


def opened(data: bytes, name: str = "model.pt", *, allow_pickle: bool = False, **limits: int):
    """The checkpoint in a file with these bytes; mapped tensors outlive the file."""
    with tempfile.TemporaryDirectory(prefix="opened-") as folder:
        path = Path(folder) / name
        path.write_bytes(data)
        return open_checkpoint(path, Access(allow_pickle=allow_pickle, limits=Limits(**limits)))


def refusal(source: bytes | Path, name: str = "model.pt", **options: Any) -> MemauditError:
    """The error for these bytes, or for this path: one line with a code and a next step."""
    with pytest.raises(MemauditError) as caught:
        opened(source, name, **options) if isinstance(source, bytes) else open_checkpoint(source)
    assert caught.value.hint
    assert "\n" not in str(caught.value)
    assert "weights_only" not in str(caught.value)
    return caught.value


def saved(content: object, *, zipped: bool = True, protocol: int = 2) -> bytes:
    """What torch.save writes."""
    buffer = io.BytesIO()
    torch.save(content, buffer, _use_new_zipfile_serialization=zipped, pickle_protocol=protocol)
    return buffer.getvalue()


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two tensors agree in everything; NaN equals itself here."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    return torch.equal(*(t.contiguous().reshape(-1).view(torch.uint8) for t in (a, b)))


def same_weights(found: Checkpoint, expected: dict[str, torch.Tensor]) -> bool:
    """Whether a checkpoint holds these tensors and no others."""
    return found.tensors.keys() == expected.keys() and all(
        same_bits(tensor, expected[name]) for name, tensor in found.tensors.items()
    )
