"""The gated delta rule: one decay per head beside the rule's own erasing of old values."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import torch
from torch.nn.functional import softplus

from memaudit.reparams import Exp
from memaudit_transformers.recurrent.kernels import DELTA_RULE, Kernel
from memaudit_transformers.recurrent.kind import AbstractKind, Stored, raw, tensor_of
from memaudit_transformers.recurrent.steps import Steps

if TYPE_CHECKING:
    from torch import nn

#: What the law of the gate leaves out.
BESIDE = "the delta rule erases old values beside the gate; only the gate has this law"


class GatedDelta(AbstractKind):
    """A_log and dt_bias, one number per head, and no skip: λ = exp(-exp(A_log)·softplus(dt)).

    The state is multiplied by λ·(I - β k kᵀ). The eigenvalues are those of the gate λ, with
    which the state decays in every direction that no key k writes over.
    """

    cell: ClassVar[str] = "gated-delta"
    quantity: ClassVar[str] = "dt"
    at_rest: ClassVar[str] = "rest, dt at its bias"
    kernel: ClassVar[Kernel | None] = DELTA_RULE
    decays: ClassVar[tuple[str, ...]] = ("A_log", "dt_bias")

    def matches(self, module: nn.Module) -> bool:
        rates, bias = tensor_of(module, "A_log"), tensor_of(module, "dt_bias")
        if rates is None or bias is None or tensor_of(module, "D") is not None:
            return False
        return rates.ndim == 1 and rates.shape == bias.shape

    def rest(self, module: nn.Module) -> Steps:
        return Steps(softplus(raw(module, "dt_bias")), torch.exp(raw(module, "A_log")))

    def parameterization(self, module: nn.Module) -> str:
        del module
        return "exp"

    def stored(self, module: nn.Module) -> Stored | str:
        return Stored(module, "A_log", Exp(), note=BESIDE)
