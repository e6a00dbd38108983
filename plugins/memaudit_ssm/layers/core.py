"""What every recurrent layer of the state-space families offers to an audit."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from collections.abc import Mapping

    from memaudit.numerics.linear import System
    from memaudit_ssm.layers.stored import Stored


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

    def decay(self) -> Stored | str:
        """The weight that makes the modes, or a sentence why there is no such weight."""
        return "it does not say which of its weights makes its modes"

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
    def at(self) -> str:
        """At which point of operation the modes are taken."""
        return "every step"


def run_both_ways(forward: System, backward: System, u: Tensor, execution: str) -> Tensor:
    """Two directions of a bank added as S4 adds them: the backward one sees the future alone."""
    later = backward.run(u.flip(1), execution).flip(1)
    # The step itself belongs to the forward direction; the backward one begins at the next.
    shifted = torch.cat([later[:, 1:], torch.zeros_like(later[:, :1])], dim=1)
    return forward.run(u, execution) + shifted
