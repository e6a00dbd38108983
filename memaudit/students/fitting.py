"""Training a student on a target: fresh random inputs, Adam, and every loss kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from memaudit.errors import ArgumentError, clean, nearest
from memaudit.numerics.signals import seeded
from memaudit.target import AbstractTarget

if TYPE_CHECKING:
    from torch import Tensor, nn

    Answer = Callable[[Tensor], Tensor]

OPTIMIZERS = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}


@dataclass(frozen=True, slots=True)
class Fit:
    """What became of a training run.

    `losses` has the mean square error of every update, before the update was made. A run whose loss
    is not finite ends there: `diverged_at` is that update, None for a run that went well.
    `reached` is the first update whose loss was at most the goal `until`, None when none was.
    """

    losses: np.ndarray
    reached: int | None
    diverged_at: int | None

    @property
    def last(self) -> float:
        """The last loss, a median over a hundredth of the run; infinite when it diverged."""
        if self.diverged_at is not None:
            return float("inf")
        return float(np.median(self.losses[-max(1, len(self.losses) // 100) :]))


def fit(
    student: nn.Module,
    target: AbstractTarget | Answer | str,
    *,
    updates: int = 300,
    length: int = 100,
    batch: int = 128,
    samples: int | None = None,
    lr: float | None = 0.01,
    optimizer: str = "adam",
    groups: list[dict[str, Any]] | None = None,
    until: float | None = None,
    seed: int = 0,
    watch: Callable[[int, float, nn.Module], None] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Fit:
    """Train a student in place on a target, on white Gaussian inputs made anew for every update.

    `target` is the text of one (poly:1.1), an AbstractTarget, or a function (B,T,D) -> (B,T,M).
    With `samples` there are that many inputs, and every epoch has them all in another order. A
    student with a method `unrolled`, a faster `forward` for training, is trained by it.
    `groups` are parameter groups, in the place of all parameters with one `lr`. `until` is a loss
    at which training ends. `watch` is told the update, the loss and the student after the gradient
    was computed, before the weights move. The same seed gives the same run.
    """
    for name, value in (("updates", updates), ("length", length), ("batch", batch)):
        _check_count(name, value)
    _check_count("samples", 1 if samples is None else samples)
    found = _found(target)
    answer = found.answer if isinstance(found, AbstractTarget) else found
    trained = groups or [p for p in student.parameters() if p.requires_grad]
    stepping = _optimizer(optimizer, trained, lr)
    like, run = next(student.parameters()), getattr(student, "unrolled", student)
    shape = batch, length, getattr(found, "inputs", 1)
    pairs = _pairs(answer, shape, samples, seeded(seed), like)
    losses: list[float] = []
    for update, (u, wanted) in zip(range(updates), pairs, strict=False):
        losses.append(_gradients(run, u, wanted, stepping))
        if not np.isfinite(losses[-1]):
            return Fit(np.array(losses[:-1]), None, update)
        if watch is not None:
            watch(update, losses[-1], student)
        if until is not None and losses[-1] <= until:
            return Fit(np.array(losses), update, None)
        stepping.step()
        if progress is not None:
            progress(update + 1, updates)
    return Fit(np.array(losses), None, None)


def _gradients(run: Answer, u: Tensor, wanted: Tensor, stepping: torch.optim.Optimizer) -> float:
    """The loss, whose gradients the weights have then."""
    with torch.enable_grad():
        answers = run(u)
        _check_answers(answers, u, wanted)
        loss = (answers - wanted).square().mean()
        stepping.zero_grad()
        loss.backward()
    return float(loss.detach())


def _check_answers(answers: Any, u: Tensor, wanted: Tensor) -> None:
    """Refuse what would be broadcast against the target, or has no shape at all."""
    if not isinstance(answers, torch.Tensor):
        fact = f"the student answers with {clean(type(answers).__name__)}, not with a tensor"
        hint = f"let it give the answers {tuple(wanted.shape)} to inputs {tuple(u.shape)} alone"
        raise ArgumentError(fact, hint=hint)
    if answers.shape != wanted.shape:
        given, asked = tuple(answers.shape), tuple(wanted.shape)
        fact = f"the student answers {given} to inputs {tuple(u.shape)}, and the target {asked}"
        raise ArgumentError(fact, hint="give a student and a target of the same shape")


def _check_count(name: str, value: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ArgumentError(f"{name} is {clean(value)!r}", hint="take a whole number from 1 on")


def _optimizer(name: str, trained: list[Any], lr: float | None) -> torch.optim.Optimizer:
    if name not in OPTIMIZERS:
        hint = nearest(name, OPTIMIZERS)
        raise ArgumentError(f"unknown optimizer {clean(name)!r}", hint=hint)
    return OPTIMIZERS[name](trained, **({} if lr is None else {"lr": lr}))


def _pairs(
    answer: Answer,
    shape: tuple[int, int, int],
    samples: int | None,
    draw: torch.Generator,
    like: Tensor,
) -> Iterator[tuple[Tensor, Tensor]]:
    """Inputs with the answers that are wanted, without end."""

    def made(count: int) -> tuple[Tensor, Tensor]:
        noise = torch.randn(count, *shape[1:], generator=draw, dtype=torch.float64)
        u = noise.to(like.device, like.dtype)
        with torch.no_grad():
            return u, answer(u).to(like)

    while samples is None:
        yield made(shape[0])
    inputs, answers = made(samples)
    while True:
        for rows in torch.randperm(samples, generator=draw).split(shape[0]):
            yield inputs[rows], answers[rows]


def _found(target: AbstractTarget | Answer | str) -> AbstractTarget | Answer:
    from memaudit.targets.naming import target as named

    return named(target) if isinstance(target, str) else target
