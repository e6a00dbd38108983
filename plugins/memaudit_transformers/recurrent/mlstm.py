"""The matrix memory of xLSTM: one forget gate per head."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import torch
from torch import nn
from torch.nn.functional import logsigmoid

from memaudit_transformers.recurrent.kind import AbstractKind, Stored, raw, tensor_of, unwrapped
from memaudit_transformers.recurrent.steps import Steps

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch import Tensor
    from torch.utils.hooks import RemovableHandle

    from memaudit_transformers.recurrent.kind import Hear


class MLstm(AbstractKind):
    """A projection to forget gates, alone or fused with the input gates: sigmoid(cap(gate))."""

    cell: ClassVar[str] = "mlstm"
    decays: ClassVar[tuple[str, ...]] = tuple(
        f"fgate_preact.{inner}{name}"
        for inner in ("", "base_layer.")
        for name in ("weight", "bias")
    )

    def matches(self, module: nn.Module) -> bool:
        return bool(_gates(module))

    def rest(self, module: nn.Module) -> Steps:
        _, gate = _gates(module)[0]
        if tensor_of(gate, "bias") is None:
            return _steps(module, torch.zeros(gate.out_features, dtype=torch.float64))
        return _steps(module, raw(gate, "bias"))

    def parameterization(self, module: nn.Module) -> str:
        del module
        return "sigmoid"

    def stored(self, module: nn.Module) -> Stored | str:
        del module
        return "its forget gate is a projection of the input: no weight stands for a mode"

    def listen(self, module: nn.Module, hear: Hear) -> Iterable[RemovableHandle]:
        def tell(_: nn.Module, __: tuple[Tensor, ...], answer: Tensor) -> None:
            hear(_steps(module, answer.detach()))

        whole, _ = _gates(module)[0]
        yield whole.register_forward_hook(tell)


_GATES = ("fgate_preact", "ifgate_preact")


def _gates(module: nn.Module) -> list[tuple[nn.Module, nn.Linear]]:
    """What answers with gates, and the projection inside of it, which mostly is the same."""
    found = [whole for name in _GATES if (whole := module._modules.get(name)) is not None]
    return [(w, inner) for w in found if isinstance(inner := unwrapped(w), nn.Linear)]


def _steps(module: nn.Module, gates: Tensor) -> Steps:
    if "fgate_preact" not in module._modules:  # input gates first, forget gates behind them
        gates = gates.chunk(2, -1)[1]
    cap = getattr(getattr(module, "config", None), "gate_soft_cap", None)
    if cap is not None:
        gates = cap * torch.tanh(gates / cap)
    return Steps(-logsigmoid(gates))
