"""Names and forms of flax: trees joined by / or ., kernels transposed, statistics apart."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from torch import Tensor

    from memaudit_ssm.families.family import Group

_JOINT = re.compile(r"[/.]")
#: Members of a list have their number behind the name: layers_0.
_LISTED = re.compile(r"^(layers)_([0-9]+)\Z")
_PARAMETERS, _STATISTICS = "params", "batch_stats"
#: Copies of the parameters that an optimizer keeps.
_OPTIMIZER = "opt_state"
_LEAVES = {"kernel": "weight", "scale": "weight"}
_RUNNING = {"mean": "running_mean", "var": "running_var"}


@dataclass(frozen=True, slots=True)
class Translated:
    """Tensors under the names and in the forms of torch, and their names in the file."""

    tensors: dict[str, Tensor] = field(repr=False)
    #: name in the file → name of torch
    names: dict[str, str] = field(repr=False)


def translated(tensors: Mapping[str, Tensor]) -> Translated:
    """A flax tree as torch would store it; kernels (in,out) become weights (out,in)."""
    names = {name: torch_name(name) for name in tensors}
    if len(set(names.values())) < len(names):
        names = {name: name for name in tensors}
    given = {
        names[name]: tensor.mT if _is_kernel(name, tensor) else tensor
        for name, tensor in tensors.items()
    }
    return Translated(given, names)


def torch_name(name: str) -> str:
    """params/encoder/layers_0/out1/kernel → encoder.layers.0.out1.weight."""
    parts = _JOINT.split(name)
    leaves = _LEAVES
    if parts[0] == _STATISTICS:
        parts, leaves = parts[1:], _RUNNING
    while len(parts) > 1 and parts[0] == _PARAMETERS:
        parts = parts[1:]
    parts[-1] = leaves.get(parts[-1], parts[-1])
    return ".".join(_LISTED.sub(r"\1.\2", part) for part in parts)


def layer_name(prefix: str) -> str:
    """What a layer is called in a report: params/encoder/layers_0/seq/ → encoder.layers_0.seq."""
    parts = [part for part in _JOINT.split(prefix) if part]
    while parts and parts[0] == _PARAMETERS:
        parts = parts[1:]
    return ".".join(parts)


def by_module(names: Iterable[str]) -> dict[str, list[str]]:
    """The names of the tensors that stand directly behind every prefix."""
    found: dict[str, list[str]] = {}
    for name in names:
        prefix = name[: len(name) - len(_JOINT.split(name)[-1])]
        found.setdefault(prefix, []).append(name)
    return found


def named_apart(found: Mapping[str, Group]) -> list[Group]:
    """The layers with prefixes as reports show them, or as they are where two would be alike."""
    shown = {prefix: f"{layer_name(prefix)}.".lstrip(".") for prefix in found}
    alike = len(set(shown.values())) < len(shown)
    return [replace(g, prefix=p if alike else shown[p]) for p, g in found.items()]


def of_optimizer(name: str) -> bool:
    """Whether a tensor belongs to the optimizer that a training state carries."""
    return _JOINT.split(name)[0] == _OPTIMIZER


def _is_kernel(name: str, tensor: Tensor) -> bool:
    return _JOINT.split(name)[-1] == "kernel" and tensor.ndim == 2
