"""The weights of state-space layers and models as an argument."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from torch import Tensor, nn

from memaudit.contracts import Role
from memaudit.perturbable import plain_name
from memaudit.subjects.copies import Copies as ModuleEnsemble
from memaudit.subjects.copies import ModeSource
from memaudit_ssm.layers.core import Core

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

#: Inside a recurrent layer: which names make eigenvalues, feed the state, and read it.
_INSIDE: tuple[tuple[str, str, str], ...] = (
    # Curse-of-memory keeps a diagonal in W and a basis in P; S4 a low-rank part in P and Q.
    (r"W\.weight", "recurrent", "diagonal"),
    (r"P\.weight|P|Q", "recurrent", "matrix"),
    (r"(log|inv)_[Aw]_real|[Aw]_real|[Aw]_imag|w", "recurrent", "diagonal"),
    (r"(log|inv)_dt|log_step|nu_log|theta_log|Lambda(_re|_im)?", "recurrent", "diagonal"),
    (r"gamma_log", "input", "diagonal"),
    (r"B(_re|_im|H|P)?|(g|input_linear)\..*", "input", ""),
    (r"C(_re|_im|H|P|1|2)?|(f|output_linear)\..*", "readout", ""),
)
#: Around the recurrent layers: what stands at the ends of a model, and in a block of S4.
_AROUND: tuple[tuple[str, str], ...] = (
    (r"(.*\.)?encoder(\.\d+)?(\.U)?\.(weight|bias)|.*\.input_linear\..*", "input"),
    (r"decoder(\.\d+)?(\.U|\.output_transform)?\.(weight|bias)|.*\.output_linear\..*", "readout"),
)


def perturbable(
    module: nn.Module, cores: Mapping[str, Core], call: Callable[[nn.Module, Tensor], Tensor]
) -> ModuleEnsemble:
    """A model with these recurrent layers; its embedding of tokens stays as it is."""

    def lightly(module: nn.Module, inputs: Tensor) -> Tensor:
        for core in module.modules():
            if not isinstance(core, Core):
                continue
            core.checked = False  # the ensemble puts attributes back
            if core.execution == "auto":  # what the user forced stays forced
                core.execution = "light"
        return call(module, inputs)

    sources = {name: ModeSource(core, _modes) for name, core in cores.items()}
    return ModuleEnsemble(module, roles(module, cores), call=lightly, modes=sources)


def roles(module: nn.Module, cores: Mapping[str, Core]) -> dict[str, Role]:
    """The role of every weight but tokens', which floats do not pass through."""
    inner = {
        id(weight): _inside(plain_name(own), weight, layer)
        for layer, core in cores.items()
        for own, weight in core.named_parameters()
    }
    tables = (part for part in module.modules() if isinstance(part, nn.Embedding))
    left = {id(weight) for table in tables for weight in table.parameters()}
    return {
        name: inner.get(id(weight)) or _around(plain_name(name), weight)
        for name, weight in module.named_parameters()
        if id(weight) not in left
    }


def _inside(name: str, weight: Tensor, layer: str) -> Role:
    """The role of a weight inside a layer; older versions have it below further names."""
    if name.rpartition(".")[2] == "D":
        flat = weight.ndim == 1 or weight.shape[0] == 1
        return Role("readout", "diagonal" if flat else "matrix", layer)
    for pattern, group, form in _INSIDE:
        if re.fullmatch(rf"(kernel\.)*({pattern})", name):
            return Role(group, form or _form(weight), layer)
    return Role("other", _form(weight), layer)


def _around(name: str, weight: Tensor) -> Role:
    for pattern, group in _AROUND:
        if re.fullmatch(pattern, name):
            return Role(group, _form(weight))
    return Role("other", _form(weight))


def _form(weight: Tensor) -> str:
    return "matrix" if weight.ndim > 1 else "vector"


def _modes(core: nn.Module) -> Tensor:
    core.checked = False  # type: ignore[assignment]
    return core.modes()  # type: ignore[operator]
