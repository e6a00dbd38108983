"""The matrix memory of xLSTM: one forget gate per head."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import torch
from torch import nn
from torch.nn.functional import logsigmoid

from memaudit_transformers.recurrent.kind import AbstractKind, raw, tensor_of
from memaudit_transformers.recurrent.steps import Steps

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch import Tensor
    from torch.utils.hooks import RemovableHandle

    from memaudit_transformers.recurrent.kind import Hear


class MLstm(AbstractKind):
    """A projection to forget gates, alone or fused with the input gates: sigmoid(cap(gate))."""

    cell: ClassVar[str] = "mlstm"
    decays: ClassVar[tuple[str, ...]] = ("fgate_preact.weight", "fgate_preact.bias")

    def matches(self, module: nn.Module) -> bool:
        return any(isinstance(module._modules.get(name), nn.Linear) for name in _GATES)

    def rest(self, module: nn.Module) -> Steps:
        gate = _gate(module)
        if tensor_of(gate, "bias") is None:
            return _steps(module, torch.zeros(gate.out_features, dtype=torch.float64))
        return _steps(module, raw(gate, "bias"))

    def parameterization(self, module: nn.Module) -> str:
        del module
        return "sigmoid"

    def listen(self, module: nn.Module, hear: Hear) -> Iterable[RemovableHandle]:
        def tell(_: nn.Module, __: tuple[Tensor, ...], answer: Tensor) -> None:
            hear(_steps(module, answer.detach()))

        yield _gate(module).register_forward_hook(tell)


_GATES = ("fgate_preact", "ifgate_preact")


def _gate(module: nn.Module) -> nn.Linear:
    return next(gate for name in _GATES if isinstance(gate := module._modules.get(name), nn.Linear))


def _steps(module: nn.Module, gates: Tensor) -> Steps:
    if "fgate_preact" not in module._modules:  # input gates first, forget gates behind them
        gates = gates.chunk(2, -1)[1]
    cap = getattr(getattr(module, "config", None), "gate_soft_cap", None)
    if cap is not None:
        gates = cap * torch.tanh(gates / cap)
    return Steps(-logsigmoid(gates))
