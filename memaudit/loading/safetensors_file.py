"""A safetensors file: named tensors behind a JSON header."""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError
from safetensors.torch import load

from memaudit.errors import SourceError
from memaudit.loading.tensors import plain_tensor

if TYPE_CHECKING:
    import torch

#: A million empty tensors take a minute to parse; the headers of real models are far smaller.
LARGEST_HEADER = 16 << 20


def read_safetensors(data: bytes) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    """The tensors in the order of their data, and the header's metadata."""
    (length,) = struct.unpack("<Q", data[:8])
    if length > LARGEST_HEADER:
        raise SourceError(
            "E_LIMIT",
            f"the safetensors header claims {length} bytes, more than {LARGEST_HEADER}",
            hint="the file is damaged, or it holds too many tensors",
            stage="open",
        )
    try:
        loaded = load(data)
    except KeyError as error:
        raise SourceError(
            "E_UNSUPPORTED",
            f"the safetensors file holds numbers of the type {error.args[0]}",
            hint="save it in float32, float16 or bfloat16",
            stage="open",
        ) from None
    except (SafetensorError, ValueError, RuntimeError, AssertionError, OverflowError):
        raise _damaged("the safetensors file is cut short or damaged") from None
    header = json.loads(data[8 : 8 + length], object_pairs_hook=_without_duplicates)
    metadata = header.pop("__metadata__", None) or {}
    names = sorted(loaded, key=lambda name: header[name]["data_offsets"])
    tensors = {name: plain_tensor(name, loaded[name]) for name in names}
    return tensors, {str(key): str(value) for key, value in metadata.items()}


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise _damaged("the safetensors header names one tensor twice")
    return found


def _damaged(fact: str) -> SourceError:
    return SourceError("E_CORRUPT", fact, hint="copy or download the file again", stage="open")
