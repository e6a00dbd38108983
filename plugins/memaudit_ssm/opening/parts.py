"""Recurrent layers as records of a report: spectra, recurrences and exact kernels."""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from memaudit.contracts import AbstractLinearPart
from memaudit.report import Recurrence
from memaudit.spectrum.result import spectrum
from memaudit_ssm.layers.stored import told_form
from memaudit_ssm.opening.casting import cast

if TYPE_CHECKING:
    from collections.abc import Mapping

    from memaudit.numerics.linear import System
    from memaudit.spectrum.result import LayerSpectrum as Spectrum
    from memaudit_ssm.layers.core import Core


#: Up to so many steps a part is stepped: a convolution would be with the very kernel it is held
#: against.
_STEPPED = 4096


class SystemPart(AbstractLinearPart):
    """One direction of a linear time-invariant layer."""

    def __init__(self, system: System, execution: str) -> None:
        self.system = system
        self.width = system.width
        self.banked = system.banked
        self._execution = execution

    def kernel(self, start: int, stop: int) -> Tensor:
        with torch.no_grad():
            return self.system.kernel(start, stop)

    def reach(self, start: int, stop: int) -> Tensor:
        with torch.no_grad():
            return self.system.reach(start, stop)

    def transition(self) -> Tensor:
        with torch.no_grad():
            return self.system.transition()

    def respond(self, u: Tensor) -> Tensor:
        with torch.no_grad():
            how = "stepping" if u.shape[1] <= _STEPPED else self._execution
            return self.system.run(u, how)


def linear_parts(cores: Mapping[str, Core]) -> dict[str, AbstractLinearPart]:
    """Every direction of every linear layer, by name."""
    with torch.no_grad():
        return {
            f"{name}.{direction}" if direction else name: SystemPart(system, core.execution)
            for name, core in cores.items()
            for direction, system in core.systems().items()
        }


def spectra(cores: Mapping[str, Core]) -> tuple[Spectrum, ...]:
    """The eigenvalues of every layer."""
    return tuple(
        spectrum(
            layer=name,
            cell=core.cell,
            parameterization=parameterization(core),
            at=core.at,
            eigenvalues=_modes(core),
        )
        for name, core in cores.items()
    )


def parameterization(core: Core) -> str:
    """How the eigenvalue is made from the raw weight; what a retrofit says of it comes first."""
    stored = core.decay()
    told = None if isinstance(stored, str) else told_form(stored.owner, stored.name)
    return core.parameterization if told is None else told


def _modes(core: Core) -> Tensor:
    """The eigenvalues in double precision: next to the boundary single precision crosses it."""
    wide = deepcopy(core).cpu()
    cast(wide, torch.float64)
    with torch.no_grad():
        return wide.modes()


def recurrences(cores: Mapping[str, Core]) -> tuple[Recurrence, ...]:
    """One record per layer; its parameters are those of the recurrence and what mixes behind it."""
    return tuple(
        Recurrence(
            layer=name,
            cell=core.cell,
            size=core.states,
            parameters=sum(p.numel() for p in core.parameters()),
            directions=core.directions,
        )
        for name, core in cores.items()
    )
