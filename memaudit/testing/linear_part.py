"""The laws of a linear layer inside a model."""

from __future__ import annotations

import torch

from memaudit.closed_form.kernels import answer_of, size_of, tolerance_of
from memaudit.contracts import AbstractLinearPart
from memaudit.recall.linear import numbers_of
from memaudit.testing.law import draw, must

#: Steps of the test sequences, and a stretch of lags from their middle.
STEPS, MIDDLE = 24, (5, 11)


def check_linear_part(part: AbstractLinearPart, *, dtype: torch.dtype = torch.float64) -> None:
    """The laws of `AbstractLinearPart`: shapes, lags, and a run that is the kernel's, on the CPU.

    `dtype` is that of the inputs that the layer takes.
    """
    must(isinstance(part, AbstractLinearPart), f"{part!r} is no AbstractLinearPart")
    must(isinstance(part.width, int) and part.width > 0, f"width is {part.width!r}")
    must(isinstance(part.banked, bool), f"banked is {part.banked!r}, neither True nor False")
    with torch.no_grad():
        kernel, (start, stop) = _kernel(part), MIDDLE
        limit = tolerance_of(dtype, STEPS) * float(kernel.abs().amax())
        off = _apart(part.kernel(start, stop), kernel[start:stop])
        must(off <= limit, f"the lags {start} to {stop - 1} asked alone are off by {off:.2g}")
        _check_run(part, kernel, dtype)
        _check_state(part, dtype)


def _kernel(part: AbstractLinearPart) -> torch.Tensor:
    kernel = part.kernel(0, STEPS)
    right = kernel.ndim == 3 and (len(kernel), kernel.shape[2]) == (STEPS, part.width)
    must(right, f"kernel(0, {STEPS}) has the shape {tuple(kernel.shape)}")
    must(kernel.is_floating_point(), f"the kernel is of {kernel.dtype}")
    must(bool(torch.isfinite(kernel).all()), f"the kernel is not finite within {STEPS} lags")
    return kernel.to("cpu", torch.float64)


def _check_run(part: AbstractLinearPart, kernel: torch.Tensor, dtype: torch.dtype) -> None:
    """An impulse, and two sequences that are no impulses: the second tells time-variance."""
    u = draw(3 * STEPS, part.width).view(3, STEPS, part.width)
    u[0, 1:] = 0
    u = u.to(dtype)
    kept, answers = u.clone(), part.respond(u)
    must(torch.equal(u, kept), "respond changes its input")
    expected = convolved(kernel, u.double(), banked=part.banked)
    wanted = tuple(expected.shape)
    must(tuple(answers.shape) == wanted, f"respond answers by {tuple(answers.shape)}, not {wanted}")
    sizes = size_of(kernel, banked=part.banked)
    limit = tolerance_of(dtype, STEPS) * float(u.abs().amax())
    off = _apart(answers[0], expected[0])
    must(
        off <= limit * float(sizes.amax()),
        f"the kernel is off by {off:.2g} from the answer to an impulse",
    )
    off = _apart(answers[1:], expected[1:])
    must(
        off <= limit * float(sizes.sum()),
        f"the answer is off by {off:.2g} from what the kernel sums up to",
    )


def _check_state(part: AbstractLinearPart, dtype: torch.dtype) -> None:
    """A state, where it is shown, moves by one matrix, and one readout of it is the kernel."""
    trial = part.reach(0, 1)
    if trial is None:
        return
    right = trial.ndim == 3 and (len(trial), trial.shape[2]) == (1, part.width)
    must(right, f"reach(0, 1) has the shape {tuple(trial.shape)}")
    must(trial.dtype in (torch.float64, torch.complex128), f"the states are of {trial.dtype}")
    # More equations than numbers in the state: else some A and C fit anything.
    steps = STEPS + 2 * numbers_of(trial) // (1 if part.banked else part.width)
    (start, stop), whole = MIDDLE, _reached(part, 0, steps, trial)
    must(bool(torch.isfinite(whole).all()), f"the states are not finite within {steps} lags")
    limit, size = tolerance_of(dtype, steps), float(whole.abs().amax())
    off = float((_reached(part, start, stop, trial) - whole[start:stop]).abs().amax())
    must(off <= limit * size, f"the states {start} to {stop - 1} asked alone are off by {off:.2g}")
    states = _by_lag(whole, banked=part.banked)
    off = _unfitted(states[:, :-1], states[:, 1:])
    must(off <= limit * size, f"the states are off by {off:.2g} from a matrix that moves them")
    move = part.transition()
    if move is not None:
        off = _apart_by(move, whole, banked=part.banked)
        must(
            off <= limit * size, f"the states are off by {off:.2g} from those that transition moves"
        )
    kernel = part.kernel(0, steps).to("cpu", torch.float64)
    heard = _by_lag(kernel, banked=part.banked)
    off, size = _unfitted(states[:, 1:], heard[:, 1:]), float(kernel.abs().amax())
    must(off <= limit * size, f"the kernel is off by {off:.2g} from any readout of the states")


def _reached(part: AbstractLinearPart, start: int, stop: int, trial: torch.Tensor) -> torch.Tensor:
    """The states of these lags, shaped like the first one."""
    found = part.reach(start, stop)
    shape = None if found is None else tuple(found.shape)
    must(shape == (stop - start, *trial.shape[1:]), f"reach({start}, {stop}) gives {shape}")
    return trial if found is None else found


def _by_lag(values: torch.Tensor, *, banked: bool) -> torch.Tensor:
    """(H,L,n,D) of a whole layer, H = 1, or of the H inputs of a bank, D = 1; real parts first."""
    parts = [values.real, values.imag] if values.is_complex() else [values]
    real = torch.cat(parts, dim=1).detach().to("cpu", torch.float64)
    return real.permute(2, 0, 1).unsqueeze(-1) if banked else real.unsqueeze(0)


def _apart_by(move: torch.Tensor, states: torch.Tensor, *, banked: bool) -> float:
    """How far the states (L,N,D) are from A times those of the step before."""
    full = move if move.ndim == 2 + banked else torch.diag_embed(move)
    wide = torch.promote_types(full.dtype, states.dtype)
    how = "dnm,lmd->lnd" if banked else "nm,lmd->lnd"
    moved = torch.einsum(how, full.to(wide), states[:-1].to(wide))
    return float((moved - states[1:]).abs().amax())


def _unfitted(known: torch.Tensor, wanted: torch.Tensor) -> float:
    """What is left of `wanted` (H,L,m,D) beside the best matrices times `known` (H,L,n,D)."""
    rows, targets = (v.mT.flatten(1, 2) for v in (known, wanted))
    left, values, _ = torch.linalg.svd(rows, full_matrices=False)
    basis = left * (values > 1e-14 * values[:, :1]).unsqueeze(1)
    return float((targets - basis @ (basis.mT @ targets)).abs().amax())


def convolved(kernel: torch.Tensor, u: torch.Tensor, *, banked: bool) -> torch.Tensor:
    """The sum over s of kernel(s) applied to u[:, t - s], lag by lag, for u (B,T,D)."""
    rows, steps, width = u.shape
    wide = kernel.shape[1:] if banked else kernel.shape[1:2]
    total = u.new_zeros(rows, steps, *wide)
    for lag in range(min(steps, len(kernel))):
        fed = u[:, : steps - lag].reshape(-1, width)
        answer = answer_of(kernel[lag : lag + 1], fed, banked=banked)
        total[:, lag:] += answer.view(rows, steps - lag, *wide)
    return total


def _apart(one: torch.Tensor, other: torch.Tensor) -> float:
    must(one.shape == other.shape, f"{tuple(one.shape)} was given for {tuple(other.shape)}")
    return float((one.detach().to("cpu", torch.float64) - other).abs().amax())
