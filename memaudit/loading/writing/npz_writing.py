"""Writes a numpy archive."""

from __future__ import annotations

import zipfile
from typing import TYPE_CHECKING

import numpy as np

from memaudit.loading.writing.failing import writing

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import torch


def write_npz(
    path: Path, tensors: Mapping[str, torch.Tensor], *, metadata: Mapping[str, str] | None = None
) -> None:
    """Write every tensor as an array of its name, and texts as arrays of one string.

    Not by numpy.savez, which cannot write an array that is called `file`.
    """
    arrays = {name: np.asarray(text) for name, text in (metadata or {}).items()}
    arrays |= {name: value.detach().cpu().numpy() for name, value in tensors.items()}
    with writing(path), zipfile.ZipFile(path, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asanyarray(array), allow_pickle=False)
