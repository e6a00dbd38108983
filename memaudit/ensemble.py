"""A module whose weights are an argument, for every adapter that holds a module."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from memaudit.errors import ArgumentError
from memaudit.numerics.copies import Copies
from memaudit.perturbable import AbstractPerturbable, Role


@dataclass(frozen=True, slots=True, eq=False)
class ModeSource:
    """A part of a model, and what gives its eigenvalues, in any shape, from its weights alone.

    It is asked with weights in double precision: next to the boundary single precision errs.
    `names` are those of the weights that decide, inside the part; None for all of them.
    """

    part: nn.Module
    modes: Callable[[nn.Module], Tensor]
    names: tuple[str, ...] | None = None


class ModuleEnsemble(AbstractPerturbable):
    """Copies of a module; `call` makes the answer of one from the module and its inputs.

    `call` must be pure in the module's parameters, and must not switch gradients off. `roles`
    names the weights that may be moved, each by its first name in the module. `modes` has a
    source for every recurrent layer whose eigenvalues the weights alone decide. A module that
    cannot be batched, or is not worth it, is not tried unless `together`. `around` is opened
    once for all copies, with gradients off unless they are wanted.
    """

    def __init__(
        self,
        module: nn.Module,
        roles: Mapping[str, Role],
        *,
        call: Callable[[nn.Module, Tensor], Tensor],
        modes: Mapping[str, ModeSource] | None = None,
        around: Callable[[], AbstractContextManager[Any]] = nullcontext,
        together: bool = True,
    ) -> None:
        own = dict(module.named_parameters())
        self.weights = {name: own[name].detach() for name in roles}
        self.roles = dict(roles)
        self._copies = Copies(module, call, around=around, together=together)
        # By identity: a part that stands in the model twice is moved under its first name.
        names = {id(weight): name for name, weight in own.items()}
        self._sources = {layer: _Source(s, names) for layer, s in (modes or {}).items()}

    @property
    def execution(self) -> str:
        """How copies are run: "vmap", or "one after the other"; empty before the first run."""
        return self._copies.execution

    def respond(self, inputs: Tensor, moved: Mapping[str, Tensor]) -> Tensor:
        """The answers of K copies; with nothing moved there is one."""
        count = self._count(moved)
        cast = {name: value.to(self.weights[name].dtype) for name, value in moved.items()}
        return self._copies.run(inputs, cast, count)

    def modes(self, moved: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """Layer → eigenvalues (K,n) of one step, in double precision."""
        count = self._count(moved)
        return {layer: source.eigenvalues(moved, count) for layer, source in self._sources.items()}

    def _count(self, moved: Mapping[str, Tensor]) -> int:
        for name, value in moved.items():
            known = self.weights.get(name)
            if known is None or value.shape[1:] != known.shape:
                raise ArgumentError(
                    f"{name} of shape {tuple(value.shape)} holds no copies of a movable weight",
                    hint="copies stand on the first axis, before the shape of the weight",
                )
        counts = {len(value) for value in moved.values()}
        if len(counts) > 1 or 0 in counts:
            raise ArgumentError(f"the weights are moved in {sorted(counts)} copies")
        return counts.pop() if counts else 1


class _Source:
    """A mode source that finds its weights among those of the model."""

    def __init__(self, source: ModeSource, names: Mapping[int, str]) -> None:
        own = source.part.named_parameters()
        kept = [(n, t) for n, t in own if source.names is None or n in source.names]
        self._own = [(name, names[id(t)], t.detach()) for name, t in kept]
        self._copies = Copies(source.part, _asked(source.modes))

    def eigenvalues(self, moved: Mapping[str, Tensor], count: int) -> Tensor:
        """The eigenvalues (K,n), moved or as they are."""
        values = {}
        for name, called, weight in self._own:
            value = moved.get(called)
            value = weight.expand(count, *weight.shape) if value is None else value
            values[name] = value.to(_wide(value.dtype))
        return self._copies.run(torch.empty(1), values, count)


def _wide(dtype: torch.dtype) -> torch.dtype:
    if dtype.is_complex:
        return torch.complex128
    return torch.float64 if dtype.is_floating_point else dtype


def _asked(modes: Callable[[nn.Module], Tensor]) -> Callable[[nn.Module, Tensor], Tensor]:
    def call(part: nn.Module, inputs: Tensor) -> Tensor:
        del inputs
        return modes(part).flatten().to(torch.complex128)

    return call
