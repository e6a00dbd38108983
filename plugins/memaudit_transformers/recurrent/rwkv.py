"""The linear attention of RWKV: one trained decay per channel."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import torch

from memaudit.reparams import Exp
from memaudit_transformers.recurrent.constant import AbstractConstant
from memaudit_transformers.recurrent.kernels import WKV, Kernel
from memaudit_transformers.recurrent.kind import Stored, raw, tensor_of
from memaudit_transformers.recurrent.steps import Steps

if TYPE_CHECKING:
    from torch import nn


class Rwkv(AbstractConstant):
    """time_decay and time_first, one number per channel each: λ = exp(-exp(time_decay))."""

    cell: ClassVar[str] = "rwkv"
    kernel: ClassVar[Kernel | None] = WKV
    decays: ClassVar[tuple[str, ...]] = ("time_decay",)

    def matches(self, module: nn.Module) -> bool:
        decay, first = tensor_of(module, "time_decay"), tensor_of(module, "time_first")
        if decay is None or first is None:
            return False
        return decay.ndim == 1 and decay.shape == first.shape

    def rest(self, module: nn.Module) -> Steps:
        return Steps(torch.exp(raw(module, "time_decay")))

    def parameterization(self, module: nn.Module) -> str:
        del module
        return "exp"

    def stored(self, module: nn.Module) -> Stored | str:
        return Stored(module, "time_decay", Exp())
