"""A recurrent model made audible."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from memaudit.contracts import AbstractSubject
from memaudit.numerics.inputs import checked_inputs
from memaudit_rnn.dynamics import RnnDynamics
from memaudit_rnn.ensemble import RnnEnsemble
from memaudit_rnn.raw_ensemble import RawEnsemble
from memaudit_rnn.retrofitted import is_retrofitted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from memaudit.report import Identity
    from memaudit_rnn.network import RecurrentNetwork


class RnnSubject(AbstractSubject):
    """A recurrent network that answers batches; `network` holds torch's own modules."""

    def __init__(self, network: RecurrentNetwork, identity: Identity) -> None:
        weight = network.stack.weight_ih_l0
        assert isinstance(weight, Tensor)
        self.network = network
        self.identity = identity
        self.input_size = network.input_size
        self.pooled = network.pool != "none"
        self.vocabulary = None if network.table is None else network.table.num_embeddings
        self.device = weight.device
        self.dtype = weight.dtype

    def respond(self, inputs: Tensor) -> Tensor:
        """Answer (B,T,D) floats, or (B,T) token ids, by (B,T,M), or by (B,M) when pooled."""
        checked = self._checked(inputs)
        with torch.no_grad():
            return self.network(checked)

    def natural_inputs(self, count: int, generator: torch.Generator) -> Tensor | None:
        """Distinct rows of the embedding table; a padding row of zeros is no input."""
        if self.network.table is None:
            return None
        rows = self.network.table.weight.detach()
        filled = rows[rows.abs().amax(dim=1) > 0]
        order = torch.randperm(len(filled), generator=generator, device=generator.device)
        return filled[order[:count].to(filled.device)]

    def dynamics(self) -> Mapping[str, RnnDynamics]:
        """The stack from the input, or the encoder in front of it, to its last layer."""
        layers = self._layers()
        around = {"encoder": self.network.encoder, "forms": self.network.forms}
        stack = RnnDynamics(self.network.stack, layers, **around)
        return {layers[0].removesuffix(".l0"): stack}

    def perturbable(self) -> RnnEnsemble | RawEnsemble:
        """Copies of the network, answered by batched cells; of a retrofit the raw weights move."""
        if is_retrofitted(self.network.stack):
            return RawEnsemble(self.network, self._layers())
        return RnnEnsemble(self.network, self._layers())

    def weights(self) -> Mapping[str, Tensor]:
        """The parameters of the network."""
        return self.network.state_dict()

    def live_modules(self) -> Mapping[str, nn.Module]:
        """The network."""
        return {"": self.network}

    def _layers(self) -> list[str]:
        return [layer.layer for layer in self.identity.recurrences]

    def _checked(self, inputs: Any) -> Tensor:
        return checked_inputs(
            inputs,
            width=self.network.input_size,
            vocabulary=self.vocabulary,
            device=self.device,
            dtype=self.dtype,
        )
