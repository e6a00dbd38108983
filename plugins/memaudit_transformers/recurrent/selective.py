"""Mamba-1: N real modes per channel, all driven by the step size of the channel."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import torch
from torch.nn.functional import softplus

from memaudit.reparams import Exp
from memaudit_transformers.recurrent.kernels import SELECTIVE_SCAN, Kernel
from memaudit_transformers.recurrent.kind import AbstractKind, Stored, raw, tensor_of, unwrapped
from memaudit_transformers.recurrent.steps import Steps

if TYPE_CHECKING:
    from torch import Tensor, nn


class Selective(AbstractKind):
    """A_log (d,N), or (heads,d,N), beside the bias of the step size: λ = exp(-exp(A_log)·dt)."""

    cell: ClassVar[str] = "mamba1"
    quantity: ClassVar[str] = "dt"
    at_rest: ClassVar[str] = "rest, dt at its bias"
    kernel: ClassVar[Kernel | None] = SELECTIVE_SCAN
    decays: ClassVar[tuple[str, ...]] = (
        *("A_log", "dt_proj_bias", "dt_proj.bias"),
        "dt_proj.base_layer.bias",
    )

    def matches(self, module: nn.Module) -> bool:
        rates = tensor_of(module, "A_log")
        if rates is None or rates.ndim not in (2, 3):
            return False
        bias = _bias(module)
        return bias is None or bias.shape == rates.shape[:-1]

    def rest(self, module: nn.Module) -> Steps:
        rates = torch.exp(raw(module, "A_log"))
        bias = _bias(module)
        bias = rates.new_zeros(rates.shape[:-1]) if bias is None else bias.to(rates)
        return Steps(softplus(bias).flatten(), rates.flatten(0, -2))

    def parameterization(self, module: nn.Module) -> str:
        del module
        return "exp"

    def stored(self, module: nn.Module) -> Stored | str:
        return Stored(module, "A_log", Exp())


def _bias(module: nn.Module) -> Tensor | None:
    """The bias of the step size, of a projection or of the layer itself (one per head)."""
    own = tensor_of(module, "dt_proj_bias")
    projection = unwrapped(module._modules.get("dt_proj"))
    return own if own is not None or projection is None else tensor_of(projection, "bias")
