"""A timm model with recurrent layers, such as Sequencer2D: they are audited one by one."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from memaudit.interfaces import AbstractPerturbable, plain_name
from memaudit.report import Recurrence
from memaudit.subjects.copies import Copies, roles_of
from memaudit.subjects.hosts import Host, choose_parts, read_layers
from memaudit.subjects.modules import ModuleSubject, checked_inputs
from memaudit_rnn.subject import RnnDynamics
from memaudit_timm.patches import noise_image

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from torch import Tensor

    from memaudit.report import Identity

#: Which layers are audited unless the user says so: the first and last block of every stage.
ENDS = "ends"


class LayerSubject(ModuleSubject):
    """Torch's own recurrent module, as it stands in the model, fed with sequences (B,T,D)."""

    def __init__(self, layer: nn.RNNBase, identity: Identity) -> None:
        weight = next(layer.parameters())
        own = {"width": layer.input_size, "device": weight.device, "dtype": weight.dtype}
        super().__init__(layer, identity, **own)
        self.layer = layer

    def run(self, module: nn.Module, inputs: Tensor) -> Tensor:
        """Answer (B,T,D) by the hidden states (B,T,M) of all directions."""
        given = checked_inputs(self, inputs)
        if self.layer.batch_first:
            return module(given)[0]
        return module(given.transpose(0, 1))[0].transpose(0, 1)

    def perturbable(self) -> AbstractPerturbable:
        """The layer with its weights as an argument; fused kernels run one copy at a time."""
        return Copies(self.layer, roles_of(self.layer), call=self.run, together=False)

    def dynamics(self) -> Mapping[str, RnnDynamics]:
        """The layer as a map of its state."""
        layers = [layer.layer for layer in self.identity.recurrences]
        return {layers[0].removesuffix(".l0"): RnnDynamics(self.layer, layers)}


def recurrent_layers(model: nn.Module) -> dict[str, nn.RNNBase]:
    """The recurrent layers by their path in the model."""
    return {name: part for name, part in model.named_modules() if isinstance(part, nn.RNNBase)}


def make_host(model: nn.Module, whole: Identity, requested: str | None) -> Host:
    """The host of the requested layers; `whole` is the identity of the model without them."""
    layers = recurrent_layers(model)
    chosen = choose_layers(layers, requested or ENDS)
    steps = _steps_inside(model, layers)
    sizes = {name: sum(p.numel() for p in layer.parameters()) for name, layer in layers.items()}
    parts: dict[str, LayerSubject] = {}
    for name in chosen:
        layer = layers[name]
        own = replace(
            whole,
            parameters=sizes[name],
            description=f"{_title(layer)}, over {steps.get(name, 0)} patches",
            recurrences=recurrences(name, layer),
            assumed={},
            notes=(),
        )
        parts[name] = LayerSubject(layer, own)
    left = [name for name in layers if name not in chosen]
    audited = sum(sizes[name] for name in chosen)
    share = f"{len(chosen)} of {len(layers)} recurrent layers"
    notes = [
        f"audited: {share}, {audited / whole.parameters:.1%} of the parameters (all recurrent "
        f"layers together: {sum(sizes.values()) / whole.parameters:.1%})",
        "each layer is run by itself; the model runs it over rows or columns of patches",
    ]
    if left:
        notes.append(f"not audited (--set layers=all): {in_blocks(left, layers)}")
    assumed = dict(whole.assumed)
    if requested is None and left:
        reason = "the first and the last block of every stage; --set layers=all for all"
        assumed["layers"] = f"{ENDS} ({share}: {reason})"
    identity = replace(
        whole,
        description=f"{whole.description}: {len(layers)} recurrent layers, {len(chosen)} audited",
        coverage=audited / whole.parameters,
        recurrences=tuple(r for name, x in layers.items() for r in recurrences(name, x)),
        assumed=assumed,
        notes=(*whole.notes, *notes),
        unreached=tuple(left),
    )
    # How they are joined is known, but it is no sequence; the whole model has layers left out, too.
    return Host(
        parts,
        identity,
        modules={"": model},
        model=model,
        reason="the model scans rows and columns of an image, which is no single sequence",
    )


def choose_layers(names: Iterable[str], requested: str) -> list[str]:
    """The layers that are audited: all, the ends of every stage, or those that were named.

    A name may be that of a block or a stage; then all layers inside are meant.
    """
    every = list(names)
    if requested == ENDS:
        numbers: dict[str, list[int]] = {}
        for stage, number in map(_place, every):
            numbers.setdefault(stage, []).append(number)
        ends = {stage: (min(found), max(found)) for stage, found in numbers.items()}
        return [name for name in every if _place(name)[1] in ends[_place(name)[0]]]
    return choose_parts(every, read_layers(requested))


def _steps_inside(model: nn.Module, layers: Mapping[str, nn.RNNBase]) -> dict[str, int]:
    """How many patches every layer runs over when the model sees an image of its own size."""
    steps: dict[str, int] = {}

    def counting(name: str, layer: nn.RNNBase) -> Any:
        def hook(module: nn.Module, inputs: Any, output: Any) -> None:
            steps[name] = int(inputs[0].shape[1 if layer.batch_first else 0])

        return layer.register_forward_hook(hook)

    hooks = [counting(name, layer) for name, layer in layers.items()]
    try:
        with torch.no_grad():
            model(noise_image(model))
    finally:
        for hook in hooks:
            hook.remove()
    return steps


def _title(layer: nn.RNNBase) -> str:
    """The kind and the sizes of a layer in a few words."""
    two_way = "bidirectional " if layer.bidirectional else ""
    stack = f"{layer.num_layers}-layer " if layer.num_layers > 1 else ""
    return f"{stack}{two_way}{layer.mode.split('_')[0]}, {layer.input_size} → {layer.hidden_size}"


def recurrences(name: str, layer: nn.RNNBase) -> tuple[Recurrence, ...]:
    """One record per layer of a stack."""
    directions = 2 if layer.bidirectional else 1
    cell = layer.mode.split("_")[0]
    names = {plain_name(key) for key, _ in layer.named_parameters()}
    records: list[Recurrence] = []
    for depth in range(layer.num_layers):
        ends = (f"_l{depth}", f"_l{depth}_reverse")
        own = sum(getattr(layer, key).numel() for key in names if key.endswith(ends))
        label = name if layer.num_layers == 1 else f"{name}.l{depth}"
        records.append(Recurrence(label, cell, layer.hidden_size, own, directions))
    return tuple(records)


def in_blocks(names: Iterable[str], every: Iterable[str]) -> str:
    """The layers in few words: blocks where all their layers are meant, neighbours as a range."""
    chosen, members = set(names), dict[tuple[str, int], list[str]]()
    for name in every:
        members.setdefault(_place(name), []).append(name)
    runs: list[tuple[str, int | None, int | None]] = []
    for (stage, number), inside in members.items():
        if not chosen.issuperset(inside):
            runs += [(name, None, None) for name in inside if name in chosen]
        elif runs and runs[-1][0] == stage and runs[-1][2] == number - 1:
            runs[-1] = (stage, runs[-1][1], number)
        else:
            runs.append((stage, number, number))
    words: list[str] = []
    for stage, first, last in runs:
        one = stage if first is None else f"{stage}.{first}"
        words.append(one if first == last else f"{one} to {last}")
    return ", ".join(words)


def _place(name: str) -> tuple[str, int]:
    """The stage of a layer and the number of its block, the last number of its path."""
    parts = name.split(".")
    at = max((i for i, part in enumerate(parts) if part.isdecimal()), default=None)
    return (name, 0) if at is None else (".".join(parts[:at]), int(parts[at]))
