"""The residual recurrences of Curse-of-memory, which step h towards balance by dt at a time."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from memaudit.numerics.linear import Bank, Dense, System, eigenvalues_of
from memaudit.reparams.relu import Relu
from memaudit.reparams.softplus import Softplus
from memaudit_ssm.layers.core import Core
from memaudit_ssm.layers.laws import PARTLY, TURNED, EulerRelu, Kept
from memaudit_ssm.layers.stored import Stored

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

#: What stands around one step; all have the slope 1 at 0.
ACTIVATIONS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "linear": lambda x: x,
    "tanh": torch.tanh,
    "hardtanh": functional.hardtanh,
}


class Weight(nn.Module):
    """A tensor under the name `weight`."""

    def __init__(self, *shape: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(shape))


class Residual(Core):
    """h_t = h_{t-1} + dt·act(gains·x_t + pull h_{t-1}), read out as it is.

    `pull` is a diagonal (m,) or a symmetric matrix (m,m) without positive eigenvalues. With the
    activation linear the layer is linear and has its system; else it is stepped, and its modes
    are those of the step at h = 0 and x = 0. With a generator the weights are random as at the
    start of training; without one they are zeros, to be loaded.
    """

    def __init__(
        self,
        width: int,
        *,
        dt: float = 1.0,
        activation: str = "linear",
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        if activation not in ACTIVATIONS:
            raise ValueError(f"{activation!r} is none of {', '.join(ACTIVATIONS)}")
        self.width = width
        self.dt = dt
        self.activation = activation
        self.W = Weight(width)
        self._build()
        if generator is not None:
            self._start(generator)

    @abstractmethod
    def pull(self) -> Tensor:
        """What draws the state back: a diagonal (m,) or a symmetric matrix (m,m)."""

    def gains(self) -> Tensor:
        """By what each input is multiplied (m,)."""
        return torch.ones_like(self.W.weight)

    def modes(self) -> Tensor:
        pull = self.pull()
        # Rounding must not push a mode that is kept for ever beyond the boundary.
        rates = (
            pull if pull.ndim == 1 else eigenvalues_of(pull, torch.linalg.eigvalsh).clamp(max=0.0)
        )
        modes = 1.0 + self.dt * rates
        return modes.to(torch.promote_types(modes.dtype, torch.complex64))

    def system(self) -> System:
        """The system of the linear layer."""
        pull, gains = self.pull(), self.dt * self.gains()
        if pull.ndim == 1:
            modes = (1.0 + self.dt * pull).unsqueeze(-1)
            return Bank(modes, gains.unsqueeze(-1), torch.ones_like(modes).unsqueeze(0))
        same = torch.eye(self.width, dtype=pull.dtype, device=pull.device)
        return Dense(same + self.dt * pull, torch.diag(gains), same)

    def systems(self) -> Mapping[str, System]:
        return {"": self.system()} if self.activation == "linear" else {}

    def run(self, u: Tensor) -> Tensor:
        if self.activation == "linear":
            return self.system().run(u, self.execution).flatten(2)
        return self._step_through(u)

    @property
    def states(self) -> int:
        """Real numbers in the state of one sequence."""
        return self.width

    @property
    def at(self) -> str:
        """At which point of operation the modes are taken."""
        return "every step" if self.activation == "linear" else "rest, without input"

    def _step_through(self, u: Tensor) -> Tensor:
        act, dt, pull = ACTIVATIONS[self.activation], self.dt, self.pull()
        full = pull.ndim == 2
        state = torch.zeros_like(u[:, 0])
        states: list[Tensor] = []
        for now in (u * self.gains()).unbind(1):
            drawn = torch.addmm(now, state, pull) if full else torch.addcmul(now, state, pull)
            state = state + dt * act(drawn)
            states.append(state)
        return torch.stack(states, dim=1)

    def _build(self) -> None:
        """Make the further weights."""

    @torch.no_grad()
    def _start(self, generator: torch.Generator) -> None:
        self.W.weight.normal_(generator=generator)


class SimpleDiagonalRNN(Residual):
    """h + dt·act(x - relu(W) h): a weight that is not positive keeps its state for ever."""

    cell: ClassVar[str] = "diagonalrnn"
    parameterization = "relu"

    def pull(self) -> Tensor:
        return -functional.relu(self.W.weight)

    def decay(self) -> Stored:
        return Stored(self.W, "weight", EulerRelu(dt=self.dt))


class ResidualLRU(Residual):
    """h + dt·act(w h + √(1 - w²) x) with w = e^{-e^W} - 1, between -1 and 0."""

    cell: ClassVar[str] = "lru"
    parameterization = "exp"

    def pull(self) -> Tensor:
        return torch.expm1(-self.W.weight.exp())

    def gains(self) -> Tensor:
        kept = torch.exp(-self.W.weight.exp())  # 1 + w
        return torch.sqrt(kept * (2.0 - kept))

    def decay(self) -> Stored:
        return Stored(self.W, "weight", Kept(), note=PARTLY.format(dt=self.dt))


class SimpleRNN(Residual):
    """h + dt·act(x - Pᵀ relu(W) P h); P is orthogonal at the start of training."""

    cell: ClassVar[str] = "rnn"
    parameterization = "relu"

    def decay(self) -> Stored:
        law = Softplus() if self.parameterization == "softplus" else Relu()
        return Stored(self.W, "weight", law, note=TURNED.format(end=2.0 / self.dt))

    def rates(self) -> Tensor:
        """The numbers (m,) between P and its transpose, none of them negative."""
        return functional.relu(self.W.weight)

    def pull(self) -> Tensor:
        basis = self.P.weight
        pull = -(basis.mT * self.rates()) @ basis
        # Symmetric to the last bit, which the product of matrices does not promise.
        return (pull + pull.mT) / 2.0

    def _build(self) -> None:
        self.P = Weight(self.width, self.width)

    @torch.no_grad()
    def _start(self, generator: torch.Generator) -> None:
        super()._start(generator)
        basis = torch.empty_like(self.P.weight).normal_(generator=generator)
        self.P.weight.copy_(torch.linalg.qr(basis)[0])


class SoftplusRNN(SimpleRNN):
    """SimpleRNN with softplus in the place of relu: every state decays."""

    cell: ClassVar[str] = "softplusrnn"
    parameterization = "softplus"

    def rates(self) -> Tensor:
        return functional.softplus(self.W.weight)


class TwoLinears(nn.Module):
    """linear2(act(linear1(x))), all of one width."""

    def __init__(self, width: int, *, activation: str) -> None:
        super().__init__()
        self.activation = activation
        self.linear1 = nn.Linear(width, width)
        self.linear2 = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        """The same shape."""
        return self.linear2(ACTIVATIONS[self.activation](self.linear1(x)))


class SimpleSSM(SimpleRNN):
    """The recurrence between g and f, which is that of SimpleRNN."""

    cell: ClassVar[str] = "ssm"


class SimpleSSMBlock(SimpleSSM):
    """SimpleSSM between its two small networks, g before it and f behind."""

    def forward(self, u: Tensor) -> Tensor:
        return self.f(self.run(self.g(u)))

    def _build(self) -> None:
        super()._build()
        self.g = TwoLinears(self.width, activation=self.activation)
        self.f = TwoLinears(self.width, activation=self.activation)

    @torch.no_grad()
    def _start(self, generator: torch.Generator) -> None:
        super()._start(generator)
        bound = 1.0 / math.sqrt(self.width)
        for weight in (*self.g.parameters(), *self.f.parameters()):
            weight.uniform_(-bound, bound, generator=generator)


#: The recurrences by the names of the option `cell`.
CELLS: Mapping[str, type[Residual]] = {
    cell.cell: cell for cell in (SimpleRNN, SoftplusRNN, SimpleDiagonalRNN, ResidualLRU, SimpleSSM)
}
#: The same with everything that the net of a model has around its recurrence.
BLOCKS: Mapping[str, type[Residual]] = {**CELLS, "ssm": SimpleSSMBlock}
