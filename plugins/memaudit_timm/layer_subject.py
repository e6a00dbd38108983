"""One recurrent layer of a timm model made audible."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from memaudit.contracts import AbstractPerturbable, AbstractSubject
from memaudit.subjects.copies import Copies as ModuleEnsemble
from memaudit.subjects.copies import roles_of
from memaudit_rnn.dynamics import RnnDynamics
from memaudit_timm.checking import checked_floats

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor, nn

    from memaudit.report import Identity


class LayerSubject(AbstractSubject):
    """Torch's own recurrent module, as it stands in the model, fed with sequences (B,T,D)."""

    def __init__(self, layer: nn.RNNBase, identity: Identity) -> None:
        weight = next(layer.parameters())
        self.layer = layer
        self.identity = identity
        self.input_size = layer.input_size
        self.pooled = False
        self.device = weight.device
        self.dtype = weight.dtype

    def respond(self, inputs: Tensor) -> Tensor:
        """Answer (B,T,D) by the hidden states (B,T,M) of all directions."""
        with torch.no_grad():
            return self._answer(self.layer, inputs)

    def perturbable(self) -> AbstractPerturbable:
        """The layer with its weights as an argument; fused kernels run one copy at a time."""
        return ModuleEnsemble(self.layer, roles_of(self.layer), call=self._answer, together=False)

    def dynamics(self) -> Mapping[str, RnnDynamics]:
        """The layer as a map of its state."""
        layers = [layer.layer for layer in self.identity.recurrences]
        return {layers[0].removesuffix(".l0"): RnnDynamics(self.layer, layers)}

    def weights(self) -> Mapping[str, Tensor]:
        """The parameters of the layer."""
        return self.layer.state_dict()

    def live_modules(self) -> Mapping[str, nn.Module]:
        """The layer itself."""
        return {"": self.layer}

    def _answer(self, layer: nn.Module, inputs: Tensor) -> Tensor:
        given = checked_floats(inputs, self.layer.input_size, device=self.device, dtype=self.dtype)
        if self.layer.batch_first:
            return layer(given)[0]
        return layer(given.transpose(0, 1))[0].transpose(0, 1)
