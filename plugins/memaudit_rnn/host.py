"""A model that cannot be run as a whole: its recurrent layers are audited one by one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memaudit.contracts import AbstractSubject
from memaudit.errors import SourceError
from memaudit_rnn.surroundings import listed

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch
    from torch import Tensor, nn

    from memaudit.results import Identity
    from memaudit_rnn.dynamics import RnnDynamics
    from memaudit_rnn.ensemble import RnnEnsemble
    from memaudit_rnn.raw_ensemble import RawEnsemble
    from memaudit_rnn.subject import RnnSubject


class RnnHost(AbstractSubject):
    """A host of recurrent layers; with exactly one part it answers as that part does."""

    def __init__(self, parts: Mapping[str, RnnSubject], identity: Identity) -> None:
        first = next(iter(parts.values()))
        alone = len(parts) == 1
        self._parts = dict(parts)
        for name, part in parts.items():
            # Of a host the layers are called by their part, and by their place in it.
            inner = (layer.removeprefix(name) for layer in part.network.layers)
            part.network.layers = tuple(layer.removeprefix(".") for layer in inner)
        self.identity = identity
        self.input_size = first.input_size if alone else None
        self.pooled = first.pooled
        self.device = first.device
        self.dtype = first.dtype

    def parts(self) -> Mapping[str, RnnSubject]:
        """The recurrent layers by name."""
        return dict(self._parts)

    def weights(self) -> Mapping[str, Tensor]:
        """The parameters of every part."""
        parts = self._parts.items()
        return {f"{name}.{key}": t for name, part in parts for key, t in part.weights().items()}

    def live_modules(self) -> Mapping[str, nn.Module]:
        """The network of every part, under the name of the part; its layers are inside of that."""
        return {name: part.network for name, part in self._parts.items()}

    def dynamics(self) -> Mapping[str, RnnDynamics]:
        """The stack of every part, under the name of the part."""
        parts = self._parts.items()
        return {name: stack for name, part in parts for stack in part.dynamics().values()}

    def perturbable(self) -> RnnEnsemble | RawEnsemble | None:
        """That of the only part."""
        if len(self._parts) > 1:
            return None
        return next(iter(self._parts.values())).perturbable()

    def natural_inputs(self, count: int, generator: torch.Generator) -> Tensor | None:
        """Those of the only part."""
        if len(self._parts) > 1:
            return None
        return next(iter(self._parts.values())).natural_inputs(count, generator)

    def respond(self, inputs: Tensor) -> Tensor:
        """The answer of the only part; with several parts there is no answer of the whole."""
        if len(self._parts) > 1:
            raise SourceError(
                "E_UNSUPPORTED",
                f"how the recurrent layers {listed(self._parts)} are joined is not known, "
                "so the model cannot be run as a whole",
                hint="audit them one by one: subject.parts()",
                source=self.identity.source,
                stage="respond",
            )
        return next(iter(self._parts.values())).respond(inputs)
