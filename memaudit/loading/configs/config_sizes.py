"""The sizes that a config states: whole numbers above 0, or a sentence on what stands there."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

from memaudit.errors import SourceError, clean

if TYPE_CHECKING:
    from collections.abc import Mapping

WIDTHS = ("hidden_size", "d_model", "n_embd")
LAYERS = (
    *("num_hidden_layers", "num_layers", "n_layer", "n_layers", "layers", "num_blocks", "n_blocks"),
    *("encoder_layers", "decoder_layers", "num_encoder_layers", "num_decoder_layers", "depths"),
)
#: There is no model without these: here null is no answer, and neither is a list.
_INDISPENSABLE = (*WIDTHS, "num_hidden_layers", "n_layer", "n_layers")
#: Sizes of one matrix, beside the width.
SIDES = (
    *("intermediate_size", "n_inner", "d_ff", "ffn_dim", "embedding_size", "num_key_value_heads"),
    *("num_attention_heads", "num_heads", "n_head", "n_heads", "state_size", "d_state", "d_conv"),
    *("ssm_state_size", "conv_kernel", "time_step_rank", "dt_rank", "expand"),
)
_SIZES = frozenset(
    (*_INDISPENSABLE, *SIDES, "vocab_size", "num_layers", "max_position_embeddings", "n_positions")
)
#: Mamba lets the library work out its rank.
_AUTOMATIC = ("time_step_rank", "dt_rank")
#: A factor may be 1.5.
_FACTORS = ("expand",)
#: What else is a size by its name in a config of transformers; elsewhere it may be anything.
_ALIKE = re.compile(
    r"(?:.*_)?(?:size|sizes|dim|dims|width|depths?|embeddings|vocab|heads?|layers?|experts|channels"
    r"|rank|blocks|buckets|queries|labels|classes|state|groups|filters|kernel|positions|codebooks)"
)


def read_sizes(
    values: Mapping[str, Any], *, where: str, library: bool, strict: bool = True
) -> dict[str, list[int]]:
    """Every size in one dictionary of a config; a list holds several.

    `where` stands before the keys in an error, `library` says that transformers wrote the config.
    Raises E_CONFIG, naming key and value, for what cannot be a size; unless `strict`, that is left
    out, since a trainer's settings also hold references, gaps and the sizes of other things.
    """
    found: dict[str, list[int]] = {}
    for key, value in values.items():
        if key in _SIZES and strict:
            found[key] = _stated(key, value, where=where)
        elif key in _SIZES or key in LAYERS or (library and _ALIKE.fullmatch(key)):
            items = value if isinstance(value, list) else [value]
            found[key] = [_whole(item) for item in items if _is_number(item) and item > 0]
    return {key: numbers for key, numbers in found.items() if numbers}


def _stated(key: str, value: Any, *, where: str) -> list[int]:
    optional = key not in _INDISPENSABLE
    if (value is None and optional) or (value == "auto" and key in _AUTOMATIC):
        return []
    items: list[Any]
    if isinstance(value, dict):  # one number for every part of the model
        items = [item for item in value.values() if _is_number(item)]
    else:
        items = value if isinstance(value, list) and optional else [value]
    for item in items:
        if not _is_size(item) or (item != math.floor(item) and key not in _FACTORS):
            raise SourceError(
                "E_CONFIG",
                f"config.json: {where}{key} is {_shown(value)}, not a whole number above 0",
                hint="put the right config beside the weights, or remove it",
                stage="config",
            )
    return [_whole(item) for item in items]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_size(value: Any) -> bool:
    return _is_number(value) and 0 < value < math.inf


def _whole(value: float) -> int:
    """The number, rounded up; infinity as more than there can be."""
    return math.ceil(value) if value < math.inf else 1 << 200


def _shown(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    return clean(repr(value), limit=60)
