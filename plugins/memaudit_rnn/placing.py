"""Deciding what is run around a stack: the user's word first, else what is certain."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from memaudit.errors import ArgumentError, clean, nearest
from memaudit_rnn.surroundings import Layer, Surroundings, fits_table, surround

if TYPE_CHECKING:
    from memaudit_rnn.settings import Settings
    from memaudit_rnn.stack import Stack


def place(stack: Stack, layers: list[Layer], others: list[str], settings: Settings) -> Surroundings:
    """The surroundings of the only stack of a file."""
    found = surround(stack, layers, others)
    if settings.encoder == settings.head == "auto":
        return found
    if not found.whole:
        found = Surroundings()
    found = replace(found, notes=())
    if settings.encoder != "auto":
        found = _with_encoder(found, stack, layers, settings.encoder)
    if settings.head != "auto":
        found = _with_head(found, stack, layers, settings.head)
    return found


def _with_encoder(
    found: Surroundings, stack: Stack, layers: list[Layer], name: str
) -> Surroundings:
    bare = replace(found, table=None, encoder=None)
    if name == "none":
        return bare
    layer = _named("encoder", name, layers)
    if fits_table(layer, stack):
        return replace(bare, table=layer)
    if layer.rows != stack.input_size:
        raise _misfit("encoder", layer, f"rows must be the input width {stack.input_size}")
    return replace(bare, encoder=layer)


def _with_head(found: Surroundings, stack: Stack, layers: list[Layer], name: str) -> Surroundings:
    if name == "none":
        return replace(found, head=None)
    layer = _named("head", name, layers)
    if layer.columns != stack.output_size:
        raise _misfit("head", layer, f"columns must be the output width {stack.output_size}")
    return replace(found, head=layer)


def _named(option: str, name: str, layers: list[Layer]) -> Layer:
    for layer in layers:
        if name in (layer.name, layer.weight):
            return layer
    raise ArgumentError(
        f"{option}={clean(name)!r} names no linear layer or embedding of the file",
        hint=nearest(name, ["auto", "none", *(clean(layer.name) for layer in layers)]),
    )


def _misfit(option: str, layer: Layer, wanted: str) -> ArgumentError:
    shape = (layer.rows, layer.columns)
    return ArgumentError(f"{option}={layer.name} has shape {shape}, its {wanted}")
