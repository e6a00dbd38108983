"""What every linear time-invariant system can do."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from torch import Tensor

#: Convolution is by FFT, stepping is the recurrence itself; chunks are steps in matrix products,
#: as fast as the one and as exact as the other, which is what auto takes; light is the way with
#: the least arithmetic, for many small systems in one batch.
EXECUTIONS = ("auto", "chunks", "convolution", "stepping", "light")


class System(ABC):
    """A causal linear time-invariant system in discrete time, real in and out.

    Laws: every execution of `run` gives the same within rounding, and its answer to a unit
    impulse is `kernel`.
    """

    #: True for a bank: input d reaches only its own C outputs.
    banked: ClassVar[bool]

    @property
    @abstractmethod
    def width(self) -> int:
        """Inputs D."""

    @abstractmethod
    def modes(self) -> Tensor:
        """The eigenvalues of one step, complex, in their natural shape."""

    @abstractmethod
    def kernel(self, start: int, stop: int) -> Tensor:
        """rho(start) … rho(stop-1) in closed form: (L,M,D), or (L,C,D) of a bank."""

    @abstractmethod
    def reach(self, start: int, stop: int) -> Tensor:
        """The states A^start B … A^(stop-1) B after a unit impulse: (L,N,D), in float64.

        Of a bank, N are the entries of the state that input d alone feeds.
        """

    @abstractmethod
    def transition(self) -> Tensor:
        """The A of these states, in float64: its diagonal (N,) or (N,N), of a bank after (D,…)."""

    @abstractmethod
    def convolve(self, u: Tensor) -> Tensor:
        """The answer to u (B,T,D) by FFT: (B,T,M), or (B,T,C,D) of a bank."""

    @abstractmethod
    def step_through(self, u: Tensor) -> Tensor:
        """The answer to u (B,T,D), one step after the other."""

    def in_chunks(self, u: Tensor) -> Tensor:
        """The answer to u (B,T,D), many steps at a time; each of them unless there is a way."""
        return self.step_through(u)

    def lightly(self, u: Tensor) -> Tensor:
        """The answer to u (B,T,D) with little arithmetic, nothing of it written in place."""
        return self.step_through(u)

    def run(self, u: Tensor, execution: str = "auto") -> Tensor:
        """The answer to u (B,T,D): (B,T,M), or (B,T,C,D) of a bank."""
        if execution not in EXECUTIONS:
            raise ValueError(f"{execution!r} is none of {', '.join(EXECUTIONS)}")
        if execution == "convolution":
            return self.convolve(u)
        if execution == "light":
            return self.lightly(u)
        return self.step_through(u) if execution == "stepping" else self.in_chunks(u)
