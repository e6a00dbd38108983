"""What stands around the mixers of an original Mamba: norms, other layers, embedding and head."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from memaudit.errors import SourceError, clean
from memaudit_transformers.original.keys import (
    HEAD,
    LAST_NORM,
    TABLE,
    layer_numbers,
    layer_prefix,
    weights_error,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

#: What only a mixer with a state has; attention has no more than its projections.
_STATEFUL = ("A_log", "D", "dt_bias", "dt_proj.weight", "x_proj.weight")
_PROJECTIONS = ("in_proj.weight", "Wqkv.weight")
_MLP = ("norm2.weight", "mlp.fc1.weight", "mlp.fc2.weight")


def require_plain(config: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
    """Raise E_UNSUPPORTED for LayerNorm, attention and MLPs: transformers' classes lack them."""
    prefixes = {number: layer_prefix(number) for number in sorted(layer_numbers(tensors))}
    biases = (f"{LAST_NORM}bias", *(f"{prefix}norm.bias" for prefix in prefixes.values()))
    if config.get("rms_norm") is False or any(name in tensors for name in biases):
        raise unsupported("this Mamba has LayerNorm, which those of transformers do not have")
    attentive = config.get("attn_layer_idx") or [
        number
        for number, prefix in prefixes.items()
        if any(f"{prefix}mixer.{end}" in tensors for end in _PROJECTIONS)
        and not any(f"{prefix}mixer.{end}" in tensors for end in _STATEFUL)
    ]
    if attentive:
        where = clean(attentive, limit=80)
        raise unsupported(
            f"some layers of this Mamba are attention ({where}), which those of transformers lack"
        )
    fed = [n for n, p in prefixes.items() if any(p + end in tensors for end in _MLP)]
    if config.get("d_intermediate") or fed:
        said = f"d_intermediate {clean(config.get('d_intermediate'), limit=40)}"
        where = f"layer {fed[0]}" if fed else said
        raise unsupported(
            f"this Mamba has an MLP beside its mixers ({where}), which those of transformers lack"
        )


def require_agreement(config: Mapping[str, Any], *, where: str = "", **found: object) -> None:
    """Raise E_CONFIG where the config states something else than was found in the tensors."""
    for name, value in found.items():
        stated = config.get(name)
        if stated is not None and stated != value:
            said = clean(stated, limit=60)
            raise odd(f"config.json states {where}{name} {said}, the tensors say {value}")


def is_tied(config: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> bool:
    """Whether the head is the embedding; a config that says otherwise is refused."""
    stated, head, table = config.get("tie_embeddings"), tensors.get(HEAD), tensors[TABLE]
    if head is None:
        if stated is False:
            raise weights_error(f"{HEAD} is missing in the file, and config.json does not tie it")
        return True
    tied = head.dtype == table.dtype and torch.equal(head, table)
    if stated is True and not tied:
        raise odd(f"config.json states tie_embeddings true, but {HEAD} differs from {TABLE}")
    return tied


def vocabulary_notes(config: Mapping[str, Any], rows: int) -> tuple[str, ...]:
    """A sentence when the table has more rows than there are tokens; fewer are refused."""
    stated = config.get("vocab_size")
    if stated is None or stated == rows:
        return ()
    if not isinstance(stated, int | float) or stated > rows:
        said = clean(stated, limit=60)
        raise odd(f"config.json states vocab_size {said}, the embedding has {rows} rows")
    return (f"config.json states {stated} tokens, the embedding has {rows} rows",)


def head_notes(*, tied: bool) -> tuple[str, ...]:
    """A sentence on a head of its own."""
    return () if tied else (f"{HEAD} is stored and differs from the embedding: it is not tied",)


def odd(fact: str) -> SourceError:
    """E_CONFIG with a fact about config.json."""
    hint = "put the right config beside the weights, or remove it"
    return SourceError("E_CONFIG", fact, hint=hint, stage="config")


def unsupported(fact: str) -> SourceError:
    """E_UNSUPPORTED with what the classes of transformers do not compute."""
    hint = "build the model in Python and pass the module to memaudit.scan"
    return SourceError("E_UNSUPPORTED", fact, hint=hint, stage="config")
