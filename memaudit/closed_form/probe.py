"""The exact memory function of every linear layer, and the one of the same layer when it runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from memaudit import registry
from memaudit.closed_form.result import ClosedFormResult
from memaudit.errors import MemauditError
from memaudit.interfaces import NO_TOOLS, AbstractProbe, Tools

if TYPE_CHECKING:
    from memaudit.closed_form.result import LayerKernel
    from memaudit.interfaces import AbstractLinearPart, AbstractSubject, Setting

SHORTAGE = "memory ran short: the layer could not be looked at"


@dataclass(frozen=True, slots=True)
class ClosedForm(AbstractProbe):
    """What is the memory of a linear layer exactly, and does the layer run like that?

    Reads M(t) = max_i sum_j |rho_ij(t)| from the closed form of the kernel rho, feeds impulses to
    the layer as the model runs it, and compares both.
    """

    name = "closed-form"
    summary = "exact memory function of every linear layer beside the measured one"
    result = ClosedFormResult
    cost = "cheap"

    def measure(
        self, subject: AbstractSubject, setting: Setting, tools: Tools = NO_TOOLS
    ) -> ClosedFormResult:
        del tools
        parts = subject.linear_parts()
        return ClosedFormResult(
            tuple(_compared(name, part, subject, setting) for name, part in parts.items())
        )


def _compared(
    layer: str, part: AbstractLinearPart, subject: AbstractSubject, setting: Setting
) -> LayerKernel:
    """The record of one layer; one that fails says why and leaves the others alone."""
    import torch

    from memaudit.closed_form.kernels import LinearTrial
    from memaudit.devices import shortage

    does, adapter = f"failed in the linear layer {layer}", subject.identity.adapter
    try:
        with registry.calling("adapters", adapter, does), shortage():
            trial = LinearTrial(part, setting, device=subject.device, dtype=subject.dtype)
            with torch.no_grad():
                return trial.record(layer)
    except MemoryError:
        return _unread(layer, setting, SHORTAGE)
    except MemauditError as error:
        return _unread(layer, setting, error.fact)


def _unread(layer: str, setting: Setting, note: str) -> LayerKernel:
    """The record of a layer about which nothing is known, with the reason."""
    import numpy as np

    from memaudit.closed_form.result import LayerKernel
    from memaudit.interfaces import Status
    from memaudit.numerics.verdict import Decay

    nothing = np.zeros(0)
    return LayerKernel(
        layer=layer,
        lags=nothing.astype(np.int64),
        exact=nothing,
        measured=nothing,
        floor=0.0,
        measured_floor=0.0,
        status=Status.NOT_MEASURED,
        decay=Decay("undetermined"),
        horizon=None,
        half_life=None,
        measured_status=Status.NOT_MEASURED,
        measured_decay=Decay("undetermined"),
        measured_horizon=None,
        measured_half_life=None,
        epsilon=setting.epsilon,
        deviation=None,
        tolerance=0.0,
        fed="nothing",
        count=0,
        note=note,
    )
