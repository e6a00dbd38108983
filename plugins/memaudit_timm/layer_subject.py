"""One recurrent layer of a timm model made audible."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from memaudit.contracts import AbstractSubject
from memaudit_timm.checking import checked_floats

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor, nn

    from memaudit.results import Identity


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
        given = checked_floats(inputs, self.layer.input_size, device=self.device, dtype=self.dtype)
        with torch.no_grad():
            if self.layer.batch_first:
                return self.layer(given)[0]
            return self.layer(given.transpose(0, 1))[0].transpose(0, 1)

    def weights(self) -> Mapping[str, Tensor]:
        """The parameters of the layer."""
        return self.layer.state_dict()
