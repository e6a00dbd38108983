"""A recurrent model made audible."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from memaudit.contracts import AbstractSubject
from memaudit.errors import ArgumentError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from memaudit.results import Identity
    from memaudit_rnn.network import RecurrentNetwork


class RnnSubject(AbstractSubject):
    """A recurrent network that answers batches; `network` holds torch's own modules."""

    def __init__(self, network: RecurrentNetwork, identity: Identity) -> None:
        weight = network.stack.get_parameter("weight_hh_l0")
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

    def weights(self) -> Mapping[str, Tensor]:
        """The parameters of the network."""
        return self.network.state_dict()

    def _checked(self, inputs: Any) -> Tensor:
        if not isinstance(inputs, Tensor):
            raise ArgumentError(f"the input must be a tensor, not {type(inputs).__name__}")
        if 0 in inputs.shape:
            raise ArgumentError(
                f"the input is empty: its shape is {tuple(inputs.shape)}; "
                "a sequence needs at least one step"
            )
        if inputs.is_floating_point():
            return self._floats(inputs)
        if inputs.is_complex() or inputs.dtype == torch.bool:
            raise ArgumentError(f"the input must hold floats or token ids, not {inputs.dtype}")
        return self._tokens(inputs)

    def _floats(self, inputs: Tensor) -> Tensor:
        if inputs.ndim != 3 or inputs.shape[2] != self.input_size:
            raise ArgumentError(
                f"the model takes floats of shape (B, T, {self.input_size}), "
                f"not {tuple(inputs.shape)}"
            )
        return inputs.to(self.device, self.dtype)

    def _tokens(self, inputs: Tensor) -> Tensor:
        if self.vocabulary is None:
            raise ArgumentError(
                "the model has no embedding that could take token ids",
                hint=f"feed floats of shape (B, T, {self.input_size})",
            )
        if inputs.ndim != 2:
            raise ArgumentError(f"token ids have shape (B, T), not {tuple(inputs.shape)}")
        low, high = int(inputs.min()), int(inputs.max())
        if low < 0 or high >= self.vocabulary:
            wrong = low if low < 0 else high
            raise ArgumentError(
                f"token id {wrong} is out of range: the embedding has {self.vocabulary} rows"
            )
        return inputs.to(self.device, torch.int64)
