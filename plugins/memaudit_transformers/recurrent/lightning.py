"""Lightning attention: one decay per head, chosen and not trained."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from memaudit_transformers.recurrent.constant import AbstractConstant
from memaudit_transformers.recurrent.kind import Stored, raw, tensor_of
from memaudit_transformers.recurrent.steps import Steps

if TYPE_CHECKING:
    from torch import nn


class Lightning(AbstractConstant):
    """A buffer with the slope of every head: λ = exp(-slope_rate)."""

    cell: ClassVar[str] = "lightning"

    def matches(self, module: nn.Module) -> bool:
        return tensor_of(module, "slope_rate") is not None

    def rest(self, module: nn.Module) -> Steps:
        return Steps(raw(module, "slope_rate").flatten())

    def parameterization(self, module: nn.Module) -> str:
        del module
        return "fixed"

    def stored(self, module: nn.Module) -> Stored | str:
        del module
        return "its decays are chosen and not trained"
