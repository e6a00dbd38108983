"""S5 under the names of its three storage forms: PyTorch's, JAX's, and in factors."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor, nn

from memaudit.numerics.linear import Modal, System, discretize
from memaudit.reparams import Clip, Direct
from memaudit_ssm.layers.core import Core
from memaudit_ssm.layers.stored import Stored, complex_of

if TYPE_CHECKING:
    from collections.abc import Mapping

#: As S5 offers them.
STEPS = ("zoh", "bilinear")
#: clip_eigs keeps the real part of every rate at or below this.
LARGEST_RATE = -1e-4
#: Step sizes at the start of training lie between these.
_SMALLEST_STEP, _LARGEST_STEP = 0.001, 0.1


class AbstractS5(Core):
    """x' = Λ x + B u in continuous time, y = Re(C x) + D u; held over steps of exp(log_step).

    Two directions share Λ and B; C has P columns for each, and both directions hear the present
    step. `conj_sym` doubles the real part, for one of each conjugate pair is stored; `clip_eigs`
    keeps Re Λ <= -1e-4; `degree` is the power of every entry of B in discrete time.
    """

    cell: ClassVar[str] = "s5"
    parameterization: str = "direct"
    #: The weight that holds the rates, complex or their real parts.
    diagonal: ClassVar[str] = "Lambda"

    def __init__(
        self,
        width: int,
        states: int,
        *,
        disc: str = "zoh",
        bidirectional: bool = False,
        conj_sym: bool = False,
        clip_eigs: bool = False,
        degree: int = 1,
    ) -> None:
        super().__init__()
        if disc not in STEPS:
            raise ValueError(f"{disc!r} is none of {', '.join(STEPS)}")
        self.width = width
        self.modes_stored = states
        self.disc = disc
        self.bidirectional = bidirectional
        self.conj_sym = conj_sym
        self.clip_eigs = clip_eigs
        self.degree = degree
        self.D = nn.Parameter(torch.zeros(width))

    @abstractmethod
    def stored(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Λ (P,), B (P,H), C (H,P) or (H,2P), complex, and log_step (P,), as they are stored."""

    def systems(self) -> Mapping[str, System]:
        rates, b, c, log_step = self.stored()
        if self.clip_eigs:
            rates = torch.complex(rates.real.clamp(max=LARGEST_RATE), rates.imag)
        modes, gains = discretize(rates, log_step.exp(), how=self.disc)
        inputs = (gains.unsqueeze(-1) * b) ** self.degree
        c = 2.0 * c if self.conj_sym else c
        if not self.bidirectional:
            return {"": Modal(modes, inputs, c, self.D)}
        ahead, back = c.tensor_split(2, dim=1)
        return {
            "forward": Modal(modes, inputs, ahead, self.D),
            "backward": Modal(modes, inputs, back),
        }

    def decay(self) -> Stored:
        law = Clip(ceiling=LARGEST_RATE) if self.clip_eigs else Direct()
        return Stored(self, self.diagonal, law, part="real" if self.diagonal == "Lambda" else "all")

    def modes(self) -> Tensor:
        return next(iter(self.systems().values())).modes()

    def run(self, u: Tensor) -> Tensor:
        systems = self.systems()
        if not self.bidirectional:
            return systems[""].run(u, self.execution)
        # Unlike S4's, the backward state includes the present step: nothing is shifted.
        later = systems["backward"].run(u.flip(1), self.execution).flip(1)
        return systems["forward"].run(u, self.execution) + later

    @property
    def states(self) -> int:
        return 2 * self.modes_stored * (2 if self.bidirectional else 1)

    @property
    def columns(self) -> int:
        """Columns of C."""
        return self.modes_stored * (2 if self.bidirectional else 1)


class S5(AbstractS5):
    """The names of s5-pytorch: complex Lambda (P,) and C, B (P,H,2), log_step (P,).

    With a generator the weights are random: rates -1/2 + iπn, steps between 0.001 and 0.1.
    Without one they are zeros, to be loaded.
    """

    def __init__(
        self,
        width: int,
        states: int = 64,
        *,
        disc: str = "zoh",
        bidirectional: bool = False,
        conj_sym: bool = False,
        clip_eigs: bool = False,
        degree: int = 1,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(
            width,
            states,
            disc=disc,
            bidirectional=bidirectional,
            conj_sym=conj_sym,
            clip_eigs=clip_eigs,
            degree=degree,
        )
        self.Lambda = _complex_zeros(states)
        self.B = nn.Parameter(torch.zeros(states, width, 2))
        self.C = _complex_zeros(width, self.columns)
        self.log_step = nn.Parameter(torch.zeros(states))
        if generator is not None:
            self._start(generator)

    def stored(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        return self.Lambda, torch.view_as_complex(self.B), self.C, self.log_step

    @torch.no_grad()
    def _start(self, generator: torch.Generator) -> None:
        half = torch.full((self.modes_stored,), -0.5)
        # Frequencies of both signs where both of a pair are stored.
        order = torch.arange(self.modes_stored, dtype=half.dtype)
        order = order if self.conj_sym else order - (self.modes_stored - 1) / 2
        self.Lambda.copy_(torch.complex(half, math.pi * order))
        self.B.normal_(0.0, math.sqrt(0.5 / self.width), generator=generator)
        pairs = torch.randn(*self.C.shape, 2, generator=generator)
        self.C.copy_(torch.view_as_complex(pairs) * math.sqrt(0.5 / self.modes_stored))
        low, high = math.log(_SMALLEST_STEP), math.log(_LARGEST_STEP)
        self.log_step.uniform_(low, high, generator=generator)
        self.D.normal_(generator=generator)


class FlaxS5(AbstractS5):
    """The names of S5 in JAX: Lambda_re and Lambda_im (P,), B (P,H,2), log_step (P,1).

    C is (H,P,2), or of two directions either (H,2P,2) or, when `apart`, C1 and C2 (H,P,2).
    """

    diagonal: ClassVar[str] = "Lambda_re"

    def __init__(
        self,
        width: int,
        states: int = 64,
        *,
        disc: str = "zoh",
        bidirectional: bool = False,
        apart: bool = False,
        conj_sym: bool = True,
        clip_eigs: bool = False,
    ) -> None:
        super().__init__(
            width,
            states,
            disc=disc,
            bidirectional=bidirectional,
            conj_sym=conj_sym,
            clip_eigs=clip_eigs,
        )
        self.readouts = ("C1", "C2") if apart else ("C",)
        self.Lambda_re = nn.Parameter(torch.zeros(states))
        self.Lambda_im = nn.Parameter(torch.zeros(states))
        self.B = nn.Parameter(torch.zeros(states, width, 2))
        for name in self.readouts:
            zeros = torch.zeros(width, self.columns // len(self.readouts), 2)
            self.register_parameter(name, nn.Parameter(zeros))
        self.log_step = nn.Parameter(torch.zeros(states, 1))

    def stored(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        rates = complex_of(self.Lambda_re, self.Lambda_im)
        c = torch.cat([torch.view_as_complex(getattr(self, n)) for n in self.readouts], dim=1)
        return rates, torch.view_as_complex(self.B), c, self.log_step[:, 0]


class FactorizedS5(AbstractS5):
    """s5-pytorch with B = BP BHᵀ and C = CHᵀ CP of rank R, complex: BH (H,R), BP (P,R)."""

    def __init__(
        self,
        width: int,
        states: int,
        rank: int,
        *,
        disc: str = "zoh",
        bidirectional: bool = False,
        degree: int = 1,
    ) -> None:
        super().__init__(width, states, disc=disc, bidirectional=bidirectional, degree=degree)
        self.Lambda = _complex_zeros(states)
        self.BH = _complex_zeros(width, rank)
        self.BP = _complex_zeros(states, rank)
        self.CH = _complex_zeros(rank, width)
        self.CP = _complex_zeros(rank, self.columns)
        self.log_step = nn.Parameter(torch.zeros(states))

    def stored(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        return self.Lambda, self.BP @ self.BH.mT, self.CH.mT @ self.CP, self.log_step


def _complex_zeros(*shape: int) -> nn.Parameter:
    return nn.Parameter(torch.view_as_complex(torch.zeros(*shape, 2)))
