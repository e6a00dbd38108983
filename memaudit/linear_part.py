"""A linear time-invariant layer inside a model: the contract between its kernel and its run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


class AbstractLinearPart(ABC):
    """A causal linear time-invariant layer inside a model, with its exact kernel.

    Laws: with u (B,T,D), respond(u)[:, t] is the sum over s of kernel(s) applied to u[:, t - s].
    A layer that shows its state has one A and one C, for all s, with reach(s + 1) = A reach(s) and,
    from s = 1 on, where the input itself is no longer heard, kernel(s) = Re(C reach(s)).
    """

    #: Inputs D.
    width: int
    #: True for a bank of single-input systems: input d reaches only its own C outputs.
    banked: bool

    @abstractmethod
    def kernel(self, start: int, stop: int) -> torch.Tensor:
        """The kernel at the lags start..stop-1 in closed form: (L,M,D), or (L,C,D) of a bank."""

    @abstractmethod
    def respond(self, u: torch.Tensor) -> torch.Tensor:
        """The layer run as the model runs it, on (B,T,D): (B,T,M), or (B,T,C,D) of a bank."""

    def reach(self, start: int, stop: int) -> torch.Tensor | None:
        """The states A^s B that are left s steps after a unit impulse, s = start..stop-1: (L,N,D).

        Real or complex, in float64. Of a bank, N are the entries of the state that input d alone
        feeds. None for a layer that keeps its state to itself.
        """
        del start, stop
        return None

    def transition(self) -> torch.Tensor | None:
        """The A that moves these states: its diagonal (N,) or all of it (N,N), in float64.

        Of a bank (D,N) or (D,N,N), one for every input. None where it is not told.
        """
        return None
