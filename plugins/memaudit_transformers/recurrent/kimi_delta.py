"""Delta attention with a forget gate of its own: one decay per channel of every head."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import torch
from torch.nn.functional import softplus

from memaudit.reparams import Exp
from memaudit_transformers.recurrent.gated_delta import BESIDE
from memaudit_transformers.recurrent.kernels import DELTA_RULE, Kernel
from memaudit_transformers.recurrent.kind import AbstractKind, Stored, raw, tensor_of
from memaudit_transformers.recurrent.steps import Steps

if TYPE_CHECKING:
    from torch import nn


class KimiDelta(AbstractKind):
    """A gate inside the layer holds A_log per head and dt_bias per channel.

    The gate is exp(-exp(A_log)·softplus(dt)), or exp(bound·sigmoid(exp(A_log)·dt)) where
    the layer bounds the log decay from below. As in `GatedDelta` it stands beside the delta rule.
    """

    cell: ClassVar[str] = "kimi-delta"
    kernel: ClassVar[Kernel | None] = DELTA_RULE
    decays: ClassVar[tuple[str, ...]] = ("A_log", "dt_bias")

    def matches(self, module: nn.Module) -> bool:
        return _gate(module) is not None

    def rest(self, module: nn.Module) -> Steps:
        gate = _found(module)
        rates = torch.exp(raw(gate, "A_log")).reshape(-1, 1)
        bias = raw(gate, "dt_bias").reshape(len(rates), -1)
        bound = _bound(gate)
        if bound is not None:
            return Steps(-bound * torch.sigmoid(rates * bias))
        return Steps(rates * softplus(bias))

    def parameterization(self, module: nn.Module) -> str:
        return "exp" if _bound(_found(module)) is None else "sigmoid"

    def stored(self, module: nn.Module) -> Stored | str:
        gate = _found(module)
        if _bound(gate) is not None:
            return "the layer bounds its log decay by a sigmoid, in which A_log is no rate"
        return Stored(gate, "A_log", Exp(), note=BESIDE)


def _gate(module: nn.Module) -> nn.Module | None:
    """The child that has more biases than rates: a whole layer has as many, or a skip."""
    for child in module._modules.values():
        if child is None:
            continue
        rates, bias = tensor_of(child, "A_log"), tensor_of(child, "dt_bias")
        if rates is None or bias is None or tensor_of(child, "D") is not None:
            continue
        channels, heads = bias.numel(), rates.numel()
        if channels > heads == max(rates.shape) and channels % heads == 0:
            return child
    return None


def _found(module: nn.Module) -> nn.Module:
    gate = _gate(module)
    if gate is None:
        raise AttributeError(f"{type(module).__name__} has no forget gate")
    return gate


def _bound(gate: nn.Module) -> float | None:
    """The lower bound of the log decay, None when the gate is not bounded."""
    if getattr(gate, "safe_gate", True) is False:
        return None
    bound = getattr(gate, "safe_gate_lower_bound", getattr(gate, "lower_bound", None))
    return None if bound is None else float(bound)
