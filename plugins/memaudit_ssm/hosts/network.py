"""A selective scan with its projections, in torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional

from memaudit.errors import SourceError, clean
from memaudit.loading.filling import fill
from memaudit.numerics.scans import selective_scan
from memaudit.reparams import Exp
from memaudit_ssm.layers.stored import Stored

if TYPE_CHECKING:
    from memaudit_ssm.hosts.scans import Scan


class SelectiveScan(nn.Module):
    """The recurrence of Mamba-1 with the projections that steer it, (B,T,d) → (B,T,d).

    With dt, B and C linear in the input u_t, dt = softplus(W·x_proj(u_t) + bias):
    h_t = exp(dt·A) h_{t-1} + dt·B_t u_t and y_t = C_t·h_t + D u_t, A = -exp(A_log).
    """

    A_log: Tensor
    D: Tensor
    dt_weight: Tensor
    dt_bias: Tensor
    x_weight: Tensor
    x_bias: Tensor | None

    def __init__(self, scan: Scan, *, dtype: torch.dtype) -> None:
        super().__init__()
        self.sizes = (scan.shape.rank, scan.shape.states, scan.shape.states)
        for role, shape in scan.shape.single().items():
            value = None
            if role in scan.tensors:
                empty = torch.empty(shape, device="meta", dtype=dtype)
                value = nn.Parameter(empty, requires_grad=False)
            self.register_parameter(role, value)

    def rates(self) -> Tensor:
        """A (d,N), the rates of the states in continuous time: all negative."""
        return -self.A_log.exp()

    def decay(self) -> Stored:
        """The weight that makes the modes."""
        return Stored(self, "A_log", Exp())

    def steps(self, inputs: Tensor) -> Tensor:
        """The step sizes dt (B,T,d) that the inputs (B,T,d) set."""
        low = self._projected(inputs)[0]
        return functional.softplus(functional.linear(low, self.dt_weight, self.dt_bias))

    def forward(self, inputs: Tensor) -> Tensor:
        """The scan over time, from a state of zeros."""
        low, b, c = self._projected(inputs)
        answer = selective_scan(
            inputs.mT,
            functional.linear(low, self.dt_weight).mT,
            self.rates(),
            b.mT,
            c.mT,
            D=self.D,
            delta_bias=self.dt_bias,
            delta_softplus=True,
        )
        assert isinstance(answer, Tensor)  # the last state was not asked for
        return answer.mT

    def stepped(self, inputs: Tensor) -> Tensor:
        """The same step by step, nothing written in place: for copies at once and gradients."""
        low, b, c = self._projected(inputs)
        dt = functional.softplus(functional.linear(low, self.dt_weight, self.dt_bias))
        decays = torch.exp(dt.unsqueeze(-1) * self.rates())  # (B,T,d,N)
        fed = (dt * inputs).unsqueeze(-1) * b.unsqueeze(2)
        state = torch.zeros_like(fed[:, 0])
        states: list[Tensor] = []
        for decay, now in zip(decays.unbind(1), fed.unbind(1), strict=True):
            state = torch.addcmul(now, decay, state)
            states.append(state)
        return torch.einsum("btdn,btn->btd", torch.stack(states, dim=1), c) + self.D * inputs

    def _projected(self, inputs: Tensor) -> tuple[Tensor, ...]:
        return functional.linear(inputs, self.x_weight, self.x_bias).split(self.sizes, dim=-1)


def build(scan: Scan, *, device: torch.device, dtype: torch.dtype) -> SelectiveScan:
    """The module with the weights of the scan; E_NONFINITE when A is too large for the dtype."""
    network = SelectiveScan(scan, dtype=dtype)
    fill(network, scan.tensors, device=device)
    if not bool(torch.isfinite(network.rates()).all()):
        largest = float(network.A_log.max())
        raise SourceError(
            "E_NONFINITE",
            f"A = -exp(A_log) of {clean(scan.name)} is infinite: {clean(scan.keys[0])} reaches "
            f"{largest:g}",
            hint="the training diverged or the file is damaged; audit an earlier checkpoint",
            stage="weights",
        )
    return network.eval()
