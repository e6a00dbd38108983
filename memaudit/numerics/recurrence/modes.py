"""The Jacobian of one block of a recurrence, and its eigenvalues."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from memaudit.numerics.recurrence.arnoldi import leading_eigenvalues

if TYPE_CHECKING:
    from torch import Tensor

    from memaudit.dynamics import AbstractDynamics, StateBlock

#: Blocks up to this size have all their eigenvalues taken, larger ones the leading ones.
WHOLE = 2048
#: Dimensions of the space in which leading eigenvalues are looked for.
SPACE = 256
#: Numbers that the copies of a state may take up at once.
AT_ONCE = 2**20


@dataclass(frozen=True, slots=True, eq=False)
class Modes:
    """Eigenvalues of a block at one state; `note` says which ones if they are not all."""

    eigenvalues: np.ndarray
    note: str = ""


def block_jacobian(
    dynamics: AbstractDynamics, state: Tensor, u: Tensor, block: StateBlock
) -> np.ndarray:
    """How the next state of a block follows its own old one (m,m), at a state (n,) and u (D,).

    Rows are independent by contract, so copy i of the state gives row i of the Jacobian by plain
    reverse differentiation, whatever operations the step is made of.
    """
    size = block.stop - block.start
    jacobian = np.zeros((size, size))
    rows = max(1, AT_ONCE // len(state))
    for first in range(0, size, rows):
        chosen = torch.arange(first, min(first + rows, size), device=state.device)
        own, after = _stepped(dynamics, state, u, block, len(chosen))
        if after.requires_grad:
            weights = torch.zeros_like(after).scatter_(1, chosen[:, None], 1.0)
            (gradient,) = torch.autograd.grad(after, own, weights)
            jacobian[first : first + len(chosen)] = gradient.double().cpu().numpy()
    return jacobian


def block_modes(
    dynamics: AbstractDynamics,
    state: Tensor,
    u: Tensor,
    block: StateBlock,
    *,
    whole: int = WHOLE,
    space: int = SPACE,
) -> Modes | None:
    """The eigenvalues of that Jacobian, the leading ones where it is larger than `whole`.

    These are looked for in so many dimensions, and a quarter of what is found is kept. None where
    the Jacobian is not finite.
    """
    if block.stop - block.start > whole:
        return _leading(dynamics, state, u, block, space)
    jacobian = block_jacobian(dynamics, state, u, block)
    return Modes(np.linalg.eigvals(jacobian)) if np.isfinite(jacobian).all() else None


def _leading(
    dynamics: AbstractDynamics, state: Tensor, u: Tensor, block: StateBlock, space: int
) -> Modes | None:
    """The transposed Jacobian has the same eigenvalues, and its products are reverse passes."""
    own, after = _stepped(dynamics, state, u, block, 1)
    size = block.stop - block.start
    if not after.requires_grad:
        return Modes(np.zeros(1), f"all {size} modes are zero")

    def product(vector: np.ndarray) -> np.ndarray:
        weight = torch.from_numpy(vector).to(after)[None]
        (pulled,) = torch.autograd.grad(after, own, weight, retain_graph=True)
        return np.nan_to_num(pulled[0].double().cpu().numpy(), nan=np.inf)

    # A fixed start without a preferred direction; random numbers would change the last digits.
    start = np.cos(np.arange(1.0, size + 1.0) ** 2)
    if not np.isfinite(product(start)).all():
        return None
    values, residuals = leading_eigenvalues(product, start, space=space)
    values, residuals = values[: space // 4], residuals[: space // 4]
    told = f"the leading {len(values)} of {size} modes, the first to {residuals[0]:.0e}"
    return Modes(values, told)


def _stepped(
    dynamics: AbstractDynamics, state: Tensor, u: Tensor, block: StateBlock, rows: int
) -> tuple[Tensor, Tensor]:
    """The block's own old state, as copies (rows,m) that gradients reach, and its next ones."""
    with torch.enable_grad():
        own = state[block.start : block.stop].detach().expand(rows, -1).clone().requires_grad_()
        before = state[: block.start].detach().expand(rows, -1)
        behind = state[block.stop :].detach().expand(rows, -1)
        fed = u.detach().to(state).expand(rows, -1)
        after = dynamics.step(torch.cat([before, own, behind], 1), fed)
        return own, after[:, block.start : block.stop]
