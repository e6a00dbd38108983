"""One training loop for the models of StableSSM: AdamW, every loss kept, spikes counted."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median

import torch
from torch import Tensor, nn
from torch.nn import functional

from memaudit.training import parameter_groups

#: A spike is this many times as high as the median of that many losses before it.
SPIKE, BEFORE = 1.25, 20

Batch = tuple[Tensor, Tensor]


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a model is trained; `recurrent_lr` is the learning rate of the raw weights of modes."""

    steps: int
    lr: float
    recurrent_lr: float
    weight_decay: float
    warmup: int = 0
    #: Whether the rate falls along half a cosine after the warm-up, or stays.
    cosine: bool = False

    def factor(self, step: int) -> float:
        """The part of the learning rate that is used at a step."""
        if step < self.warmup:
            return (step + 1) / self.warmup
        if not self.cosine:
            return 1.0
        return (1 + math.cos(math.pi * (step - self.warmup) / (self.steps - self.warmup))) / 2


@dataclass(frozen=True, slots=True)
class Run:
    """What became of a training run: the losses before every update, up to the first that is none.

    `diverged_at` is the step whose loss was not finite; None for a run that came to its end.
    """

    losses: tuple[float, ...]
    diverged_at: int | None

    @property
    def last(self) -> float:
        """The median of the last ten losses; infinite when the run diverged."""
        return math.inf if self.diverged_at is not None else median(self.losses[-10:])


def beside(run: Run, others: Sequence[Run]) -> list[float]:
    """The losses of a run over the median of what runs on the same batches have.

    Some batches are harder than others, for every model: that is no spike.
    """
    return [
        loss / median(other.losses[at] for other in others if at < len(other.losses))
        for at, loss in enumerate(run.losses)
    ]


def spikes(run: Run, others: Sequence[Run]) -> int:
    """How often the loss of a run shot up; a divergence is one spike, and so is a row of them.

    A spike is a loss `beside` those of others of more than `SPIKE` times the median of the `BEFORE`
    ones before it.
    """
    ratios = beside(run, others)
    count, high = 0, False
    for at in range(BEFORE, len(ratios)):
        now = ratios[at] > SPIKE * median(ratios[at - BEFORE : at])
        count += now and not high
        high = now
    return count + (run.diverged_at is not None)


def train(
    model: nn.Module,
    batches: Iterator[Batch],
    recipe: Recipe,
    *,
    watch: Callable[[int, float, nn.Module], None] | None = None,
) -> Run:
    """Train in place on the cross-entropy of the answers.

    `watch` is told the step, the loss and the model when the gradients are there, before the
    weights move. Raw weights of modes are not decayed.
    """
    groups = parameter_groups(model, weight_decay=recipe.weight_decay, lr=recipe.recurrent_lr)
    optimizer = torch.optim.AdamW(groups, lr=recipe.lr, fused=True)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, recipe.factor)
    losses: list[float] = []
    for step in range(recipe.steps):
        inputs, wanted = next(batches)
        loss = cross_entropy(model(inputs), wanted)
        value = float(loss.detach())
        if not math.isfinite(value):
            return Run(tuple(losses), step)
        losses.append(value)
        optimizer.zero_grad()
        loss.backward()
        if watch is not None:
            watch(step, value, model)
        optimizer.step()
        schedule.step()
    return Run(tuple(losses), None)


def cross_entropy(scores: Tensor, wanted: Tensor) -> Tensor:
    """The mean over all answers; scores (…,V) and classes (…)."""
    return functional.cross_entropy(scores.flatten(0, -2), wanted.flatten())
