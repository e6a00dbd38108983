"""Two small models with something new to learn, in several forms and at two learning rates."""

from __future__ import annotations

import copy
import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

import memaudit
from memaudit.interfaces import DenseDecay, DiagonalDecay
from memaudit.retrofitting.monitoring import recurrent_weights
from memaudit.training import parameter_groups

DEMOS = Path(memaudit.__file__).parent / "demos"
STORED = "as stored"
FORMS = (STORED, "best", "exp", "softplus", "heavytail", "direct")
ROWS, HELD_OUT_ROWS = 16, 256
#: The letter comes first and is asked for behind this many spaces.
PAUSE, CHOICES = 8, "abcdefgh"
#: The demo learnt an average over about 10 steps; now it is one over about 50.
DECAY, STEPS_OF_NOISE = 0.98, 64

Loss = Callable[[nn.Module, int, torch.Generator], Tensor]
Groups = Callable[[nn.Module, float], list[dict[str, Any]]]


@dataclass(frozen=True, slots=True, eq=False)
class Task:
    """A trained model and what it is to learn now; copies of it are trained, never itself."""

    name: str
    model: nn.Module
    loss: Loss
    groups: Groups
    rates: tuple[float, float]
    rated: str


@dataclass(frozen=True, slots=True)
class Run:
    """One fine-tuning: the loss on held-out data at its start and its end, and the last margin."""

    form: str
    rate: float
    start: float
    end: float
    margin: float

    @property
    def diverged(self) -> bool:
        """Whether the loss is no number, or above its start."""
        return not self.end <= self.start

    @property
    def unstable(self) -> bool:
        """Whether a mode of the recurrent weights does not decay, or is no number."""
        return not self.margin > 0.0


class Averager(nn.Module):
    """An nn.RNN and a readout, with the weights of the demo."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.RNN(1, 32, batch_first=True)
        self.fc = nn.Linear(32, 1)
        self.load_state_dict(load_file(DEMOS / "rnn.safetensors"))

    def forward(self, inputs: Tensor) -> Tensor:
        """Answer (B,T,1) by (B,T,1)."""
        return self.fc(self.rnn(inputs)[0])


def average_loss(model: nn.Module, rows: int, generator: torch.Generator) -> Tensor:
    """How far white noise is from its average with the kernel 0.98^t, of unit norm."""
    noise = torch.randn(rows, STEPS_OF_NOISE, 1, generator=generator)
    times = torch.arange(STEPS_OF_NOISE)
    lags = times[:, None] - times[None, :]
    kernel = DECAY**times
    weights = torch.where(lags >= 0, DECAY ** lags.clamp(min=0), 0.0) / kernel.norm()
    return nn.functional.mse_loss(model(noise), weights @ noise)


def letters(vocabulary: dict[str, int], rows: int, generator: torch.Generator) -> dict[str, Tensor]:
    """A letter, spaces, and the letter again, which alone counts."""
    known = torch.tensor([vocabulary[letter] for letter in CHOICES])
    asked = known[torch.randint(len(known), (rows,), generator=generator)]
    ids = torch.full((rows, PAUSE + 2), vocabulary[" "])
    ids[:, 0] = ids[:, -1] = asked
    labels = torch.full_like(ids, -100)
    labels[:, -1] = asked
    return {"input_ids": ids, "labels": labels}


def letter_loss(vocabulary: dict[str, int]) -> Loss:
    """The cross entropy of the letter."""

    def loss(model: nn.Module, rows: int, generator: torch.Generator) -> Tensor:
        return model(**letters(vocabulary, rows, generator)).loss

    return loss


def rnn_task() -> Task:
    """A longer average, at one learning rate for all weights."""

    def groups(model: nn.Module, rate: float) -> list[dict[str, Any]]:
        return [{"params": list(model.parameters()), "lr": rate}]

    rated = "of all weights"
    return Task("RNN", Averager(), average_loss, groups, (0.003, 0.03), rated)


def mamba_task(model: nn.Module, vocabulary: dict[str, int]) -> Task:
    """A letter over a pause, at a learning rate for the weights that make the modes.

    At one rate for all weights it is the others that decide how a run ends.
    """
    others = 0.005

    def groups(model: nn.Module, rate: float) -> list[dict[str, Any]]:
        found = parameter_groups(model, weight_decay=0.0, lr=rate)
        return [{"lr": others, **group} for group in found]

    rated = f"of the recurrent weights, {others:g} for all others"
    return Task("Mamba", model, letter_loss(vocabulary), groups, (0.005, 0.3), rated)


def held_out(task: Task, model: nn.Module) -> float:
    """The loss on data that no run sees."""
    with torch.no_grad():
        return float(task.loss(model.eval(), HELD_OUT_ROWS, torch.Generator().manual_seed(2**31)))


def train(task: Task, model: nn.Module, *, rate: float, seed: int, steps: int) -> None:
    """Adam in place, until the loss is no number."""
    optimizer = torch.optim.Adam(task.groups(model, rate))
    generator = torch.Generator().manual_seed(seed)
    model.train()
    for _ in range(steps):
        loss = task.loss(model, ROWS, generator)
        if not bool(torch.isfinite(loss)):
            return
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def refusal(task: Task, form: str) -> str:
    """Why the model cannot be put into a form, or nothing."""
    if form == STORED:
        return ""
    done = memaudit.retrofit(copy.deepcopy(task.model), form)
    return done.refused[0].reason if done.refused else ""


def one_run(task: Task, form: str, *, rate: float, seed: int, steps: int) -> Run:
    """A copy of the model, put into a form and trained."""
    model = copy.deepcopy(task.model)
    start = held_out(task, model)
    if form != STORED:
        memaudit.retrofit(model, form)
    train(task, model, rate=rate, seed=seed, steps=steps)
    worst = min((distance(weight) for weight in recurrent_weights(model)), key=_worst_first)
    return Run(form, rate, start, held_out(task, model), worst)


def distance(decay: DiagonalDecay | DenseDecay) -> float:
    """How far the slowest mode that a weight makes is from the boundary, or not a number."""
    stored = getattr(decay.owner, decay.name).detach().double()
    if not bool(torch.isfinite(stored).all()):
        return math.nan
    if isinstance(decay, DiagonalDecay):
        return float(-decay.law.forward(stored).amax())
    return float(1.0 - torch.linalg.eigvals(decay.matrix(decay.owner, stored)).abs().amax())


def compare_forms(
    task: Task, forms: Sequence[str], *, seeds: int, steps: int
) -> tuple[dict[str, str], list[Run]]:
    """The forms that the model refuses, with the reason; and the runs in all the others."""
    refused = {form: reason for form in forms if (reason := refusal(task, form))}
    runs = [
        one_run(task, form, rate=rate, seed=seed, steps=steps)
        for rate in task.rates
        for form in forms
        if form not in refused
        for seed in range(seeds)
    ]
    return refused, runs


def table(runs: Sequence[Run]) -> Iterator[str]:
    """A line for every learning rate and form."""
    yield f"{'rate':>8}  {'form':10} {'diverged':>10} {'unstable':>10} {'median loss':>12}"
    for (rate, form), same in _grouped(runs).items():
        counts = f"{_count(same, 'diverged'):>10} {_count(same, 'unstable'):>10}"
        yield f"{rate:8g}  {form:10} {counts} {_loss(_median(same)):>12}"


def sentences(name: str, runs: Sequence[Run]) -> Iterator[str]:
    """What the numbers say, at one learning rate after the other."""
    grouped = _grouped(runs)
    for rate in dict.fromkeys(run.rate for run in runs):
        here = {form: same for (other, form), same in grouped.items() if other == rate}
        for trouble, verb in (("diverged", "diverged"), ("unstable", "ended unstable")):
            by_count: dict[str, list[str]] = {}
            for form, same in here.items():
                by_count.setdefault(_count(same, trouble), []).append(form)
            parts = (f"{', '.join(fs)} {verb} in {count} runs" for count, fs in by_count.items())
            yield f"{name} at {rate:g}: {'; '.join(parts)}"
        medians = {form: _median(same) for form, same in here.items()}
        best, worst = min(medians, key=_of(medians)), max(medians, key=_of(medians))
        yield (
            f"{name} at {rate:g}: lowest median loss {_loss(medians[best])} ({best}), "
            f"highest {_loss(medians[worst])} ({worst}), from {_loss(runs[0].start)}"
        )


def _grouped(runs: Sequence[Run]) -> dict[tuple[float, str], list[Run]]:
    found: dict[tuple[float, str], list[Run]] = {}
    for run in runs:
        found.setdefault((run.rate, run.form), []).append(run)
    return found


def _count(runs: Sequence[Run], trouble: str) -> str:
    return f"{sum(getattr(run, trouble) for run in runs)} of {len(runs)}"


def _median(runs: Sequence[Run]) -> float:
    """What is no number is larger than any."""
    return statistics.median(run.end if math.isfinite(run.end) else math.inf for run in runs)


def _loss(value: float) -> str:
    return f"{value:.4g}" if math.isfinite(value) else "not finite"


def _of(values: dict[str, float]) -> Callable[[str], float]:
    return lambda name: values[name]


def _worst_first(margin: float) -> float:
    """What is no number comes before every number."""
    return -math.inf if math.isnan(margin) else margin
