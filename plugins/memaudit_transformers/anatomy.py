"""Which part of a model is audited: the model proper, its encoder, or the text model inside."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import nn

from memaudit.errors import SourceError
from memaudit_transformers.configuring import text_config
from memaudit_transformers.library import TROUBLE

if TYPE_CHECKING:
    from collections.abc import Iterator

#: What wrappers call the text model inside.
_TEXT = ("language_model", "text_model", "text_encoder", "text_decoder")
_ADVERTISED = (
    *("max_position_embeddings", "n_positions", "max_sequence_length", "context_length"),
    *("seq_length", "max_seq_len", "max_seq_length", "n_ctx", "max_source_positions"),
)


@dataclass(frozen=True, slots=True)
class Core:
    """The part that answers, where it is in the model, and a sentence when it is not the whole."""

    module: nn.Module
    path: str
    note: str = ""


def find_core(model: Any) -> Core:
    """The part of a model that turns embeddings into hidden states."""
    if getattr(model.config, "is_encoder_decoder", False):
        encoder = _encoder(model)
        if encoder is not None:
            note = "an encoder and a decoder: only the encoder is audited, over its own input"
            return Core(encoder, path_of(model, encoder), note)
    base = getattr(model, "base_model", model)
    for outer in (model, base):
        for name in _TEXT:
            inner = getattr(outer, name, None)
            if isinstance(inner, nn.Module) and inner is not base and takes_embeddings(inner):
                inner = _innermost(inner)
                note = f"of {type(model).__name__} only the text model is audited"
                return Core(inner, path_of(model, inner), note)
    if takes_embeddings(base):
        return Core(base, path_of(model, base))
    if takes_embeddings(model):
        return Core(model, "")
    takes = getattr(model, "main_input_name", "something else")
    raise SourceError(
        "E_UNSUPPORTED",
        f"{type(model).__name__} takes {takes} and no embeddings of a sequence (inputs_embeds)",
        hint="wrap what turns a sequence into answers: memaudit.wrap(function, input_size=...)",
        stage="build",
    )


def takes_embeddings(module: nn.Module) -> bool:
    """Whether a forward has a place for embeddings."""
    return "inputs_embeds" in inspect.signature(module.forward).parameters


def path_of(model: nn.Module, part: nn.Module) -> str:
    """The path of a part in a model; empty for the model itself."""
    return next((name for name, module in model.named_modules() if module is part), "")


def find_table(model: Any, core: nn.Module) -> nn.Module | None:
    """The embedding of the tokens that the core reads, or None."""
    for owner in (core, model):
        try:
            table = owner.get_input_embeddings()  # type: ignore[operator]
        except (AttributeError, NotImplementedError, TypeError):
            continue
        weight = getattr(table, "weight", None)
        if isinstance(table, nn.Module) and weight is not None and weight.ndim == 2:
            return table
    return None


def advertised_length(config: Any) -> int | None:
    """The context length that a config states, or None."""
    for part in (text_config(config), config):
        for name in _ADVERTISED:
            value = getattr(part, name, None)
            if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 1 << 40:
                return value
    return None


def position_tables(core: nn.Module) -> Iterator[tuple[str, nn.Embedding, nn.Module]]:
    """Learned tables of absolute positions, each with its name and the module that holds it."""
    for path, module in core.named_modules():
        owner, _, leaf = path.rpartition(".")
        said = leaf.lower()
        positional = "position" in said or said in ("wpe", "pos_emb", "pos_embed")
        if positional and "relative" not in said and isinstance(module, nn.Embedding):
            yield path, module, core.get_submodule(owner)


def _encoder(model: Any) -> nn.Module | None:
    try:
        encoder = model.get_encoder()
    except TROUBLE:
        return None
    usable = isinstance(encoder, nn.Module) and encoder is not model and takes_embeddings(encoder)
    return encoder if usable else None


def _innermost(module: nn.Module) -> nn.Module:
    """A language model inside a wrapper may have a head of its own: the bare model is meant."""
    base = getattr(module, "base_model", module)
    return base if isinstance(base, nn.Module) and takes_embeddings(base) else module
