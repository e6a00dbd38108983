"""The classifier of minimal-LRU and S5 in flax: encoder, gated blocks, log-softmax."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional

from memaudit_ssm.models.net import SequenceNet
from memaudit_ssm.models.pooling import POOLINGS, pool

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from memaudit_ssm.layers.core import Core
    from memaudit_ssm.models.net import Hear

#: flax's own constants, which are not torch's.
_LAYER_EPSILON, _BATCH_EPSILON = 1e-6, 1e-5
#: Which linear layers every activation has behind the recurrence.
ACTIVATIONS: Mapping[str, tuple[str, ...]] = {
    "full_glu": ("out1", "out2"),
    "half_glu1": ("out2",),
    "half_glu2": ("out2",),
    "gelu": (),
}


class FrozenBatchNorm(nn.Module):
    """A batch norm by its running statistics, over the last axis."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(width))
        self.bias = nn.Parameter(torch.zeros(width))
        self.running_mean = nn.Buffer(torch.zeros(width))
        self.running_var = nn.Buffer(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        scale = self.weight * torch.rsqrt(self.running_var + _BATCH_EPSILON)
        return (x - self.running_mean) * scale + self.bias


class FlaxBlock(nn.Module):
    """A recurrent layer `seq`, its activation and gate, the skip connection and the norm.

    `norm` is layer or batch; `called` is the norm's name in the original.
    """

    def __init__(
        self, seq: Core, *, activation: str, norm: str, called: str, prenorm: bool
    ) -> None:
        super().__init__()
        width = seq.width
        self.seq = seq
        self.activation = activation
        self.prenorm = prenorm
        self._norm = called
        for name in ACTIVATIONS[activation]:
            self.add_module(name, nn.Linear(width, width))
        layer = norm == "layer"
        made = nn.LayerNorm(width, eps=_LAYER_EPSILON) if layer else FrozenBatchNorm(width)
        self.add_module(called, made)

    def forward(self, x: Tensor) -> Tensor:
        norm = self.get_submodule(self._norm)
        if self.prenorm:
            return x + self._gated(self.seq(norm(x)))
        return norm(x + self._gated(self.seq(x)))

    def _gated(self, x: Tensor) -> Tensor:
        # flax's gelu is the approximation by tanh.
        active = functional.gelu(x, approximate="tanh")
        if self.activation == "gelu":
            return active
        gate = torch.sigmoid(self.get_submodule("out2")(active))
        if self.activation == "full_glu":
            return self.get_submodule("out1")(active) * gate
        return (active if self.activation == "half_glu1" else x) * gate


class FlaxEncoder(nn.Module):
    """A linear encoder and the blocks behind it."""

    def __init__(self, blocks: Sequence[FlaxBlock], *, inputs: int) -> None:
        super().__init__()
        self.encoder = nn.Linear(inputs, blocks[0].seq.width)
        self.layers = nn.ModuleList(blocks)


class FlaxStack(SequenceNet):
    """ClassificationModel of minimal-LRU and of S5; answers are logarithms of probabilities.

    `pooling` is one of POOLINGS. With `groups` above 1, every so many outputs are a
    distribution of their own.
    """

    def __init__(
        self,
        blocks: Sequence[FlaxBlock],
        *,
        inputs: int,
        outputs: int,
        pooling: str,
        groups: int = 1,
    ) -> None:
        super().__init__()
        if pooling not in POOLINGS:
            raise ValueError(f"{pooling!r} is none of {', '.join(POOLINGS)}")
        self.width = inputs
        self.pooling = pooling
        self.pooled = pooling != "none"
        self.groups = groups
        self.encoder = FlaxEncoder(blocks, inputs=inputs)
        self.decoder = nn.Linear(blocks[0].seq.width, outputs)

    def blocks(self) -> tuple[str, ...]:
        return tuple(f"layers_{i}" for i in range(len(self.encoder.layers)))

    def cores(self) -> Mapping[str, Core]:
        found = [block.get_submodule("seq") for block in self.encoder.layers]
        return dict(zip(self.blocks(), found, strict=True))  # type: ignore[arg-type]

    def forward(self, inputs: Tensor, hear: Hear | None = None) -> Tensor:
        x = self.encoder.encoder(inputs)
        for name, block in zip(self.blocks(), self.encoder.layers, strict=True):
            x = block(x)
            if hear is not None:
                hear(name, x)
        x = pool(x, self.pooling)
        return self._distribution(self.decoder(x))

    def describe(self) -> str:
        width = self.decoder.in_features
        blocks = len(self.encoder.layers)
        return f"{blocks} residual block{'s' * (blocks != 1)} of width {width}, log-softmax"

    def _distribution(self, x: Tensor) -> Tensor:
        if self.groups == 1:
            return x.log_softmax(-1)
        return x.unflatten(-1, (-1, self.groups)).log_softmax(-1).flatten(-2)
