"""Jacobians of a nonlinear recurrence: its eigenvalues at a state, and its Lyapunov exponents."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from memaudit.subjects.recurrence import settle, trajectory

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from memaudit.interfaces import AbstractDynamics, AbstractSubject, StateBlock

#: Blocks up to this size have all their eigenvalues taken, larger ones the leading ones.
WHOLE = 2048
#: Dimensions of the space in which leading eigenvalues are looked for.
SPACE = 256
#: Numbers that the copies of a state may take up at once.
AT_ONCE = 2**20
#: A direction shorter than this share of what it came from is rounding: the space is closed.
CLOSED = 1e-13
#: Directions per block; the second keeps the first from turning with a pair of complex modes.
DIRECTIONS = 2
SEGMENTS = 8


# Eigenvalues


def resting_modes(subject: AbstractSubject, *, moving: bool = False) -> dict[str, np.ndarray]:
    """Layer → eigenvalues of one step, without further operating points.

    A nonlinear cell has those of its Jacobian where it settles without input. What does not
    settle is left out, unless `moving` asks for the last state that was reached, as in the table
    of the spectrum; what is not finite always is.
    """
    found = {item.layer: item.eigenvalues for item in subject.spectra()}
    for dynamics in subject.dynamics().values():
        if not found.keys() >= dynamics.blocks.keys():
            found |= _settled_modes(dynamics, moving=moving)
    return {layer: modes for layer, modes in found.items() if len(modes) and _finite(modes)}


def _finite(modes: np.ndarray) -> bool:
    return bool((abs(modes) < float("inf")).all())


def _settled_modes(dynamics: AbstractDynamics, *, moving: bool) -> dict[str, np.ndarray]:
    zero = torch.zeros(1, dynamics.width, dtype=torch.float64)
    (rest,) = settle(dynamics, zero)
    if not (rest.at_rest or moving):
        return {}
    u = zero[0].to(rest.state)
    found = {
        layer: block_modes(dynamics, rest.state, u, block)
        for layer, block in dynamics.blocks.items()
    }
    return {layer: modes.eigenvalues for layer, modes in found.items() if modes is not None}


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
    note = f"the leading {len(values)} of {size} modes, the first to {residuals[0]:.0e}"
    return Modes(values, note)


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


def leading_eigenvalues(
    product: Callable[[np.ndarray], np.ndarray], start: np.ndarray, *, space: int
) -> tuple[np.ndarray, np.ndarray]:
    """Ritz values by falling modulus, with the residual |A v - theta v| of each.

    The values come from the Krylov space of `start`, of at most `space` dimensions; every direction
    is made orthogonal twice, because once loses digits.
    """
    size = len(start)
    space = min(space, size)
    basis = np.zeros((space + 1, size))
    hessenberg = np.zeros((space + 1, space))
    basis[0] = start / np.linalg.norm(start)
    used = space
    for k in range(space):
        image = product(basis[k])
        length = np.linalg.norm(image)
        for _ in range(2):
            shares = basis[: k + 1] @ image
            hessenberg[: k + 1, k] += shares
            image = image - shares @ basis[: k + 1]
        left = np.linalg.norm(image)
        if left <= CLOSED * length or k + 1 == size:
            used = k + 1
            break
        hessenberg[k + 1, k] = left
        basis[k + 1] = image / left
    values, vectors = np.linalg.eig(hessenberg[:used, :used])
    beyond = hessenberg[used, used - 1] if used < space + 1 else 0.0
    residuals = np.abs(beyond * vectors[-1])
    order = np.argsort(-np.abs(values), kind="stable")
    return values[order], residuals[order]


# Lyapunov exponents


@dataclass(frozen=True, slots=True)
class Exponent:
    """The largest Lyapunov exponent per step; the interval spans two standard errors."""

    value: float
    interval: tuple[float, float]


def lyapunov(
    dynamics: AbstractDynamics,
    inputs: Tensor,
    *,
    generator: torch.Generator,
    states: Tensor | None = None,
    tick: Callable[[int, int], None] | None = None,
) -> dict[str, Exponent]:
    """The largest exponent of every block under the inputs (T,D), by orthogonal directions.

    `states` (T,n) are those of `trajectory`, if they are there already. Directions are carried from
    the last step to the first by transposed Jacobians: their exponents are the same. An eighth at
    each end is left out, where the state leaves its start and the directions find their way. Blocks
    that forget a state at once, and trajectories that are not finite, have no exponent.
    """
    states = trajectory(dynamics, inputs) if states is None else states
    steps = len(states)
    if steps < max(len(inputs), 4 * SEGMENTS):
        return {}
    inputs = inputs.to(states)
    frames = {
        layer: _frame(block, generator).to(states) for layer, block in dynamics.blocks.items()
    }
    grown = {layer: np.zeros((steps, frame.shape[1])) for layer, frame in frames.items()}
    for done, t in enumerate(reversed(range(steps))):
        frames = _pulled(dynamics, states[t], inputs[t], frames)
        for layer, frame in frames.items():
            frames[layer], triangle = torch.linalg.qr(frame)
            grown[layer][t] = triangle.diagonal().abs().double().cpu().numpy()
        if tick is not None:
            tick(done + 1, steps)
    kept = slice(steps // 8, steps - steps // 8)
    found = {layer: _exponent(sizes[kept]) for layer, sizes in grown.items()}
    return {layer: exponent for layer, exponent in found.items() if exponent is not None}


def _frame(block: StateBlock, generator: torch.Generator) -> Tensor:
    """Orthogonal directions (m,k) to begin with."""
    size = block.stop - block.start
    drawn = torch.randn(size, min(DIRECTIONS, size), generator=generator, dtype=torch.float64)
    return torch.linalg.qr(drawn)[0]


def _pulled(
    dynamics: AbstractDynamics, state: Tensor, u: Tensor, frames: dict[str, Tensor]
) -> dict[str, Tensor]:
    """Every frame times the transposed Jacobian of its own block, all in one pass."""
    rows = sum(frame.shape[1] for frame in frames.values())
    weights = state.new_zeros(rows, len(state))
    places, row = {}, 0
    for layer, frame in frames.items():
        block = dynamics.blocks[layer]
        places[layer] = slice(row, row + frame.shape[1]), slice(block.start, block.stop)
        weights[places[layer]] = frame.T
        row += frame.shape[1]
    with torch.enable_grad():
        copies = state.detach().expand(rows, -1).clone().requires_grad_()
        after = dynamics.step(copies, u.detach().expand(rows, -1))
    if not after.requires_grad:
        return {layer: torch.zeros_like(frame) for layer, frame in frames.items()}
    (pulled,) = torch.autograd.grad(after, copies, weights)
    return {layer: pulled[place].T for layer, place in places.items()}


def _exponent(sizes: np.ndarray) -> Exponent | None:
    """From the factors (T,k) by which the directions grew."""
    if not np.isfinite(sizes).all() or not (sizes[:, 0] > 0).all():
        return None
    logs = np.log(np.maximum(sizes, np.finfo(np.float64).tiny))
    along = logs[:, int(logs.mean(0).argmax())]
    return exponent_of(along)


def exponent_of(logs: np.ndarray) -> Exponent:
    """The mean growth per step, and how sure that is from segments of the trajectory."""
    value = float(logs.mean())
    means = [float(segment.mean()) for segment in np.array_split(logs, min(SEGMENTS, len(logs)))]
    spread = float(np.std(means, ddof=1)) if len(means) > 1 else 0.0
    error = 2.0 * spread / math.sqrt(len(means))
    return Exponent(value, (value - error, value + error))
