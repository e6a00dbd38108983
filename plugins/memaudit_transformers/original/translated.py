"""What comes of a checkpoint in the original format."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class Translated:
    """The values of a config of transformers, the tensors by its names, and sentences on both."""

    values: dict[str, Any]
    tensors: dict[str, Tensor]
    notes: tuple[str, ...]
