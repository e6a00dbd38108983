"""Mamba-2: one real mode per head."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import torch
from torch.nn.functional import softplus

from memaudit.reparams import Exp
from memaudit_transformers.recurrent.kernels import CHUNK_SCAN, Kernel
from memaudit_transformers.recurrent.kind import AbstractKind, Stored, raw, tensor_of
from memaudit_transformers.recurrent.steps import Steps

if TYPE_CHECKING:
    from torch import nn


class Dual(AbstractKind):
    """A_log, dt_bias and the skip D, all one number per head: λ = exp(-exp(A_log)·dt).

    The layer holds its step sizes inside `time_step_limit`, at rest as over data.
    """

    cell: ClassVar[str] = "mamba2"
    quantity: ClassVar[str] = "dt"
    at_rest: ClassVar[str] = "rest, dt at its bias"
    kernel: ClassVar[Kernel | None] = CHUNK_SCAN
    decays: ClassVar[tuple[str, ...]] = ("A_log", "dt_bias")

    def matches(self, module: nn.Module) -> bool:
        rates, bias, skip = (tensor_of(module, name) for name in ("A_log", "dt_bias", "D"))
        if rates is None or bias is None or skip is None:
            return False
        return rates.ndim == 1 and rates.shape == bias.shape and len(skip) == len(rates)

    def rest(self, module: nn.Module) -> Steps:
        sizes = softplus(raw(module, "dt_bias"))
        lowest, highest = getattr(module, "time_step_limit", None) or (0.0, torch.inf)
        return Steps(sizes.clamp(lowest, highest), torch.exp(raw(module, "A_log")))

    def parameterization(self, module: nn.Module) -> str:
        del module
        return "exp"

    def stored(self, module: nn.Module) -> Stored | str:
        return Stored(module, "A_log", Exp())
