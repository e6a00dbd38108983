"""Blocks of s5-pytorch one after another, with or without a linear encoder and decoder."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor, nn
from torch.nn import functional

from memaudit_ssm.models.net import SequenceNet
from memaudit_ssm.models.pooling import pool

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from memaudit_ssm.layers.core import Core
    from memaudit_ssm.models.net import Hear


class S5Holder(nn.Module):
    """The recurrence under the name `seq`."""

    def __init__(self, seq: Core) -> None:
        super().__init__()
        self.seq = seq


class S5Block(nn.Module):
    """S5Block of s5-pytorch: norm, S5, gelu; norm, feed-forward layer, gated when `gated`.

    Both skip connections start behind their norm, not before it.
    """

    def __init__(self, seq: Core, *, hidden: int, gated: bool) -> None:
        super().__init__()
        width = seq.width
        self.gated = gated
        self.s5 = S5Holder(seq)
        self.attn_norm = nn.LayerNorm(width)
        self.ff_enc = nn.Linear(width, hidden * (2 if gated else 1), bias=False)
        self.ff_dec = nn.Linear(hidden, width, bias=False)
        self.ff_norm = nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        x = self.attn_norm(x)
        x = functional.gelu(self.s5.seq(x)) + x
        x = self.ff_norm(x)
        inner = self.ff_enc(x)
        if self.gated:
            kept, gate = inner.chunk(2, dim=-1)
            inner = kept * functional.gelu(gate)
        return self.ff_dec(inner) + x


class S5Stack(SequenceNet):
    """Blocks in a row; `ends` are the sizes (inputs, outputs) of encoder and decoder, or None.

    `biases` tells whether encoder and decoder have one; `pooling` is none, mean or last.
    """

    def __init__(
        self,
        blocks: Sequence[S5Block],
        *,
        ends: tuple[int, int] | None,
        biases: tuple[bool, bool] = (True, True),
        pooling: str = "none",
    ) -> None:
        super().__init__()
        width = blocks[0].attn_norm.normalized_shape[0]
        self.width = ends[0] if ends else width
        self.pooling = pooling
        self.pooled = pooling != "none"
        self.encoder = nn.Linear(ends[0], width, bias=biases[0]) if ends else nn.Identity()
        self.layers = nn.ModuleList(blocks)
        self.decoder = nn.Linear(width, ends[1], bias=biases[1]) if ends else nn.Identity()

    def blocks(self) -> tuple[str, ...]:
        return tuple(f"layers.{i}" for i in range(len(self.layers)))

    def cores(self) -> Mapping[str, Core]:
        found = [block.get_submodule("s5.seq") for block in self.layers]
        return dict(zip(self.blocks(), found, strict=True))  # type: ignore[arg-type]

    def forward(self, inputs: Tensor, hear: Hear | None = None) -> Tensor:
        x = self.encoder(inputs)
        for name, block in zip(self.blocks(), self.layers, strict=True):
            x = block(x)
            if hear is not None:
                hear(name, x)
        x = pool(x, self.pooling)
        return self.decoder(x)

    def describe(self) -> str:
        return f"{len(self.layers)} S5 blocks"
