"""Where recurrent layers look their kernels up."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from torch import nn
from torch.nn.utils import parametrize

from memaudit_transformers.recurrent.finding import Recurrent
from memaudit_transformers.recurrent.kernels import Kernel


@dataclass(frozen=True, slots=True, eq=False)
class Place:
    """Where a layer looks a kernel up: a name in a module's globals or in the layer itself."""

    kernel: Kernel
    namespace: dict[str, Any]
    name: str
    function: Callable[..., Any]


def kernel_places(recurrents: Iterable[Recurrent]) -> list[Place]:
    """Where the kernels of these layers are looked up; layers of one class share a place."""
    users: dict[object, tuple[nn.Module, Kernel]] = {}
    for recurrent in recurrents:
        module, kernel = recurrent.module, recurrent.kind.kernel
        if kernel is not None:
            # A parametrized layer has a class of its own, made from that of the others.
            shared = parametrize.type_before_parametrizations(module)
            users.setdefault(module if kernel.method else shared, (module, kernel))
    found: dict[tuple[int, str], Place] = {}
    for user in users.values():
        for place in _places(*user):
            found.setdefault((id(place.namespace), place.name), place)
    return list(found.values())


def _places(module: nn.Module, kernel: Kernel) -> Iterator[Place]:
    """Every place from which this layer could call the kernel."""
    if kernel.method:
        for name in dir(type(module)):
            if kernel.recognises(getattr(type(module), name)):
                yield Place(kernel, vars(module), name, getattr(module, name))
        return
    homes = {cls.__module__ for cls in type(module).__mro__ if cls not in nn.Module.__mro__}
    for home in sorted(homes & sys.modules.keys()):
        namespace = vars(sys.modules[home])
        for name, value in namespace.items():
            if kernel.recognises(value):
                yield Place(kernel, namespace, name, value)
