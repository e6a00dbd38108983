"""The model that Curse-of-memory trains: encoder, one recurrence, decoder."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from memaudit_ssm.layers.stored import class_name
from memaudit_ssm.models.net import SequenceNet
from memaudit_ssm.models.stable import Projection

if TYPE_CHECKING:
    from collections.abc import Mapping

    from memaudit_ssm.layers.core import Core
    from memaudit_ssm.layers.curse import Residual
    from memaudit_ssm.models.net import Hear

_NET = "net"


class CurseNet(SequenceNet):
    """One residual recurrence between linear layers; `pooled` reads its last state alone."""

    def __init__(
        self,
        net: Residual,
        *,
        inputs: int,
        outputs: int,
        biases: tuple[bool, bool],
        activations: tuple[str, str],
        pooled: bool,
    ) -> None:
        super().__init__()
        self.width = inputs
        self.pooled = pooled
        before, behind = activations
        self.encoder = Projection(inputs, net.width, bias=biases[0], activation=before)
        self.net = net
        self.decoder = Projection(net.width, outputs, bias=biases[1], activation=behind)

    def blocks(self) -> tuple[str, ...]:
        return (_NET,)

    def cores(self) -> Mapping[str, Core]:
        return {_NET: self.net}

    def forward(self, inputs: Tensor, hear: Hear | None = None) -> Tensor:
        x = self.net(self.encoder(inputs))
        if hear is not None:
            hear(_NET, x)
        return self.decoder(x[:, -1] if self.pooled else x)

    def describe(self) -> str:
        net = self.net
        return f"{class_name(net)} of width {net.width}, {net.activation}, dt {net.dt:g}"
