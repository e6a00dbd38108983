"""A model that cannot be run as a whole: its recurrent layers are audited one by one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memaudit.subjects.hosts import AbstractHost
from memaudit_rnn.subject import RnnSubject

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch
    from torch import Tensor, nn

    from memaudit.report import Identity
    from memaudit_rnn.dynamics import RnnDynamics


class RnnHost(AbstractHost[RnnSubject]):
    """A host of recurrent layers."""

    called = "recurrent layers"

    def __init__(self, parts: Mapping[str, RnnSubject], identity: Identity) -> None:
        super().__init__(parts, identity)
        for name, part in parts.items():
            # Of a host the layers are called by their part, and by their place in it.
            inner = (layer.removeprefix(name) for layer in part.network.layers)
            part.network.layers = tuple(layer.removeprefix(".") for layer in inner)

    def live_modules(self) -> Mapping[str, nn.Module]:
        """The network of every part, under the name of the part; its layers are inside of that."""
        return {name: part.network for name, part in self._parts.items()}

    def dynamics(self) -> Mapping[str, RnnDynamics]:
        """The stack of every part, under the name of the part."""
        parts = self._parts.items()
        return {name: stack for name, part in parts for stack in part.dynamics().values()}

    def natural_inputs(self, count: int, generator: torch.Generator) -> Tensor | None:
        """Those of the only part."""
        return None if self._only is None else self._only.natural_inputs(count, generator)
