"""The stack that S4's example builds: encoder, residual blocks with LayerNorm, decoder."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from torch import nn

from memaudit_ssm.models.residual import ResidualStack

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memaudit_ssm.layers.core import Core


class ExampleStack(ResidualStack):
    """S4Model of state-spaces/s4's example.py."""

    listed: ClassVar[str] = "s4_layers"

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
        super().__init__(inputs=inputs, prenorm=prenorm, pooled=pooled, pooling=pooling)
        self.encoder = nn.Linear(inputs, hidden)
        self.s4_layers = nn.ModuleList(layers)
        self.norms = nn.ModuleList(nn.LayerNorm(hidden) for _ in layers)
        self.decoder = nn.Linear(hidden, outputs)

    def stack(self) -> tuple[nn.ModuleList, nn.ModuleList]:
        return self.s4_layers, self.norms
