"""I-F9, I-T1: tanh RNNs on the rows of MNIST, with four forms of the recurrent weight."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from examples.reproduce.data import Images, mnist
from examples.reproduce.drawing import COLOURS, lines, panels
from examples.reproduce.row import Effort, Number, Outcome, Row
from examples.reproduce.students import FASTEST, SLOWEST, RecurrentStudent

#: Form → test loss and accuracy as Table 1 has them.
PRINTED = {
    "softplus": (0.8903, 71.36),
    "exp": (0.9028, 70.55),
    "inverse": (0.9082, 70.77),
    "direct": (0.9177, 68.47),
}
STABLE = ("softplus", "exp", "inverse")
#: The paper names neither; 200 updates of 300 images are an epoch, as its figure shows.
BATCH, RATE, REPEATS = 300, 1e-3, 3
STEP = 0.1


class MatrixStudent(nn.Module):
    """A tanh network in steps of 0.1 whose recurrent weight is W = g(M), a matrix function.

    g(M) is M, -e^M, -log(1 + e^M) or -M^-1. All start from one symmetric W with rates between 0.1
    and 1; nothing keeps M symmetric afterwards, so every form has as many weights as the others.
    """

    def __init__(self, units: int, form: str, generator: torch.Generator) -> None:
        super().__init__()
        sizes = {"inputs": 28, "outputs": 10, "step": STEP, "generator": generator}
        plain = RecurrentStudent(units, **sizes).float()
        rates, basis = torch.linalg.eigh(-plain.W.detach().double())
        rates = rates.clamp(SLOWEST, FASTEST)
        raw = {
            "direct": -rates,
            "exp": rates.log(),
            "softplus": rates.expm1().log(),
            "inverse": 1 / rates,
        }[form]
        self.form = form
        self.M = nn.Parameter(((basis * raw) @ basis.mT).float())
        self.U, self.bias, self.c = plain.U, plain.bias, plain.c

    def weight(self) -> Tensor:
        """W (m,m)."""
        if self.form == "direct":
            return self.M
        if self.form == "inverse":
            return -torch.linalg.inv(self.M)
        if self.form == "exp":
            return -torch.linalg.matrix_exp(self.M)
        # A matrix that is not symmetric has pairs of complex eigenvalues, and g of them too.
        values, vectors = torch.linalg.eig(self.M.double())
        softened = vectors * torch.log1p(values.exp())
        return -torch.linalg.solve(vectors, softened, left=False).real.float()

    def forward(self, u: Tensor) -> Tensor:
        """The scores (B,10) after the last row of (B,T,28)."""
        weight, state = self.weight().mT, torch.zeros(len(u), len(self.bias))
        for fed in (u @ self.U.mT + self.bias).unbind(1):
            state = state + STEP * torch.tanh(state @ weight + fed)
        return state @ self.c.mT


@dataclass(frozen=True, slots=True)
class Trained:
    """One run: the loss and accuracy of every update, and those on the test images."""

    losses: np.ndarray
    accuracies: np.ndarray
    test_loss: float
    test_accuracy: float


def rows(images: Tensor) -> Tensor:
    """Images (N,28,28) of bytes as sequences of rows between 0 and 1."""
    return images.float() / 255.0


def train(form: str, data: Images, units: int, updates: int, seed: int) -> Trained:
    """Train one network; all forms start from the same W and see the same batches."""
    draw = torch.Generator().manual_seed(seed)
    student = MatrixStudent(units, form, draw)
    stepping = torch.optim.Adam(student.parameters(), lr=RATE)
    losses, right = [], []
    while len(losses) < updates:
        order = torch.randperm(len(data.train_x), generator=draw)
        for chosen in order.split(BATCH)[: updates - len(losses)]:
            scores = student(rows(data.train_x[chosen]))
            loss = cross_entropy(scores, data.train_y[chosen])
            stepping.zero_grad()
            loss.backward()
            stepping.step()
            losses.append(float(loss.detach()))
            right.append(float((scores.argmax(1) == data.train_y[chosen]).float().mean()))
    with torch.no_grad():
        scores = torch.cat([student(rows(some)) for some in data.test_x.split(2000)])
    return Trained(
        np.array(losses),
        np.array(right),
        float(cross_entropy(scores, data.test_y)),
        100 * float((scores.argmax(1) == data.test_y).float().mean()),
    )


def trainings(effort: Effort, units: int, updates: int) -> dict[str, list[Trained]]:
    """Form → its runs; the k-th runs of all forms share their start."""
    data = mnist()
    found: dict[str, list[Trained]] = {form: [] for form in PRINTED}
    for done in range(REPEATS * len(PRINTED)):
        repeat, form = done // len(PRINTED), list(PRINTED)[done % len(PRINTED)]
        found[form].append(train(form, data, units, updates, 1000 * effort.seed + repeat))
        effort.tick(done + 1, REPEATS * len(PRINTED))
    return found


def means(runs: list[Trained]) -> tuple[float, float, float]:
    """Test loss, test accuracy, and the loss while training."""
    return (
        float(np.mean([run.test_loss for run in runs])),
        float(np.mean([run.test_accuracy for run in runs])),
        float(np.mean([run.losses.mean() for run in runs])),
    )


def beats(form: tuple[float, float, float], direct: tuple[float, float, float]) -> bool:
    """Whether one form is better than another in all three means."""
    return form[0] < direct[0] and form[1] > direct[1] and form[2] < direct[2]


def run(effort: Effort) -> Outcome:
    """Every form from every start."""
    units, updates = effort.pick(quick=(32, 120), full=(64, 2000))
    found = trainings(effort, units, updates)
    average = {form: means(runs) for form, runs in found.items()}
    told = ", ".join(
        f"{form} {loss:.4f}/{accuracy:.2f}" for form, (loss, accuracy, _) in average.items()
    )
    return Outcome(
        holds=all(beats(average[form], average["direct"]) for form in STABLE),
        reason=f"test loss/accuracy: {told}; lower test loss than direct from the same start: "
        f"{_beaten(found)}",
        numbers=tuple(number for form, runs in found.items() for number in _numbers(form, runs)),
        settings={
            "units": units,
            "batch": BATCH,
            "optimizer": f"Adam {RATE:g}",
            "updates": updates,
            "repeats": REPEATS,
            "time step": STEP,
            "W": "g(M), a matrix function",
            "silent in the paper": "all but epochs and repeats",
        },
        figure=_figure(found),
        scaled=effort.pick(
            quick=f"{updates} updates of {units} units instead of 2000 of 64", full=""
        ),
    )


def _beaten(found: dict[str, list[Trained]]) -> str:
    """In how many starts each stable form ends with a lower test loss than direct."""
    wins = {
        form: sum(
            ours.test_loss < direct.test_loss
            for ours, direct in zip(found[form], found["direct"], strict=True)
        )
        for form in STABLE
    }
    return ", ".join(f"{form} {n} of {REPEATS}" for form, n in wins.items())


def _numbers(form: str, runs: list[Trained]) -> list[Number]:
    printed_loss, printed_accuracy = PRINTED[form]
    loss, accuracy, speed = means(runs)
    return [
        Number(f"{form}: test loss", loss, printed_loss),
        Number(f"{form}: its standard error", _error([run.test_loss for run in runs])),
        Number(f"{form}: test accuracy", accuracy, printed_accuracy),
        Number(f"{form}: its standard error", _error([run.test_accuracy for run in runs])),
        Number(f"{form}: mean loss while training", speed),
    ]


def _error(values: list[float]) -> float:
    return float(np.std(values, ddof=1) / len(values) ** 0.5)


def _figure(found: dict[str, list[Trained]]) -> Figure:
    figure, axes = panels("train loss", "train accuracy", "test accuracy")
    for k, (form, runs) in enumerate(found.items()):
        for at, name in zip(axes, ("losses", "accuracies"), strict=False):
            curves = np.stack([_smooth(getattr(run, name)) for run in runs])
            steps, middle = np.arange(curves.shape[1]), curves.mean(0)
            spread = curves.std(0) / len(runs) ** 0.5
            lines(at, {form: (steps, middle)}, x="update", y=at.get_title(), color=COLOURS[k])
            at.fill_between(steps, middle - spread, middle + spread, color=COLOURS[k], alpha=0.2)
        values = [run.test_accuracy for run in runs]
        axes[2].bar(form, np.mean(values), yerr=_error(values), color=COLOURS[k])
    low = min(run.test_accuracy for runs in found.values() for run in runs)
    axes[2].set_ylim(bottom=max(0.0, low - 10.0))
    axes[2].set_ylabel("% of 10,000 test images", fontsize=9)
    return figure


def _smooth(values: np.ndarray, width: int = 10) -> np.ndarray:
    return np.convolve(values, np.ones(width) / width, mode="valid")


ROW = Row(
    id="I-F9, I-T1",
    title="MNIST by rows",
    claim="from the same start stable forms learn faster than direct and end with a lower loss",
    run=run,
)
