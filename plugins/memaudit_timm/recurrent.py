"""The recurrent layers of a timm model: which there are, and which of them are audited."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from memaudit.errors import ArgumentError, clean, nearest
from memaudit.perturbable import plain_name
from memaudit.report import Recurrence
from memaudit_timm.images import noise_image

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

ENDS, ALL = "ends", "all"


def recurrent_layers(model: nn.Module) -> dict[str, nn.RNNBase]:
    """The recurrent layers by their path in the model."""
    return {name: part for name, part in model.named_modules() if isinstance(part, nn.RNNBase)}


def choose_layers(names: Iterable[str], asked: str) -> list[str]:
    """The layers that are audited: all, the ends of every stage, or those that were named.

    A name may be that of a block or a stage; then all layers inside are meant.
    """
    every = list(names)
    if asked == ALL:
        return every
    if asked == ENDS:
        return _ends(every)
    chosen: set[str] = set()
    for word in (part.strip() for part in asked.split(",")):
        found = [name for name in every if name == word or name.startswith(f"{word}.")]
        if not word or not found:
            hint = nearest(word, [ALL, ENDS, *every[:24]])
            raise ArgumentError(f"there is no recurrent layer {clean(word)!r}", hint=hint)
        chosen.update(found)
    return [name for name in every if name in chosen]


def steps_inside(model: nn.Module, layers: Mapping[str, nn.RNNBase]) -> dict[str, int]:
    """How many patches every layer runs over when the model sees an image of its own size."""
    steps: dict[str, int] = {}

    def count(name: str, layer: nn.RNNBase) -> Any:
        def hear(module: nn.Module, inputs: Any, output: Any) -> None:
            steps[name] = int(inputs[0].shape[1 if layer.batch_first else 0])

        return layer.register_forward_hook(hear)

    hooks = [count(name, layer) for name, layer in layers.items()]
    try:
        with torch.no_grad():
            model(noise_image(model, next(model.parameters())))
    finally:
        for hook in hooks:
            hook.remove()
    return steps


def size_of(layer: nn.RNNBase) -> int:
    """How many parameters a layer has."""
    return sum(parameter.numel() for parameter in layer.parameters())


def title(layer: nn.RNNBase) -> str:
    """The kind and the sizes of a layer in a few words."""
    two_way = "bidirectional " if layer.bidirectional else ""
    stack = f"{layer.num_layers}-layer " if layer.num_layers > 1 else ""
    return f"{stack}{two_way}{layer.mode.split('_')[0]}, {layer.input_size} → {layer.hidden_size}"


def recurrences(name: str, layer: nn.RNNBase) -> tuple[Recurrence, ...]:
    """One record per layer of a stack."""
    directions = 2 if layer.bidirectional else 1
    cell = layer.mode.split("_")[0]
    records: list[Recurrence] = []
    for depth in range(layer.num_layers):
        ends = (f"_l{depth}", f"_l{depth}_reverse")
        names = {plain_name(key) for key, _ in layer.named_parameters()}
        own = sum(getattr(layer, key).numel() for key in names if key.endswith(ends))
        label = name if layer.num_layers == 1 else f"{name}.l{depth}"
        records.append(Recurrence(label, cell, layer.hidden_size, own, directions))
    return tuple(records)


def in_blocks(names: Iterable[str], every: Iterable[str]) -> str:
    """The layers in few words: blocks where all their layers are meant, neighbours as a range."""
    chosen, members = set(names), dict[tuple[str, int], list[str]]()
    for name in every:
        members.setdefault(_place(name), []).append(name)
    runs: list[list[Any]] = []
    for (stage, number), inside in members.items():
        if not chosen.issuperset(inside):
            runs += [[name, None, None] for name in inside if name in chosen]
        elif runs and runs[-1][0] == stage and runs[-1][2] == number - 1:
            runs[-1][2] = number
        else:
            runs.append([stage, number, number])
    return ", ".join(_range(*run) for run in runs)


def _range(stage: str, first: int | None, last: int | None) -> str:
    if first is None:
        return stage
    return f"{stage}.{first}" if first == last else f"{stage}.{first} to {last}"


def _ends(names: list[str]) -> list[str]:
    """The layers in the first and in the last block of every stage."""
    places = {name: _place(name) for name in names}
    numbers: dict[str, set[int]] = {}
    for stage, number in places.values():
        numbers.setdefault(stage, set()).add(number)
    kept: list[str] = []
    for name, (stage, number) in places.items():
        if number in (min(numbers[stage]), max(numbers[stage])):
            kept.append(name)
    return kept


def _place(name: str) -> tuple[str, int]:
    """The stage of a layer and the number of its block, the last number of its path."""
    parts = name.split(".")
    at = max((i for i, part in enumerate(parts) if part.isdecimal()), default=None)
    return (name, 0) if at is None else (".".join(parts[:at]), int(parts[at]))
