"""The model that the trainer of state-spaces/s4 builds: encoder, residual blocks, decoder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from memaudit_ssm.models.net import SequenceNet
from memaudit_ssm.models.s4_example import cores_of, restored

if TYPE_CHECKING:
    from memaudit_ssm.layers.core import Core
    from memaudit_ssm.models.net import Hear

#: What the decoder keeps of the steps.
MODES = ("last", "first", "pool", "sum")


@dataclass(frozen=True, slots=True)
class TrainerPlan:
    """How the parts are joined: norms before the layers or after the sum, residuals or none.

    `norm` is layer, batch, scalar or none. With `pooled` the decoder keeps one step, by its
    `mode`: the last, the first, the mean or the sum of all; else every step.
    """

    prenorm: bool = True
    residual: bool = True
    norm: str = "layer"
    mode: str = "last"
    pooled: bool = False


class ScalarNorm(nn.Module):
    """Each step with its own mean and deviation, then one scale s and one shift m for all."""

    def __init__(self) -> None:
        super().__init__()
        self.m = nn.Parameter(torch.zeros(1))
        self.s = nn.Parameter(torch.ones(1))

    def forward(self, x: Tensor) -> Tensor:
        deviation, mean = torch.std_mean(x, dim=-1, correction=0, keepdim=True)
        return self.s / deviation * (x - mean + self.m)


class StepNorm(nn.BatchNorm1d):
    """Batch norm over the last axis, with the statistics of training."""

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 (the name in torch)
        return super().forward(input.mT).mT


class Norm(nn.Module):
    """A norm under the name that the trainer gives it."""

    def __init__(self, kind: str, width: int) -> None:
        super().__init__()
        made = {
            "layer": lambda: nn.LayerNorm(width),
            "batch": lambda: StepNorm(width),
            "scalar": ScalarNorm,
            "none": nn.Identity,
        }
        self.norm = made[kind]()

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x)


class ResidualBlock(nn.Module):
    """A layer with its norm and its residual."""

    def __init__(self, layer: nn.Module, width: int, plan: TrainerPlan) -> None:
        super().__init__()
        self.layer = layer
        self.norm = Norm(plan.norm, width)
        self.plan = plan

    def forward(self, x: Tensor) -> Tensor:
        y = self.layer(self.norm(x) if self.plan.prenorm else x)
        y = x + y if self.plan.residual else y
        return y if self.plan.prenorm else self.norm(y)


class Backbone(nn.Module):
    """The blocks, and the norm behind them where norms stand before the layers."""

    def __init__(self, layers: Sequence[nn.Module], width: int, plan: TrainerPlan) -> None:
        super().__init__()
        self.layers = nn.ModuleList(ResidualBlock(layer, width, plan) for layer in layers)
        self.norm = Norm(plan.norm if plan.prenorm else "none", width)


class Decoder(nn.Module):
    """The linear layer behind the model, under the trainer's name."""

    def __init__(self, width: int, outputs: int) -> None:
        super().__init__()
        self.output_transform = nn.Linear(width, outputs)


class TrainerNet(SequenceNet):
    """SequenceModel between its encoder and its decoder, as Lightning saves them.

    `encoder` is a linear layer, an embedding of tokens, or None; without `outputs` there is no
    linear layer at the end.
    """

    def __init__(
        self,
        layers: Sequence[nn.Module],
        plan: TrainerPlan,
        *,
        hidden: int,
        encoder: nn.Linear | nn.Embedding | None,
        outputs: int | None,
    ) -> None:
        super().__init__()
        self.plan = plan
        self.hidden = hidden
        self.pooled = plan.pooled
        self.width = encoder.in_features if isinstance(encoder, nn.Linear) else hidden
        self.encoder = nn.ModuleList([] if encoder is None else [encoder])
        self.model = Backbone(layers, hidden, plan)
        self.decoder = nn.ModuleList([] if outputs is None else [Decoder(hidden, outputs)])

    def blocks(self) -> tuple[str, ...]:
        return tuple(f"model.layers.{i}" for i in range(len(self.model.layers)))

    def cores(self) -> Mapping[str, Core]:
        return cores_of(self.blocks(), self.model.layers)

    @property
    def table(self) -> nn.Embedding | None:
        first = next(iter(self.encoder), None)
        return first if isinstance(first, nn.Embedding) else None

    def forward(self, inputs: Tensor, hear: Hear | None = None) -> Tensor:
        linear = len(self.encoder) > 0 and self.table is None
        x = self.encoder[0](inputs) if linear else inputs
        for name, block in zip(self.blocks(), self.model.layers, strict=True):
            x = block(x)
            if hear is not None:
                hear(name, x)
        x = self._kept(self.model.norm(x))
        for decoder in self.decoder:
            x = decoder.output_transform(x)  # type: ignore[operator]
        return x

    def describe(self) -> str:
        blocks = len(self.model.layers)
        what = f"{blocks} residual block{'s' * (blocks != 1)} of width {self.hidden}"
        return what + restored(self.cores().values())

    def _kept(self, x: Tensor) -> Tensor:
        """What the decoder keeps of the steps, before its linear layer."""
        if not self.pooled:
            return x.cumsum(dim=1) if self.plan.mode == "sum" else x
        if self.plan.mode in ("last", "first"):
            return x[:, -1 if self.plan.mode == "last" else 0]
        return x.mean(dim=1) if self.plan.mode == "pool" else x.sum(dim=1)
