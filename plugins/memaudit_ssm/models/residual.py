"""What the stacks of the families share: encoder, residual blocks with norms, decoder."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, ClassVar

from torch import Tensor, nn

from memaudit_ssm.models.net import SequenceNet
from memaudit_ssm.models.pooling import pool

if TYPE_CHECKING:
    from collections.abc import Mapping

    from memaudit_ssm.layers.core import Core
    from memaudit_ssm.models.net import Hear


class ResidualStack(SequenceNet):
    """Subclasses have an `encoder` and a `decoder`, and say where the layers and norms are.

    With `pooled` the decoder reads one vector: the mean over time, or the last step.
    """

    #: What the list of layers is called.
    listed: ClassVar[str]
    encoder: nn.Module
    decoder: nn.Module

    def __init__(self, *, inputs: int, prenorm: bool, pooled: bool, pooling: str) -> None:
        super().__init__()
        self.width = inputs
        self.prenorm = prenorm
        self.pooled = pooled
        self.pooling = pooling if pooled else "none"

    @abstractmethod
    def stack(self) -> tuple[nn.ModuleList, nn.ModuleList]:
        """The layers and their norms."""

    def blocks(self) -> tuple[str, ...]:
        return tuple(f"{self.listed}.{i}" for i in range(len(self.stack()[0])))

    def cores(self) -> Mapping[str, Core]:
        return dict(zip(self.blocks(), self.stack()[0], strict=True))  # type: ignore[arg-type]

    def forward(self, inputs: Tensor, hear: Hear | None = None) -> Tensor:
        x = self.encoder(inputs)
        for name, layer, norm in zip(self.blocks(), *self.stack(), strict=True):
            x = residual(x, layer, norm, prenorm=self.prenorm)
            if hear is not None:
                hear(name, x)
        return self.decoder(pool(x, self.pooling))

    def describe(self) -> str:
        layers, norms = self.stack()
        width = next(norm.normalized_shape[0] for norm in norms if isinstance(norm, nn.LayerNorm))
        return f"{len(layers)} residual block{'s' if len(layers) > 1 else ''} of width {width}"


def residual(x: Tensor, layer: nn.Module, norm: nn.Module, *, prenorm: bool) -> Tensor:
    """A layer with its skip connection, the norm before it or after the sum."""
    return x + layer(norm(x)) if prenorm else norm(x + layer(x))
