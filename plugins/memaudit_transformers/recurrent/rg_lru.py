"""The real-gated linear recurrent unit of Griffin and RecurrentGemma."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import torch
from torch.nn.functional import softplus

from memaudit.reparams import Softplus
from memaudit_transformers.recurrent.kernels import RNN_SCAN, Kernel
from memaudit_transformers.recurrent.kind import AbstractKind, Stored, raw, tensor_of
from memaudit_transformers.recurrent.steps import Steps

if TYPE_CHECKING:
    from torch import nn

#: The constant c of the Griffin paper, in log a = -c·gate·softplus(recurrent_param).
SHARPNESS = 8.0


class RgLru(AbstractKind):
    """recurrent_param beside a gate: log a = -8·sigmoid(gate)·softplus(recurrent_param)."""

    cell: ClassVar[str] = "rg-lru"
    kernel: ClassVar[Kernel | None] = RNN_SCAN
    decays: ClassVar[tuple[str, ...]] = (
        "recurrent_param",
        "recurrent_gate_bias",
        "recurrent_gate_weight",
    )

    def matches(self, module: nn.Module) -> bool:
        rates, bias = (tensor_of(module, n) for n in ("recurrent_param", "recurrent_gate_bias"))
        return rates is not None and bias is not None and rates.numel() == bias.numel()

    def rest(self, module: nn.Module) -> Steps:
        gate = torch.sigmoid(raw(module, "recurrent_gate_bias").flatten())
        return Steps(SHARPNESS * gate * softplus(raw(module, "recurrent_param")))

    def parameterization(self, module: nn.Module) -> str:
        del module
        return "softplus"

    def stored(self, module: nn.Module) -> Stored | str:
        return Stored(module, "recurrent_param", Softplus())
