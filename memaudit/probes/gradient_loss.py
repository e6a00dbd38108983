"""The loss whose gradients are measured: a synthetic one, or that of the caller."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from memaudit.errors import ArgumentError
from memaudit.numerics.inputs import checked_inputs
from memaudit.numerics.signals import seeded
from memaudit.probes.perturbing_inputs import perturbing_inputs

if TYPE_CHECKING:
    from memaudit.contracts import AbstractSubject, Setting

    Loss = Callable[[Tensor, Any], Tensor]

#: The memory of the synthetic target is (t + 1) to the power of minus this: StableSSM, Fig. 3.
EXPONENT = 1.1
SYNTHETIC = f"mean square against the inputs remembered as (t+1)^-{EXPONENT}"
SQUARES, OWN = "mean square on the given batch", "the given loss on the given batch"


@dataclass(frozen=True, slots=True, eq=False)
class Task:
    """What is fed, the loss of the answers to it, and what the loss is called."""

    inputs: Tensor
    value: Callable[[Tensor], Tensor]
    told: str


def synthetic_task(subject: AbstractSubject, setting: Setting, *, steps: int) -> Task:
    """The mean square of the answers against a target with long memory, which no mode has.

    The target is a projection of the inputs, averaged with the weights (t+1)^-1.1, on top of the
    answer to silence; it is as large as the answers are beside that one.
    """
    inputs = perturbing_inputs(subject, setting, steps=steps)
    with torch.no_grad():
        own = subject.respond(inputs).double()
        rest = subject.respond(torch.zeros_like(inputs[:1])).double()
    flips = torch.randint(2, (inputs.shape[-1], 1), generator=seeded(setting.seed))
    signs = (2.0 * flips.double() - 1.0).to(inputs.device)
    remembered = _remembered(inputs.double() @ signs)
    target = remembered[:, -1] if subject.pooled else remembered
    size = (own - rest).square().mean().sqrt() / target.square().mean().sqrt().clamp(min=1e-30)
    return Task(inputs, lambda answers: (answers - rest - size * target).square().mean(), SYNTHETIC)


def given_task(subject: AbstractSubject, batch: tuple[Tensor, Any], loss_fn: Loss | None) -> Task:
    """The caller's batch, with the caller's loss or the mean square."""
    inputs, targets = batch
    if isinstance(inputs, Tensor) and not inputs.is_floating_point():
        raise ArgumentError(
            f"the inputs of gradient.batch are of {inputs.dtype}",
            hint="give floats (B, T, D); token ids go through the model's embedding first",
        )
    fed = checked_inputs(
        inputs,
        width=subject.input_size or 1,
        vocabulary=None,
        device=subject.device,
        dtype=subject.dtype,
    )
    if loss_fn is not None:
        return Task(fed, lambda answers: _scalar(loss_fn(answers, targets)), OWN)
    if not isinstance(targets, Tensor):
        raise ArgumentError(
            f"the targets of gradient.batch are {type(targets).__name__}, not a tensor",
            hint="give a tensor, or a loss_fn that takes them",
        )
    wanted = targets.to(fed.device, torch.float64)
    return Task(fed, lambda answers: _squares(answers, wanted), SQUARES)


def _remembered(u: Tensor) -> Tensor:
    """The sum over s of (s+1)^-1.1 u(t-s), for u (B,T,1)."""
    steps = u.shape[1]
    later = torch.arange(steps, device=u.device)
    lag = later[:, None] - later
    kernel = (lag.clamp(min=0) + 1.0).to(u.dtype).pow(-EXPONENT).tril()
    return kernel @ u


def _squares(answers: Tensor, targets: Tensor) -> Tensor:
    if answers.shape != targets.shape:
        raise ArgumentError(
            f"the targets of gradient.batch are {tuple(targets.shape)}, "
            f"the answers {tuple(answers.shape)}",
            hint="give a loss_fn, or targets of the shape of the answers",
        )
    return (answers - targets).square().mean()


def _scalar(value: Any) -> Tensor:
    if not isinstance(value, Tensor) or value.numel() != 1 or not value.is_floating_point():
        raise ArgumentError(
            "gradient.loss_fn does not give one number", hint="return a tensor with one float"
        )
    return value.reshape(()).double()
