"""A nonlinear recurrence inside a model, as a map of its state."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch


@dataclass(frozen=True, slots=True)
class StateBlock:
    """The numbers of a state that belong to one recurrent layer, and what that layer is."""

    start: int
    stop: int
    cell: str
    #: How the recurrent weight is stored, by its name among the reparameterizations.
    parameterization: str = "direct"


class AbstractDynamics(ABC):
    """A recurrence as a map of its state, s_{t+1} = step(s_t, u_t), from s_0 = initial().

    Laws: `step` acts on every row by itself, can be differentiated, and gives the states that the
    model goes through. `blocks` cut the state without gaps, in an order in which the next state of
    a block depends on its own old state and on blocks before it: the Jacobian is block triangular.
    """

    #: Inputs D.
    width: int
    #: Recurrent layer → its part of the state.
    blocks: Mapping[str, StateBlock]
    #: False when a block reads time backwards: then only settled states mean something.
    causal: bool = True

    @abstractmethod
    def initial(self) -> torch.Tensor:
        """The state (n,) before the first input."""

    @abstractmethod
    def step(self, state: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
        """The states (B,n) after the inputs u (B,D)."""
