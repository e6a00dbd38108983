"""The laws of a linear layer inside a model."""

from __future__ import annotations

import torch

from memaudit.contracts import AbstractLinearPart
from memaudit.numerics.closed_form import answer_of, size_of, tolerance_of
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
