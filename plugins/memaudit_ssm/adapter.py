"""The adapter of state-space models: checkpoints of known families, scans in unknown hosts."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from memaudit.devices import widest_dtype
from memaudit.errors import MemauditError, SourceError, clean, listed
from memaudit.interfaces import AbstractAdapter, AbstractSubject, Claim, Request
from memaudit.loading.filling import digest_tensors
from memaudit_ssm.core import Core
from memaudit_ssm.scans import FAMILY, find_scans, is_language_model, open_scans
from memaudit_ssm.settings import OPTIONS, Opening, RunSettings, read_settings
from memaudit_ssm.subject import open_family, open_layer, recognise, stored_decays

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from memaudit.interfaces import StoredDecay
    from memaudit.loading.source import Source

#: Below the zoos that know how to run the whole model.
STRENGTH = 8
#: Above torch's own layers, which may stand beside: who knows the family names what it does not.
FAMILY_STRENGTH = 11
#: A layer of our own in memory.
CERTAIN = 20
FILES = ("path", "hub", "demo")


class SsmAdapter(AbstractAdapter):
    """Research checkpoints, layers of ours, and selective scans in hosts of unknown make."""

    name: ClassVar[str] = "ssm"
    options: ClassVar[Mapping[str, str]] = OPTIONS

    def claim(self, source: Source) -> Claim | None:
        """Whether the source has layers of a known family, or scans that no zoo runs whole."""
        if isinstance(source.module, Core):
            return Claim(source.module.cell, CERTAIN)
        if source.kind == "module":
            tensors, config = _state(source.module), getattr(source.module, "config", None)
            stated = getattr(config, "model_type", None)
        elif source.kind in FILES:
            tensors = source.checkpoint.tensors
            stated = source.checkpoint.library_config.get("model_type")
        else:
            return None
        if stated:
            return None
        scans = find_scans(tensors).scans
        if not scans and source.kind in FILES and (found := recognise(tensors)) is not None:
            return Claim(found.family.name, FAMILY_STRENGTH)
        # A language model in memory has nobody else to run it.
        whole = source.kind != "module" and is_language_model(tensors, scans)
        return None if whole or not scans else Claim(FAMILY, STRENGTH)

    def load(self, source: Source, request: Request) -> AbstractSubject:
        """The model as a whole, or a host of its layers."""
        try:
            settings = read_settings(request.options)
            if isinstance(source.module, Core):
                return open_layer(source.module, source.text, request, settings)
            if source.kind == "module":
                return open_scans(_from_module(source, request, settings))
            if source.kind not in FILES:
                raise SourceError(
                    "E_UNSUPPORTED",
                    "the ssm adapter opens files, hub repositories and modules, not a "
                    f"{source.kind} source",
                    hint="download the file and give its path",
                )
            opening = _from_file(source, request, settings)
            # Selective scans beside layers of another family: a host, which names the others.
            scans = find_scans(opening.tensors).scans
            found = None if scans else recognise(opening.tensors)
            return open_scans(opening) if found is None else open_family(opening, found)
        except MemauditError as error:
            raise error.at(source.text) from None

    def stored_decays(self, module: nn.Module) -> Iterable[StoredDecay]:
        return stored_decays(module)


def _from_file(source: Source, request: Request, settings: RunSettings) -> Opening:
    checkpoint = source.checkpoint
    notes = checkpoint.notes
    if stated := checkpoint.library_config.get("model_type"):
        notes = (
            *notes,
            f"the config states the model type {clean(stated)}: whether its own code puts anything "
            "between x_proj and the scan is not known here",
        )
    # Double precision where the device has it.
    widest = widest_dtype(request.device)
    return Opening(
        source.text,
        checkpoint.tensors,
        request.device,
        request.dtype or widest,
        checkpoint.sha256,
        settings,
        notes=notes,
        config=checkpoint.config,
        options=request.options,
    )


def _from_module(source: Source, request: Request, settings: RunSettings) -> Opening:
    """The module's tensors; what is run are copies, in the widest dtype that the scans have."""
    tensors = _state(source.module)
    empty = [name for name, tensor in tensors.items() if tensor.is_meta]
    if empty:
        raise SourceError(
            "E_WEIGHTS",
            f"the module has no numbers yet: {listed(map(clean, empty))}",
            hint="load its weights first",
            stage="weights",
        )
    mine = [tensors[key] for scan in find_scans(tensors).scans for key in scan.keys.values()]
    # The 8-bit floats cannot be promoted, nor computed with.
    floats = [t.dtype for t in mine if t.is_floating_point() and t.element_size() > 1]
    device = mine[0].device if mine else request.device
    dtype = request.dtype or reduce(torch.promote_types, floats or [torch.float32])
    return Opening(source.text, tensors, device, dtype, digest_tensors(tensors), settings)


def _state(module: object) -> dict[str, torch.Tensor]:
    """The tensors of a module by name, without their history; lazy ones are not there yet."""
    if not isinstance(module, nn.Module):
        return {}
    named = (
        *module.named_parameters(remove_duplicate=False),
        *module.named_buffers(remove_duplicate=False),
    )
    return {name: tensor.detach() for name, tensor in named if not is_lazy(tensor)}
