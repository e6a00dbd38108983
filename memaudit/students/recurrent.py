"""A nonlinear recurrence in small steps of continuous time, as the papers train it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from memaudit.students.activations import activation as function_of
from memaudit.students.forms import form_of
from memaudit.students.unrolled import Unrolled

if TYPE_CHECKING:
    from memaudit.reparam import AbstractReparam

#: Rates with which the recurrent matrix of a student starts.
SLOWEST, FASTEST = 0.1, 1.0


class RecurrentStudent(nn.Module):
    """h_{t+1} = h_t + step · act(W h_t + U x_t + b) and y_t = c h_t, the state after input t.

    Behind "direct" W is a free matrix. Behind any other form W = Pᵀ diag(f(raw)) P, symmetric and,
    where f is stable, negative whatever P is. All forms start from the same W with the same
    generator: W = Qᵀ diag(-rates) Q with an orthogonal Q and rates between 0.1 and 1.
    """

    memaudit_roles = {"U": "input/matrix", "bias": "other/vector", "c": "readout/matrix"}  # noqa: RUF012

    def __init__(
        self,
        states: int,
        *,
        reparam: str | AbstractReparam = "direct",
        activation: str = "tanh",
        step: float = 0.1,
        inputs: int = 1,
        outputs: int = 1,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.form = form_of(reparam, time="continuous")
        self.parameterization = self.form.name
        self.step_size, self.activation = step, activation
        self._act = function_of(activation)
        made = {"generator": generator, "dtype": torch.float64}
        basis = torch.linalg.qr(torch.randn(states, states, **made))[0]
        rates = SLOWEST + (FASTEST - SLOWEST) * torch.rand(states, **made)
        if self.form.name == "direct":
            self.W = nn.Parameter(-(basis.mT * rates) @ basis)
            names = {"W": "recurrent/matrix"}
        else:
            # By the ends of the range: a state dict then fits every student made alike.
            self.form = self.form.fitted(-torch.tensor([SLOWEST, FASTEST], dtype=torch.float64))
            self.raw = nn.Parameter(self.form.inverse(-rates))
            self.P = nn.Parameter(basis)
            names = {"raw": "recurrent/diagonal", "P": "recurrent/matrix"}
        self.memaudit_roles = {**type(self).memaudit_roles, **names}
        self.U = nn.Parameter(torch.randn(states, inputs, **made) / states**0.5)
        self.bias = nn.Parameter(torch.zeros(states, dtype=torch.float64))
        self.c = nn.Parameter(torch.randn(outputs, states, **made) / states**0.5)

    def weight(self) -> Tensor:
        """W (m,m)."""
        if self.form.name == "direct":
            return self.W
        return (self.P.mT * self.form.forward(self.raw)) @ self.P

    def modes(self) -> Tensor:
        """The eigenvalues of one step at rest, where the activation has the slope one."""
        weight = self.weight()
        values = torch.linalg.eigvals(weight) if self.form.name == "direct" else self._real(weight)
        return 1.0 + self.step_size * values

    def initial_state(self) -> Tensor:
        """At rest."""
        return torch.zeros_like(self.bias)

    def step(self, state: Tensor, u: Tensor) -> Tensor:
        """The states (B,m) after the inputs (B,D)."""
        return self._stepped(state, u @ self.U.mT + self.bias, self.weight())

    def forward(self, u: Tensor) -> Tensor:
        """The answers (B,T,M) to (B,T,D)."""
        weight, state = self.weight(), self.initial_state().expand(len(u), -1)
        states = []
        for fed in (u @ self.U.mT + self.bias).unbind(1):
            state = self._stepped(state, fed, weight)
            states.append(state)
        return torch.stack(states, dim=1) @ self.c.mT

    def unrolled(self, u: Tensor) -> Tensor:
        """What `forward` answers, faster where gradients are wanted; not for vmap."""
        fed = u.transpose(0, 1) @ self.U.mT + self.bias
        states = Unrolled.apply(fed, self.weight(), self.step_size, self.activation)
        return (states @ self.c.mT).transpose(0, 1)

    def _stepped(self, state: Tensor, fed: Tensor, weight: Tensor) -> Tensor:
        return state + self.step_size * self._act(state @ weight.mT + fed)

    @staticmethod
    def _real(weight: Tensor) -> Tensor:
        """Eigenvalues of a symmetric matrix; the product that made it is so up to rounding."""
        return torch.linalg.eigvalsh((weight + weight.mT) / 2.0)
