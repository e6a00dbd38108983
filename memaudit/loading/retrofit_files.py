"""The two files that make a folder that of a retrofit: the raw weights, and what they mean."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import torch

from memaudit.errors import SourceError
from memaudit.loading.access import SAFE, Access
from memaudit.loading.beside import read_beside
from memaudit.loading.configs.config_text import LARGEST_CONFIG
from memaudit.loading.disk.containment import open_within
from memaudit.loading.formats.strict_json import BadJson, TooManyPieces, parse_object
from memaudit.loading.weight_file import read_weight_file
from memaudit.loading.writing.safetensors_writing import write_safetensors
from memaudit.report_files import write_json

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from memaudit.loading.source import Source

RAW_NAME = "retrofit.safetensors"
RECORD_NAME = "retrofit_config.json"
#: Every retrofitted weight takes about thirty.
MOST_PIECES = 1_000_000


def is_retrofit(folder: Path) -> bool:
    """Whether the folder says that its weights stand behind forms."""
    return os.path.lexists(folder / RECORD_NAME)


def retrofit_folder(source: Source) -> Path | None:
    """The folder of a source that is one of a retrofit; None for every other source."""
    path = source.path
    if source.kind != "path" or path is None or not path.is_dir() or not is_retrofit(path):
        return None
    return path


def read_record(folder: Path) -> dict[str, Any]:
    """What retrofit_config.json spells, as strict JSON of a bounded size."""
    data = read_beside(folder, RECORD_NAME, most=LARGEST_CONFIG)
    if data is None:
        raise no_retrofit(folder)
    try:
        return parse_object(data, most_pieces=MOST_PIECES)
    except BadJson as error:
        fact = f"{RECORD_NAME} {error}"
    except TooManyPieces:
        fact = f"{RECORD_NAME} has more pieces than any retrofit"
    raise SourceError("E_CONFIG", fact, hint="write the folder again", stage="open")


def read_raw_tensors(folder: Path, access: Access = SAFE) -> dict[str, torch.Tensor]:
    """The tensors of retrofit.safetensors."""
    with open_within(folder, RAW_NAME) as file:
        found = read_weight_file(file, access)
    if found.format != "safetensors":
        fact = f"{RAW_NAME} is no safetensors file"
        raise SourceError("E_CORRUPT", fact, hint="write the folder again", stage="open")
    return found.weights.tensors


def write_retrofit_files(
    folder: Path, record: dict[str, Any], raw: Mapping[str, torch.Tensor]
) -> None:
    """Write both; complex128, which the format does not have, as pairs of float64."""
    wide = {n: torch.view_as_real(v) if v.dtype is torch.complex128 else v for n, v in raw.items()}
    write_safetensors(folder / RAW_NAME, wide, metadata={"format": "pt"})
    write_json(record, folder / RECORD_NAME)


def no_retrofit(folder: Path) -> SourceError:
    """The refusal of a folder that is none of a retrofit."""
    return SourceError(
        "E_UNSUPPORTED",
        f"{folder.name or folder} is no retrofit folder: it has no {RECORD_NAME}",
        hint="memaudit retrofit SOURCE --reparam NAME --out DIR writes one",
        source=folder,
        stage="open",
    )
