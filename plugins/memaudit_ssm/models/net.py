"""Whole models: what stands around the recurrent layers, and how they are stacked."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from torch import Tensor, nn

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from memaudit_ssm.layers.core import Core

    Hear = Callable[[str, Tensor], None]


class SequenceNet(nn.Module, ABC):
    """A whole model of a state-space family; its state dict has the names of the original's.

    Law: `forward` answers (B,T,width) by (B,T,M), or by (B,M) when `pooled`, and tells `hear`
    the hidden state after every block, under the names of `blocks`.
    """

    #: Inputs.
    width: int
    pooled: bool = False

    @abstractmethod
    def blocks(self) -> tuple[str, ...]:
        """The names of the blocks in their order."""

    @abstractmethod
    def cores(self) -> Mapping[str, Core]:
        """The recurrent layers by name."""

    @abstractmethod
    def forward(self, inputs: Tensor, hear: Hear | None = None) -> Tensor:
        """Answer a batch of sequences."""

    @property
    def table(self) -> nn.Embedding | None:
        """The embedding of tokens, whose vectors `forward` takes; None for a model of floats."""
        return None

    def describe(self) -> str:
        """What it is, in a few words."""
        return f"{type(self).__name__}, {len(self.blocks())} blocks"
