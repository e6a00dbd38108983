"""S4D in its standalone form, and StableSSM, which is S4D with other parameterizations."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, ClassVar, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from memaudit.numerics.linear import Bank, System, discretize
from memaudit_ssm.layers.core import Core
from memaudit_ssm.layers.laws import STABLE_LAWS
from memaudit_ssm.layers.stored import Stored, complex_of
from memaudit_ssm.layers.transforms import REAL_PART

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Step sizes at the start of training lie between these.
_SMALLEST_STEP, _LARGEST_STEP = 0.001, 0.1


class S4DKernel(nn.Module):
    """The weights of S4D: C (H,N,2), log_dt (H,), log_A_real (H,N) and A_imag (H,N)."""

    def __init__(self, width: int, pairs: int) -> None:
        super().__init__()
        self.C = nn.Parameter(torch.zeros(width, pairs, 2))
        self.log_dt = nn.Parameter(torch.zeros(width))
        self.log_A_real = nn.Parameter(torch.zeros(width, pairs))
        self.A_imag = nn.Parameter(torch.zeros(width, pairs))


class S4D(Core):
    """A bank of `width` diagonal systems with `states` / 2 conjugate pairs each.

    A = f(log_A_real) + i·A_imag in continuous time, B = 1, held over a step of exp(log_dt):
    K(l) = 2 Re Σ_n C_n (e^{dt·A_n} - 1) / A_n · e^{dt·A_n·l}. `parameterization` names f: exp,
    softplus, best (-1/(w² + 0.1)) or direct. With a generator the weights are random as at the
    start of training; without one they are zeros, to be loaded.
    """

    cell: ClassVar[str] = "s4d"

    def __init__(
        self,
        width: int,
        states: int = 64,
        *,
        parameterization: str = "exp",
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        if parameterization not in REAL_PART:
            raise ValueError(f"{parameterization!r} is none of {', '.join(REAL_PART)}")
        self.width = width
        self.parameterization = parameterization
        self.D = nn.Parameter(torch.zeros(width))
        self.kernel = S4DKernel(width, states // 2)
        if generator is not None:
            self._start(generator)

    def rates(self) -> Tensor:
        """A (H,N) in continuous time, one of each conjugate pair."""
        real = REAL_PART[self.parameterization](self.kernel.log_A_real)
        return complex_of(real, self.kernel.A_imag)

    def system(self) -> Bank:
        """The bank in discrete time."""
        dt = self.kernel.log_dt.exp().unsqueeze(-1)
        modes, gains = discretize(self.rates(), dt, how="zoh")
        # One of each conjugate pair is stored; the other one doubles the real part.
        readout = 2.0 * torch.view_as_complex(self.kernel.C)
        return Bank(modes, gains, readout.unsqueeze(0), self.D.unsqueeze(0))

    def systems(self) -> Mapping[str, System]:
        return {"": self.system()}

    def modes(self) -> Tensor:
        return self.system().modes()

    def decay(self) -> Stored:
        return Stored(self.kernel, "log_A_real", STABLE_LAWS[self.parameterization])

    def run(self, u: Tensor) -> Tensor:
        return self.system().run(u, self.execution).flatten(2)

    @torch.no_grad()
    def _start(self, generator: torch.Generator) -> None:
        kernel = self.kernel
        low, high = math.log(_SMALLEST_STEP), math.log(_LARGEST_STEP)
        kernel.log_dt.uniform_(low, high, generator=generator)
        kernel.C.normal_(0.0, math.sqrt(0.5), generator=generator)
        kernel.A_imag.copy_(math.pi * torch.arange(kernel.A_imag.shape[1]))
        kernel.log_A_real.fill_(_raw_half(self.parameterization))
        self.D.normal_(generator=generator)


class S4DBlock(S4D):
    """S4D with its activation and its gated mixing layer (H → 2H, halves multiplied)."""

    def __init__(self, width: int, states: int = 64, *, parameterization: str = "exp") -> None:
        super().__init__(width, states, parameterization=parameterization)
        self.output_linear = nn.Sequential(nn.Conv1d(width, 2 * width, kernel_size=1))

    def forward(self, u: Tensor) -> Tensor:
        mix = cast("nn.Conv1d", self.output_linear[0])
        hidden = functional.gelu(self.run(u))
        return functional.glu(functional.linear(hidden, mix.weight[..., 0], mix.bias), dim=-1)


def _raw_half(parameterization: str) -> float:
    """The raw weight of the rate 1/2 with which training starts."""
    return {
        "exp": math.log(0.5),
        "softplus": math.log(math.expm1(0.5)),
        "best": math.sqrt(2.0 - 0.1),
        "direct": -0.5,
    }[parameterization]
