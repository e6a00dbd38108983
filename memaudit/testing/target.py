"""The laws of a target functional."""

from __future__ import annotations

import torch

from memaudit.numerics.signals import seeded
from memaudit.target import AbstractKernelTarget, AbstractTarget
from memaudit.testing.law import check_words, must

STEPS, ROWS = 48, 3
#: Sums of 48 products, by FFT or one after the other, in float64.
ROUNDING = 1e-11


def check_target(target: AbstractTarget) -> None:
    """The laws of `AbstractTarget`: shape, float64, causal, rows by themselves, its own text."""
    from memaudit.targets.naming import target as named

    must(isinstance(target, AbstractTarget), f"{target!r} is no AbstractTarget")
    check_words(target, "name", "summary")
    draw = seeded(0)
    u = torch.randn(ROWS, STEPS, target.inputs, generator=draw, dtype=torch.float64)
    y = target.answer(u)
    shape = (ROWS, STEPS, target.outputs)
    must(tuple(y.shape) == shape, f"it answers {tuple(u.shape)} by {tuple(y.shape)}, not {shape}")
    must(y.dtype == torch.float64, f"it answers in {y.dtype}, not in float64")
    must(bool(y.isfinite().all()), "it answers by numbers that are not finite")
    must(torch.equal(target.answer(u), y), "it gives another answer the second time")
    size = ROUNDING * max(1.0, float(y.abs().amax()))
    later = u.clone()
    later[:, STEPS // 2 :] += 1.0
    early = (target.answer(later) - y)[:, : STEPS // 2]
    must(float(early.abs().amax()) <= size, "an input changes answers that were given before it")
    alone = target.answer(u[:1])
    must(float((alone - y[:1]).abs().amax()) <= size, "a row depends on the other rows")
    if target.linear:
        _check_linear(target, u, y, size)
    must(named(str(target)) == target, f"{target} read as text is another target")


def _check_linear(target: AbstractTarget, u: torch.Tensor, y: torch.Tensor, size: float) -> None:
    must(
        float((target.answer(-2.0 * u) + 2.0 * y).abs().amax()) <= 4 * size,
        "it says that it is linear, and is not",
    )
    if isinstance(target, AbstractKernelTarget):
        impulse = torch.zeros(1, STEPS, 1, dtype=torch.float64)
        impulse[0, 0] = 1.0
        off = target.answer(impulse)[0, :, 0] - target.kernel(STEPS)
        must(float(off.abs().amax()) <= size, "its answer to an impulse is not its kernel")
