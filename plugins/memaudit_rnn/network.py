"""The computation that is audited: encoder, recurrent stack, pooling, head."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from memaudit.loading.filling import fill

if TYPE_CHECKING:
    from collections.abc import Mapping

    from memaudit_rnn.surroundings import Layer


class RecurrentNetwork(nn.Module):
    """[table or encoder] → stack → [pool] → [head], with the weights of the source.

    Floats skip the embedding table: the input space of a token model is its embedding space.
    `layers` is what the source calls the layers of the stack, `forms` are those in which it keeps
    recurrent weights that are plain here.
    """

    def __init__(
        self,
        stack: nn.RNNBase,
        *,
        table: nn.Embedding | None = None,
        encoder: nn.Linear | None = None,
        head: nn.Linear | None = None,
        pool: str = "none",
        layers: tuple[str, ...] = (),
        forms: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__()
        self.table = table
        self.encoder = encoder
        self.stack = stack
        self.head = head
        self.pool = pool
        self.layers = layers
        self.forms = dict(forms or {})
        self.eval()
        self.requires_grad_(False)

    @property
    def input_size(self) -> int:
        """Width of the float inputs."""
        return self.stack.input_size if self.encoder is None else self.encoder.in_features

    def forward(self, inputs: Tensor) -> Tensor:
        """Answer (B,T,D) floats or (B,T) ids by (B,T,M), or by (B,M) when pooled."""
        if self.table is not None and inputs.ndim == 2:
            inputs = self.table(inputs)
        elif self.encoder is not None:
            inputs = self.encoder(inputs)
        states, final = self.stack(inputs)
        answer = self._pooled(states, final[0] if isinstance(final, tuple) else final)
        return answer if self.head is None else self.head(answer)

    def _pooled(self, states: Tensor, final: Tensor) -> Tensor:
        """`final` joins the last layer's end states of both directions, `last` the last step."""
        if self.pool == "final":
            directions = 2 if self.stack.bidirectional else 1
            return torch.cat(tuple(final[-directions:]), dim=-1)
        if self.pool == "last":
            return states[:, -1]
        if self.pool == "mean":
            return states.mean(dim=1)
        if self.pool == "max":
            return states.amax(dim=1)
        return states


def build_table(
    layer: Layer | None, tensors: Mapping[str, Tensor], device: torch.device, dtype: torch.dtype
) -> nn.Embedding | None:
    """The embedding table of a layer, if there is one."""
    if layer is None:
        return None
    table = nn.Embedding(layer.rows, layer.columns, device="meta", dtype=dtype)
    fill(table, {"weight": tensors[layer.weight]}, device=device)
    return table


def build_linear(
    layer: Layer | None, tensors: Mapping[str, Tensor], device: torch.device, dtype: torch.dtype
) -> nn.Linear | None:
    """The linear layer of a layer, if there is one."""
    if layer is None:
        return None
    linear = nn.Linear(
        layer.columns, layer.rows, bias=layer.bias is not None, device="meta", dtype=dtype
    )
    weights = {"weight": tensors[layer.weight]}
    if layer.bias is not None:
        weights["bias"] = tensors[layer.bias]
    fill(linear, weights, device=device)
    return linear
