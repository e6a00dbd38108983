"""A checkpoint of a known family rebuilt: whole where that is possible, else layer by layer."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import torch
from torch import Tensor, nn

from memaudit.errors import ArgumentError, clean, listed
from memaudit.loading.filling import fill, require_finite
from memaudit_ssm.facts import Facts
from memaudit_ssm.hosts.naming import module_names
from memaudit_ssm.opening.casting import cast
from memaudit_ssm.opening.describing import host_identity, layer_identity, whole_identity
from memaudit_ssm.opening.host import LayerHost, LayerSubject
from memaudit_ssm.opening.recognising import Checked, Recognised, require_known
from memaudit_ssm.opening.subject import NetSubject

if TYPE_CHECKING:
    from collections.abc import Mapping

    from memaudit_ssm.families.family import Group, Whole
    from memaudit_ssm.layers.core import Core

_Module = TypeVar("_Module", bound=nn.Module)


def open_checked(checked: Checked, found: Recognised) -> NetSubject | LayerHost:
    """The model as a whole, or its layers one by one, with the reason in a note."""
    _require_precision(checked.dtype)
    require_known(found)
    facts = Facts(checked.options, checked.config)
    with torch.device("meta"):
        whole = found.family.whole(found.groups, found.tensors, facts)
    if isinstance(whole, str):
        return _open_layers(checked, found, facts, why=whole)
    facts.settle()
    spare = _spare(whole, found)
    if spare:
        why = f"nothing is known about {listed(map(clean, spare))}"
        return _open_layers(checked, found, facts, why=why)
    if checked.settings.layers is not None:
        raise ArgumentError(
            "the model runs as a whole: layers chooses among layers that are run one by one",
            hint="leave it out; report.layers has the hidden state after every block",
        )
    return _open_whole(checked, found, whole, facts)


def _require_precision(dtype: torch.dtype) -> None:
    """Complex modes exist in single and double precision only."""
    if dtype not in (torch.float32, torch.float64):
        word = str(dtype).removeprefix("torch.")
        raise ArgumentError(
            f"state-space layers are run in float32 or float64, not in {word}",
            hint="give --dtype float32 or float64",
        )


def _open_whole(checked: Checked, found: Recognised, whole: Whole, facts: Facts) -> NetSubject:
    tensors = _given(whole, found)
    require_finite(tensors, source=checked.text)
    net = _filled(whole.net, tensors, checked)
    cores = net.cores()
    for core in cores.values():
        core.execution = checked.settings.execution
    identity = whole_identity(checked, found, net, facts, whole.notes)
    return NetSubject(net, identity, device=checked.device, dtype=checked.dtype)


def _open_layers(checked: Checked, found: Recognised, tried: Facts, *, why: str) -> LayerHost:
    facts = Facts(checked.options, checked.config)
    names = module_names(group.prefix for group in found.groups)
    built: dict[str, tuple[Core, Group]] = {}
    with torch.device("meta"):
        for group in found.groups:
            core = found.family.layer(group, found.tensors, facts)
            built[names[group.prefix]] = core, group
    facts.settle(tried)
    chosen = checked.settings.chosen(built)
    run = {name: pair for name, pair in built.items() if name in chosen}
    cores: dict[str, Core] = {}
    for name, (core, group) in run.items():
        inside = {
            role: found.tensors[key] for role, key in group.keys.items() if key in found.tensors
        }
        require_finite(inside, source=checked.text)
        cores[name] = _filled(core, inside, checked)
        cores[name].execution = checked.settings.execution
    identity = host_identity(checked, found, cores, facts, why=why)
    layers = {
        name: LayerSubject(
            name,
            core,
            layer_identity(identity, name, core),
            device=checked.device,
            dtype=checked.dtype,
        )
        for name, core in cores.items()
    }
    return LayerHost(layers, identity)


def _given(whole: Whole, found: Recognised) -> dict[str, Tensor]:
    """The tensors by the names of the model."""
    given = {whole.names.get(name, name): tensor for name, tensor in found.tensors.items()}
    return {**given, **whole.reshaped}


def _spare(whole: Whole, found: Recognised) -> list[str]:
    """The tensors that have no place in the model."""
    known = set(whole.net.state_dict())
    return [found.names[name] for name in found.tensors if whole.names.get(name, name) not in known]


def _filled(module: _Module, tensors: Mapping[str, Tensor], checked: Checked) -> _Module:
    cast(module, checked.dtype)
    fill(module, tensors, source=checked.text, device=checked.device)
    return module
