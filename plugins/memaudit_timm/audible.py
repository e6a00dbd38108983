"""From a model of timm to a subject: its recurrent layers, or its patches, or a refusal."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from memaudit.errors import ArgumentError, listed
from memaudit_timm import recurrent
from memaudit_timm.finding import can_be_cut, find_patches
from memaudit_timm.host import TimmHost
from memaudit_timm.layer_subject import LayerSubject
from memaudit_timm.patch_subject import PatchSubject

if TYPE_CHECKING:
    from torch import nn

    from memaudit.contracts import AbstractSubject
    from memaudit.report import Identity
    from memaudit_timm.loaded import Loaded
    from memaudit_timm.patches import PatchModel
    from memaudit_timm.settings import Settings

#: timm's file of a family → what people call it.
FAMILIES = {"vision_transformer": "vit", "vision_transformer_relpos": "vit", "deit": "vit"}
SHOWN = 6


def make_audible(loaded: Loaded, settings: Settings) -> AbstractSubject:
    """The subject of a model; models without a sequence axis are refused."""
    layers = recurrent.recurrent_layers(loaded.model)
    if layers:
        if settings.shorter is not None:
            raise ArgumentError("shorter is for models of patches; this one has recurrent layers")
        return _host(loaded, layers, settings.layers)
    if settings.layers is not None:
        raise ArgumentError("layers is for recurrent layers; this model has none")
    return _patches(loaded, settings.shorter)


def _host(loaded: Loaded, layers: dict[str, nn.RNNBase], asked: str | None) -> TimmHost:
    chosen = recurrent.choose_layers(layers, asked or recurrent.ENDS)
    steps = recurrent.steps_inside(loaded.model, layers)
    whole = loaded.identity(_family(loaded.model))
    parts: dict[str, LayerSubject] = {}
    for name in chosen:
        own = replace(
            whole,
            parameters=recurrent.size_of(layers[name]),
            description=f"{recurrent.title(layers[name])}, over {steps.get(name, 0)} patches",
            recurrences=recurrent.recurrences(name, layers[name]),
            assumed={},
            notes=(),
        )
        parts[name] = LayerSubject(layers[name], own)
    identity = _host_identity(whole, layers, chosen, asked)
    return TimmHost(parts, identity, loaded.model)


def _host_identity(
    whole: Identity, layers: dict[str, nn.RNNBase], chosen: list[str], asked: str | None
) -> Identity:
    """The identity of the model: every recurrent layer is listed, the audited are counted."""
    left = [name for name in layers if name not in chosen]
    audited = sum(recurrent.size_of(layers[name]) for name in chosen)
    every = sum(map(recurrent.size_of, layers.values()))
    share = f"{len(chosen)} of {len(layers)} recurrent layers"
    notes = [
        f"audited: {share}, {audited / whole.parameters:.1%} of the parameters (all recurrent "
        f"layers together: {every / whole.parameters:.1%})",
        "each layer is run by itself; the model runs it over rows or columns of patches",
    ]
    if left:
        notes.append(f"not audited (--set layers=all): {recurrent.in_blocks(left, layers)}")
    assumed = dict(whole.assumed)
    if asked is None and left:
        reason = "the first and the last block of every stage; --set layers=all for all"
        assumed["layers"] = f"{recurrent.ENDS} ({share}: {reason})"
    return replace(
        whole,
        description=f"{whole.description}: {len(layers)} recurrent layers, {len(chosen)} audited",
        coverage=audited / whole.parameters,
        recurrences=tuple(r for n, x in layers.items() for r in recurrent.recurrences(n, x)),
        assumed=assumed,
        notes=(*whole.notes, *notes),
    )


def _patches(loaded: Loaded, shorter: str | None) -> PatchSubject:
    whole = loaded.identity(_family(loaded.model))  # before a stand-in takes the embedding away
    weight = loaded.weight
    patches = find_patches(loaded.model, weight, name=loaded.architecture)
    cut = can_be_cut(patches, weight)
    if shorter == "cut" and not cut:
        fact = f"{loaded.architecture} cannot run on fewer patches than {patches.count}"
        raise ArgumentError(fact, hint="take --set shorter=fill")
    patches.cut = cut and shorter != "fill"
    used = patches.used_parameters()
    identity = _patch_identity(whole, patches, used)
    if shorter is None:
        identity = replace(identity, assumed={**identity.assumed, "shorter": _reason(patches)})
    return PatchSubject(patches, used, identity)


def _reason(patches: PatchModel) -> str:
    if patches.cut:
        run = f"the first positions of {patches.count} are run by themselves"
        return f"cut (fewer patches than the model has: {run}; --set shorter=fill for silence)"
    return f"fill (the model is bound to its {patches.count} patches: the others are silent)"


def _patch_identity(whole: Identity, patches: PatchModel, used: list[str]) -> Identity:
    sizes = {name: p.numel() for name, p in patches.model.named_parameters()}
    rows, columns = patches.grid
    idle = dict.fromkeys(name.split(".")[0] for name in sizes if name not in set(used))
    notes = (
        f"patches in raster order are time, {patches.count} steps; the state of every patch "
        "behind the last block is read",
        "silence is a patch embedding of zeros, which no image need have",
        f"not run: {listed(['the patch embedding', *idle], most=SHOWN)}",
    )
    return replace(
        whole,
        description=f"{whole.description}: {rows} x {columns} patches of width {patches.width}, "
        f"{len(patches.blocks)} blocks",
        coverage=sum(sizes[name] for name in used) / whole.parameters,
        notes=(*whole.notes, *notes),
    )


def _family(model: nn.Module) -> str:
    """The file of timm that a model's class comes from."""
    homes = [kind.__module__ for kind in type(model).__mro__]
    home = next((x for x in homes if x.startswith("timm.models.")), "timm")
    name = home.rpartition(".")[2]
    return FAMILIES.get(name, name)
