"""The contract of a target: a functional that models are held against, or trained on."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    import torch


def _shortest(value: float) -> str:
    """A number in as few digits as give it back."""
    short = f"{value:g}"
    return short if float(short) == value else repr(value)


@dataclass(frozen=True, slots=True)
class AbstractTarget(ABC):
    """A sequence of functionals y_t = H_t(x), known exactly; its numbers are its fields.

    Laws: `answer` is causal, acts on every row by itself, and is the same every time; it works in
    float64 on the device of the inputs. Written as text it is its name and, behind a colon, its
    numbers in the order of the fields, as in poly:1.5,0.1; those that are left out are the
    defaults. Numbers that make no functional are refused with an ArgumentError.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    #: Inputs D and outputs M.
    inputs: ClassVar[int] = 1
    outputs: ClassVar[int] = 1
    #: Whether it is a convolution with a kernel.
    linear: ClassVar[bool] = False

    @abstractmethod
    def answer(self, inputs: torch.Tensor) -> torch.Tensor:
        """The answers (B,T,M) to (B,T,D), in float64."""

    def __str__(self) -> str:
        numbers = ",".join(_shortest(getattr(self, f.name)) for f in fields(self))
        return f"{self.name}:{numbers}" if numbers else self.name


@dataclass(frozen=True, slots=True)
class AbstractKernelTarget(AbstractTarget):
    """A linear target, y_t = sum_s rho(s) x_{t-s}, by its kernel."""

    linear: ClassVar[bool] = True

    @abstractmethod
    def kernel(self, steps: int) -> torch.Tensor:
        """The kernel rho at the lags 0 … steps - 1, in float64."""

    def answer(self, inputs: torch.Tensor) -> torch.Tensor:
        """The convolution of the inputs (B,T,1) with the kernel."""
        from memaudit.numerics.convolution import filtered

        return filtered(inputs, self.kernel(inputs.shape[1]).reshape(-1, 1, 1))
