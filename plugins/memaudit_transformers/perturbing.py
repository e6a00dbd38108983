"""The weights of a model of the library as an argument."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from torch import Tensor, nn

from memaudit.contracts import Role
from memaudit.errors import clean
from memaudit.perturbable import plain_name
from memaudit.subjects.copies import Copies as ModuleEnsemble
from memaudit.subjects.copies import ModeSource

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from memaudit_transformers.recurrent import Recurrent
    from memaudit_transformers.running import Machine

#: What a recurrent layer calls the projection behind its state, and its skip.
_BEHIND = re.compile(r"(?:.*\.)?(?:out_proj|o_proj|output|down_proj|proj_down)\.\w+|D")


def perturbable(
    machine: Machine,
    recurrents: Iterable[Recurrent],
    table: nn.Module | None,
    call: Callable[[Tensor], Tensor],
) -> ModuleEnsemble:
    """A model as it is run; `call` answers inputs, with the machine ready and its weights moved.

    `table` is the embedding of tokens, which floats do not pass through.
    Scans of recurrent layers are run one copy after the other: memaudit's own write in place, and
    in one batch the library's are slower than they.
    """
    layers = tuple(recurrents)

    def answer(model: nn.Module, inputs: Tensor) -> Tensor:
        del model  # the machine holds it
        return call(inputs)

    return ModuleEnsemble(
        machine.model,
        roles(machine, layers, table),
        call=answer,
        modes=_sources(layers),
        around=machine.ready,
        together=not layers,
    )


def roles(
    machine: Machine, recurrents: Iterable[Recurrent], table: nn.Module | None
) -> Mapping[str, Role]:
    """The role of every weight that floats pass through; a head may share the table."""
    inner: dict[int, Role] = {}
    for recurrent in recurrents:
        for name, weight in recurrent.module.named_parameters():
            inner.setdefault(id(weight), _inside(recurrent, name, weight))
    speaker = machine.readout.speaker
    core = {id(weight) for weight in machine.core.parameters()}
    left = set() if table is None else {id(weight) for weight in table.parameters()}
    spoken = {id(weight) for weight in speaker.parameters()} - (left - _heads(speaker))
    return {
        name: inner.get(id(weight)) or _outside(weight, head=id(weight) not in core)
        for name, weight in machine.model.named_parameters()
        if id(weight) in spoken and weight.is_floating_point()
    }


def _sources(recurrents: Iterable[Recurrent]) -> dict[str, ModeSource]:
    found = {}
    for recurrent in recurrents:
        names = tuple(n for n, _ in recurrent.module.named_parameters() if _decides(recurrent, n))
        if names:
            source = ModeSource(recurrent.module, recurrent.modes_of, names)
            found[clean(recurrent.layer)] = source
    return found


def _decides(recurrent: Recurrent, name: str) -> bool:
    """Whether a weight of the layer makes its decay; it may stand in a gate inside the layer."""
    return any(plain_name(name).endswith(end) for end in recurrent.kind.decays)


def _inside(recurrent: Recurrent, name: str, weight: Tensor) -> Role:
    layer, name = clean(recurrent.layer), plain_name(name)
    if _decides(recurrent, name):
        # A gate's own matrix acts as one; everything else is a number for every mode.
        return Role("recurrent", "matrix" if name.endswith("weight") else "diagonal", layer)
    if _BEHIND.fullmatch(name):
        form = "diagonal" if name == "D" else _form(weight)
        return Role("readout", form, layer)
    return Role("input", _form(weight), layer)


def _outside(weight: Tensor, *, head: bool) -> Role:
    return Role("readout" if head else "other", _form(weight))


def _heads(speaker: nn.Module) -> set[int]:
    """Tables that are the weight of a linear layer too."""
    linears = (part for part in speaker.modules() if isinstance(part, nn.Linear))
    return {id(weight) for linear in linears for weight in linear.parameters()}


def _form(weight: Tensor) -> str:
    return "matrix" if weight.ndim > 1 else "vector"
