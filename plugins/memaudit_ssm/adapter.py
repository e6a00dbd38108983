"""The adapter of state-space layers in hosts of unknown make: files, repositories, modules."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from memaudit.contracts import AbstractAdapter, AbstractSubject, Claim, Request
from memaudit.errors import MemauditError, SourceError, clean, listed
from memaudit.loading.filling import digest_tensors
from memaudit_ssm.decays.walking import stored_decays
from memaudit_ssm.hosts.keys import find_scans, is_language_model
from memaudit_ssm.hosts.opening import FAMILY, Opening, open_scans
from memaudit_ssm.layers.core import Core
from memaudit_ssm.opening.building import open_checked
from memaudit_ssm.opening.modules import open_layer
from memaudit_ssm.opening.recognising import Checked, recognise
from memaudit_ssm.settings import OPTIONS, Settings, read_settings

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from memaudit.contracts import StoredDecay
    from memaudit.loading.source import Source

#: Below the zoos that know how to run the whole model.
STRENGTH = 8
#: Above torch's own layers, which may stand beside: who knows the family names what it does not.
FAMILY_STRENGTH = 11
#: A layer of our own in memory.
CERTAIN = 20
FILES = ("path", "hub", "demo")


class SsmAdapter(AbstractAdapter):
    """Selective scans of Mamba-1 in hosts of unknown make, in one direction or several."""

    name: ClassVar[str] = "ssm"
    options: ClassVar[Mapping[str, str]] = OPTIONS

    def claim(self, source: Source) -> Claim | None:
        """Whether the source has selective scans and is no model that runs as a whole."""
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
        """The host of the source's scans."""
        try:
            settings = read_settings(request.options)
            if isinstance(source.module, Core):
                return open_layer(source.module, source.text, request, settings)
            if source.kind == "module":
                return open_scans(_from_module(source, request, settings))
            if source.kind not in FILES:
                what = "files, hub repositories and modules"
                raise SourceError(
                    "E_UNSUPPORTED",
                    f"the ssm adapter opens {what}, not a {source.kind} source",
                    hint="download the file and give its path",
                )
            tensors = source.checkpoint.tensors
            # Selective scans beside layers of another family: a host, which names the others.
            found = None if find_scans(tensors).scans else recognise(tensors)
            if found is not None:
                return open_checked(_checked(source, request, settings), found)
            return open_scans(_from_file(source, request, settings))
        except MemauditError as error:
            raise error.at(source.text) from None

    def stored_decays(self, module: nn.Module) -> Iterable[StoredDecay]:
        return stored_decays(module)


def _checked(source: Source, request: Request, settings: Settings) -> Checked:
    checkpoint = source.checkpoint
    return Checked(
        text=source.text,
        tensors=checkpoint.tensors,
        config=checkpoint.config,
        options=request.options,
        device=request.device,
        dtype=_precision(request),
        sha256=checkpoint.sha256,
        notes=checkpoint.notes,
        settings=settings,
    )


def _precision(request: Request) -> torch.dtype:
    """Double precision where the device has it."""
    return request.dtype or (torch.float32 if request.device.type == "mps" else torch.float64)


def _from_file(source: Source, request: Request, settings: Settings) -> Opening:
    checkpoint = source.checkpoint
    stated = checkpoint.library_config.get("model_type")
    notes = () if not stated else (_library_note(stated),)
    return Opening(
        text=source.text,
        tensors=checkpoint.tensors,
        device=request.device,
        dtype=_precision(request),
        sha256=checkpoint.sha256,
        notes=(*checkpoint.notes, *notes),
        settings=settings,
    )


def _from_module(source: Source, request: Request, settings: Settings) -> Opening:
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
    return Opening(
        text=source.text,
        tensors=tensors,
        device=mine[0].device if mine else request.device,
        dtype=request.dtype or reduce(torch.promote_types, floats or [torch.float32]),
        sha256=digest_tensors(tensors),
        notes=(),
        settings=settings,
    )


def _state(module: object) -> dict[str, torch.Tensor]:
    """The tensors of a module by name, without their history; lazy ones are not there yet."""
    if not isinstance(module, nn.Module):
        return {}
    named = (
        *module.named_parameters(remove_duplicate=False),
        *module.named_buffers(remove_duplicate=False),
    )
    return {name: tensor.detach() for name, tensor in named if not is_lazy(tensor)}


def _library_note(stated: object) -> str:
    return (
        f"the config states the model type {clean(stated)}: whether its own code puts anything "
        "between x_proj and the scan is not known here"
    )
