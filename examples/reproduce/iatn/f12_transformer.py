"""I-F12: a random transformer never forgets, and tanh RNNs do not approximate it stably."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn

import memaudit
from examples.reproduce.drawing import lines, panels
from examples.reproduce.row import Effort, Number, Outcome, Row
from memaudit.results import Curve, FamilyReport
from memaudit.students import RecurrentStudent, fit

SIZES = (8, 16, 32, 64)
BETAS = tuple(1e-4 * 2.0 ** (k / 2) for k in range(27))
#: The grids of App. D: trained on 3.2 and judged on 10 units of time, in steps of 0.1.
TRAINED, JUDGED, STEP = 32, 100, 0.1
LAGS = 512
#: A memory that ends above this share of its largest value has not decayed.
KEPT = 0.1


class RandomTransformer(nn.Module):
    """A causal encoder of two layers, one input and one output, with random weights.

    With `positions`, the usual waves, it knows how long it has been running.
    """

    def __init__(
        self, generator: torch.Generator, *, width: int = 32, positions: bool = True
    ) -> None:
        super().__init__()
        pitch = 1e4 ** -(torch.arange(0, width, 2, dtype=torch.float64) / width)
        self.register_buffer("pitch", pitch if positions else 0.0 * pitch)
        self.enter, self.leave = nn.Linear(1, width), nn.Linear(width, 1)
        layer = {"nhead": 4, "dim_feedforward": 4 * width, "dropout": 0.0, "batch_first": True}
        self.layers = nn.ModuleList(nn.TransformerEncoderLayer(width, **layer) for _ in range(2))
        with torch.no_grad():
            for name, weight in self.named_parameters():
                if weight.ndim > 1:
                    weight.normal_(0.0, weight.shape[1] ** -0.5, generator=generator)
                elif "norm" not in name:
                    weight.normal_(0.0, 0.1, generator=generator)
        self.double()

    def forward(self, u: Tensor) -> Tensor:
        """The answers (B,T,1) to (B,T,1)."""
        phase = torch.arange(u.shape[1], dtype=u.dtype)[:, None] * self.pitch
        x = self.enter(u) + torch.cat([phase.sin(), phase.cos()], dim=1)
        past = nn.Transformer.generate_square_subsequent_mask(u.shape[1], dtype=u.dtype)
        for layer in self.layers:
            x = layer(x, src_mask=past)
        return self.leave(x)


def students(
    target: RandomTransformer, effort: Effort, updates: int, batch: int
) -> tuple[list[RecurrentStudent], dict[int, float]]:
    """Tanh networks trained on the transformer, and their last losses."""

    def answer(u: Tensor) -> Tensor:
        with torch.no_grad():
            return target(u) - target(torch.zeros_like(u[:1]))

    trained, losses = [], {}
    for number, size in enumerate(SIZES):
        draw = torch.Generator().manual_seed(1000 * effort.seed + size)
        student = RecurrentStudent(size, step=STEP, generator=draw)
        done = fit(
            student,
            answer,
            updates=updates,
            length=TRAINED,
            batch=batch,
            lr=0.005,
            seed=effort.seed,
            progress=lambda k, of, n=number: effort.tick(n * of + k, len(SIZES) * of),
        )
        trained.append(student)
        losses[size] = done.last
    return trained, losses


def held_against(
    trained: list[RecurrentStudent], target: RandomTransformer, seed: int
) -> FamilyReport:
    """E_m(beta) against the transformer, by three draws each."""

    def answer(u: Tensor) -> Tensor:
        with torch.no_grad():
            return target(u) - target(torch.zeros_like(u[:1]))

    members = [memaudit.wrap(student, input_size=1) for student in trained]
    given = {"draws": 3, "ascent": 0, "steps": JUDGED, "norm": "sup", "seed": seed}
    return memaudit.family(members, target=answer, betas=BETAS, **given)


def memory(target: RandomTransformer) -> dict[str, Curve]:
    """Both memory functions of the transformer."""
    subject = memaudit.wrap(target, input_size=1)
    options = {"amplitudes": [1.0], "level": "quick", "probes": []}
    queries = ["heaviside", "impulse"]
    return dict(memaudit.scan(subject, horizon=LAGS, queries=queries, **options).memory)


def left_over(curve: Curve) -> float:
    """The largest memory in the last tenth of the window, as a share of the largest of all."""
    return float(curve.values[-LAGS // 10 :].max() / curve.values.max())


def run(effort: Effort) -> Outcome:
    """The memory of the target, and the family of students."""
    # App. D: a thousand epochs of a hundred batches each.
    updates, batch = effort.pick(quick=(150, 64), full=(100_000, 128))
    target = RandomTransformer(torch.Generator().manual_seed(effort.seed))
    curves = memory(target)
    without = RandomTransformer(torch.Generator().manual_seed(effort.seed), positions=False)
    curves |= {f"{query}, no positions": curve for query, curve in memory(without).items()}
    kept = left_over(curves["heaviside"])
    trained, losses = students(target, effort, updates, batch)
    report = held_against(trained, target, effort.seed)
    starts = [member.start for member in report.members]
    improves = all(large < small for small, large in pairwise(starts))
    figure, (left, right) = panels("memory of a random transformer", "tanh students")
    shown = {q: (c.lags + 1, c.values) for q, c in curves.items() if c.values.max() > 1e-9}
    lines(left, shown, x="t", y="memory", logs="xy")
    errors = {f"m = {m.size}": (report.betas, m.errors) for m in report.members}
    lines(right, errors, x="beta", y="E_m(beta)", logs="xy")
    right.axhline(report.scale, color="black", linestyle=":", linewidth=1.0)
    numbers = [
        Number(f"{q}: memory", f"{c.decay}, largest {c.values.max():.2g}")
        for q, c in curves.items()
    ]
    numbers.append(Number("size of the transformer's answers", report.scale))
    for member in report.members:
        numbers.append(Number(f"m = {member.size}: E(0)", member.start))
        numbers.append(Number(f"m = {member.size}: last loss", losses[member.size]))
    numbers.append(Number("verdict on the family", report.verdict, "no stable approximation"))
    return Outcome(
        holds=kept > KEPT and report.verdict != "stable",
        reason=f"after {LAGS} steps {kept:.0%} of the Heaviside memory is left; family: "
        f"{report.verdict} ({report.reason}); E(0) by size "
        f"{', '.join(f'{s:.3g}' for s in starts)}"
        + ("" if improves else ", which does not fall with the size"),
        numbers=tuple(numbers),
        settings={
            "m": SIZES,
            "updates": updates,
            "batch": batch,
            "lr": 0.005,
            "trained steps": TRAINED,
            "judged steps": JUDGED,
            "draws": 3,
            "transformer": "2 causal layers, width 32, 4 heads",
        },
        figure=figure,
        scaled=effort.pick(
            quick=f"{updates} updates of {batch} sequences instead of 100,000 of 128", full=""
        ),
    )


ROW = Row(
    id="I-F12",
    title="A transformer as target",
    claim="a random transformer has no decaying memory, and no stable approximation by tanh RNNs",
    run=run,
)
