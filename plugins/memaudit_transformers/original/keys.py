"""The names that the first authors of Mamba give to the tensors of a language model."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from memaudit.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from torch import Tensor

TABLE = "backbone.embedding.weight"
HEAD = "lm_head.weight"
LAST_NORM = "backbone.norm_f."
_LAYER = re.compile(r"backbone\.layers\.([0-9]{1,6})\.")


def layer_prefix(number: int) -> str:
    """What stands before the names of one layer."""
    return f"backbone.layers.{number}."


def layer_numbers(names: Iterable[str]) -> set[int]:
    """The numbers of the layers that the names speak of."""
    return {int(match[1]) for name in names if (match := _LAYER.match(name))}


def count_layers(names: Iterable[str]) -> int:
    """How many layers there are; E_WEIGHTS when one of them is left out.

    A single name with a high number must not make the library build a model of that many layers.
    """
    numbers = layer_numbers(names)
    absent = next((n for n in range(len(numbers)) if n not in numbers), None)
    if absent is not None or not numbers:
        raise weights_error(f"{layer_prefix(absent or 0)}* is missing in the file")
    return len(numbers)


def renamed(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors by the names that transformers has for them."""
    other = {TABLE: "backbone.embeddings.weight"}
    return {other.get(name, name): tensor for name, tensor in tensors.items()}


def weights_error(fact: str) -> SourceError:
    """E_WEIGHTS with a fact about the tensors."""
    return SourceError("E_WEIGHTS", fact, hint="is the file complete?", stage="weights")
