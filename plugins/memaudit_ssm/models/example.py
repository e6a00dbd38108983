"""The stack that S4's example builds: encoder, residual blocks with LayerNorm, decoder."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor, nn

from memaudit_ssm.models.net import SequenceNet
from memaudit_ssm.models.pooling import pool

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from memaudit_ssm.layers.core import Core
    from memaudit_ssm.models.net import Hear


class ExampleStack(SequenceNet):
    """S4Model of state-spaces/s4's example.py.

    With `pooled` the decoder reads one vector: the mean over time, or the last step.
    """

    def __init__(
        self,
        layers: Sequence[Core],
        *,
        inputs: int,
        outputs: int,
        hidden: int,
        prenorm: bool,
        pooled: bool,
        pooling: str = "mean",
    ) -> None:
        super().__init__()
        self.width = inputs
        self.prenorm = prenorm
        self.pooled = pooled
        self.pooling = pooling if pooled else "none"
        self.encoder = nn.Linear(inputs, hidden)
        self.s4_layers = nn.ModuleList(layers)
        self.norms = nn.ModuleList(nn.LayerNorm(hidden) for _ in layers)
        self.decoder = nn.Linear(hidden, outputs)

    def blocks(self) -> tuple[str, ...]:
        return tuple(f"s4_layers.{i}" for i in range(len(self.s4_layers)))

    def cores(self) -> Mapping[str, Core]:
        return dict(zip(self.blocks(), self.s4_layers, strict=True))  # type: ignore[arg-type]

    def forward(self, inputs: Tensor, hear: Hear | None = None) -> Tensor:
        x = self.encoder(inputs)
        for name, layer, norm in zip(self.blocks(), self.s4_layers, self.norms, strict=True):
            x = residual(x, layer, norm, prenorm=self.prenorm)
            if hear is not None:
                hear(name, x)
        return self.decoder(pool(x, self.pooling))

    def describe(self) -> str:
        return f"{len(self.s4_layers)} residual blocks of width {self.decoder.in_features}"


def residual(x: Tensor, layer: nn.Module, norm: nn.Module, *, prenorm: bool) -> Tensor:
    """A layer with its skip connection, the norm before it or after the sum."""
    return x + layer(norm(x)) if prenorm else norm(x + layer(x))
