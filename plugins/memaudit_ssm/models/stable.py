"""The stack that StableSSM trains: encoder, residual blocks, decoder, as Lightning saves them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional

from memaudit_ssm.models.example import residual
from memaudit_ssm.models.net import SequenceNet
from memaudit_ssm.models.pooling import pool

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from memaudit_ssm.layers.core import Core
    from memaudit_ssm.models.net import Hear

ACTIVATIONS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "linear": lambda x: x,
    "tanh": torch.tanh,
    "hardtanh": functional.hardtanh,
    "softmax": lambda x: torch.softmax(x, dim=-1),
}


class Projection(nn.Module):
    """A linear layer named U, with an activation behind it."""

    def __init__(self, inputs: int, outputs: int, *, bias: bool, activation: str) -> None:
        super().__init__()
        self.U = nn.Linear(inputs, outputs, bias=bias)
        self.activation = activation

    def forward(self, x: Tensor) -> Tensor:
        return ACTIVATIONS[self.activation](self.U(x))


class StableLayers(nn.Module):
    """The layers and their norms, under the names of StableSSM."""

    def __init__(self, layers: Sequence[Core], hidden: int) -> None:
        super().__init__()
        self.stablessm_layers = nn.ModuleList(layers)
        self.norms = nn.ModuleList(nn.LayerNorm(hidden) for _ in layers)


class StableStack(SequenceNet):
    """StableSSMModel between its linear encoder and decoder.

    With `pooled` the decoder reads one vector: the mean over time, or the last step.
    """

    def __init__(
        self,
        layers: Sequence[Core],
        *,
        inputs: int,
        outputs: int,
        hidden: int,
        biases: tuple[bool, bool],
        prenorm: bool,
        pooled: bool,
        activations: tuple[str, str],
        pooling: str = "mean",
    ) -> None:
        super().__init__()
        self.width = inputs
        self.prenorm = prenorm
        self.pooled = pooled
        self.pooling = pooling if pooled else "none"
        self.encoder = Projection(inputs, hidden, bias=biases[0], activation=activations[0])
        self.net = StableLayers(layers, hidden)
        self.decoder = Projection(hidden, outputs, bias=biases[1], activation=activations[1])

    def blocks(self) -> tuple[str, ...]:
        return tuple(f"stablessm_layers.{i}" for i in range(len(self.net.stablessm_layers)))

    def cores(self) -> Mapping[str, Core]:
        return dict(zip(self.blocks(), self.net.stablessm_layers, strict=True))  # type: ignore[arg-type]

    def forward(self, inputs: Tensor, hear: Hear | None = None) -> Tensor:
        x = self.encoder(inputs)
        pairs = zip(self.blocks(), self.net.stablessm_layers, self.net.norms, strict=True)
        for name, layer, norm in pairs:
            x = residual(x, layer, norm, prenorm=self.prenorm)
            if hear is not None:
                hear(name, x)
        return self.decoder(pool(x, self.pooling))

    def describe(self) -> str:
        width = self.decoder.U.in_features
        return f"{len(self.net.stablessm_layers)} residual blocks of width {width}"
