"""State-space layers as the paper writes them, in stacks with a nonlinearity between them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from memaudit.numerics.linear import Dense


class StateSpace(nn.Module):
    """h_k = W h_{k-1} + U x_k + b, and the answer is C h_k + D x_k.

    W is (m,m), U (m,d), b (m,). None stands for W = 0, b = 0, C = 1 and D = 0. `late` reads
    x_{k-1} in the place of x_k, as eq. 12 of the paper has it.
    """

    memaudit_roles = {  # noqa: RUF012
        "W": "recurrent/matrix",
        "U": "input/matrix",
        "b": "other/vector",
        "C": "readout/matrix",
        "D": "readout/matrix",
    }

    def __init__(
        self,
        w: Tensor | None,
        u: Tensor,
        *,
        b: Tensor | None = None,
        c: Tensor | None = None,
        d: Tensor | None = None,
        late: bool = False,
    ) -> None:
        super().__init__()
        self.late = late
        given = {"W": w, "U": u, "b": b, "C": c, "D": d}
        for name, value in given.items():
            self.register_parameter(name, None if value is None else nn.Parameter(value))
        kept = {name for name, value in given.items() if value is not None}
        self.memaudit_roles = {n: role for n, role in self.memaudit_roles.items() if n in kept}

    def modes(self) -> Tensor:
        """The eigenvalues of one step."""
        return self.U.new_zeros(len(self.U)) if self.W is None else torch.linalg.eigvals(self.W)

    def forward(self, x: Tensor) -> Tensor:
        """The answers (B,T,M) to (B,T,d)."""
        fed = torch.cat([torch.zeros_like(x[:, :1]), x[:, :-1]], dim=1) if self.late else x
        driven = fed @ self.U.mT if self.b is None else fed @ self.U.mT + self.b
        if self.W is not None:
            one = torch.eye(len(self.W), dtype=driven.dtype)
            driven = Dense(self.W, one, one).run(driven)
        answer = driven if self.C is None else driven @ self.C.mT
        return answer if self.D is None else answer + x @ self.D.mT


class Stack(nn.Module):
    """Layers one behind the other, with a function between them (and not behind the last)."""

    def __init__(self, layers: Sequence[nn.Module], between: nn.Module | None = None) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.between = between or nn.Tanh()

    def forward(self, x: Tensor) -> Tensor:
        """The answers (B,T,M) to (B,T,D)."""
        for at, layer in enumerate(self.layers):
            x = layer(x if at == 0 else self.between(x))
        return x


def pointwise(slopes: Tensor, shifts: Tensor, weights: Tensor, *, late: bool = False) -> Stack:
    """Two layers with W = 0 (Prop. 3.1): weights · tanh(slopes x + shifts), of one input."""
    first = StateSpace(None, slopes[:, None], b=shifts, late=late)
    return Stack([first, StateSpace(None, weights[None])])


def random_stack(
    depth: int,
    *,
    width: int,
    radius: tuple[float, float],
    draw: torch.Generator,
    inputs: int = 1,
    between: nn.Module | None = None,
) -> Stack:
    """Gaussian layers; the spectral radius of every W is uniform between two numbers."""
    made = {"generator": draw, "dtype": torch.float64}
    layers = []
    for at in range(depth):
        fed, last = (inputs if at == 0 else width), at == depth - 1
        w = torch.randn(width, width, **made)
        share = radius[0] + (radius[1] - radius[0]) * float(torch.rand(1, **made))
        w *= share / torch.linalg.eigvals(w).abs().max()
        u = torch.randn(width, fed, **made) / fed**0.5
        b = 0.1 * torch.randn(width, **made)
        c = torch.randn(1 if last else width, width, **made) / width**0.5
        layers.append(StateSpace(w, u, b=b, c=c))
    return Stack(layers, between)
