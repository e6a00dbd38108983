"""What every recurrent layer of the state-space families offers to an audit."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from memaudit.interfaces import NoDecay, StoredDecay
from memaudit.numerics.linear import System

#: By so much of it a number may miss the end of a range: single precision rounds more finely.
ROUNDING = 1e-6
#: Step sizes at the start of training lie between these.
_SMALLEST_STEP, _LARGEST_STEP = 0.001, 0.1


class Core(nn.Module, ABC):
    """A recurrent layer by itself; subclasses may put an activation and a mixing layer behind it.

    Laws: `run` maps (B,T,width) to (B,T,M), starting from a state of zeros; the eigenvalues of
    one step are `modes`; a linear time-invariant layer has its `systems`, by direction.
    """

    cell: ClassVar[str]
    #: Inputs.
    width: int
    #: How the eigenvalue is made from the raw weight, by its name among the reparameterizations.
    parameterization: str = "exp"
    #: One of memaudit.numerics.linear.EXECUTIONS.
    execution: str = "auto"
    #: False while moved copies of the weights are tried: what cannot be run answers NaN then.
    checked: bool = True

    @abstractmethod
    def modes(self) -> Tensor:
        """The discrete eigenvalues of the recurrence in their natural shape, complex."""

    @abstractmethod
    def run(self, u: Tensor) -> Tensor:
        """The recurrent layer alone on (B,T,width): (B,T,M)."""

    def systems(self) -> Mapping[str, System]:
        """The linear systems by direction: {"": …}, or forward and backward; {} if not linear."""
        return {}

    def decay(self) -> StoredDecay:
        """The weight that makes the modes, or why there is no such weight."""
        return NoDecay("it does not say which of its weights makes its modes")

    def forward(self, u: Tensor) -> Tensor:
        """The whole layer, which is the recurrence unless a subclass adds to it."""
        return self.run(u)

    @property
    def states(self) -> int:
        """Real numbers in the state of one sequence."""
        return 2 * self.modes().numel()

    @property
    def directions(self) -> int:
        """How many directions of time it reads."""
        return max(1, len(self.systems()))

    @property
    def condition(self) -> float:
        """How much a readout that is stored in another form loses when restored; 1 for nothing."""
        return 1.0

    @property
    def at(self) -> str:
        """At which point of operation the modes are taken."""
        return "every step"


def retrofit_form(owner: nn.Module, name: str) -> str | None:
    """The form into which a retrofit has put a weight; None for a weight without one."""
    if not parametrize.is_parametrized(owner, name):
        return None
    form = getattr(owner.parametrizations[name][0], "form_name", None)  # type: ignore[index]
    return None if form is None else str(form)


def class_name(module: nn.Module) -> str:
    """What the class was called before a weight was put behind a parametrization."""
    return parametrize.type_before_parametrizations(module).__name__


def complex_of(real: Tensor, imaginary: Tensor) -> Tensor:
    """Complex numbers in the wider precision of the two, which `torch.complex` does not choose.

    The weights of a retrofitted layer may be wanted in double precision one by one.
    """
    dtype = torch.promote_types(real.dtype, imaginary.dtype)
    return torch.complex(real.to(dtype), imaginary.to(dtype))


def cast(module: nn.Module, dtype: torch.dtype) -> None:
    """Put a module into a precision, in its place; `module.to` would cut complex weights."""
    wide = torch.promote_types(dtype, torch.complex64)
    for owner in module.modules():
        for name, weight in [*owner._parameters.items()]:
            if weight is not None:
                kind = wide if weight.is_complex() else dtype
                owner._parameters[name] = nn.Parameter(weight.to(kind), requires_grad=False)
        for name, buffer in [*owner._buffers.items()]:
            if buffer is not None and (buffer.is_floating_point() or buffer.is_complex()):
                owner._buffers[name] = buffer.to(wide if buffer.is_complex() else dtype)


def draw_log_steps(target: Tensor, generator: torch.Generator) -> Tensor:
    """Fill a tensor with logarithms of step sizes as at the start of training."""
    return target.uniform_(math.log(_SMALLEST_STEP), math.log(_LARGEST_STEP), generator=generator)
