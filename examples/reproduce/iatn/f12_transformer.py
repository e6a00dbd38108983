"""I-F12: a random transformer never forgets, and tanh RNNs do not approximate it stably."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count, pairwise
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

import memaudit
from examples.reproduce.drawing import lines, panels
from examples.reproduce.row import Effort, Number, Outcome, Row
from examples.reproduce.students import RecurrentStudent, fit
from memaudit.families.result import FamilyReport
from memaudit.memory.result import Curve

Tick = Callable[[], None]
SIZES = (8, 16, 32, 64)
BETAS = tuple(1e-4 * 2.0 ** (k / 2) for k in range(27))
#: The grids of App. D: trained on 3.2 and judged on 10 units of time, in steps of 0.1.
TRAINED, JUDGED, STEP = 32, 100, 0.1
LAGS = 512
#: The same training must give a stable family here, or an unstable one would say nothing.
CONTROL = "exp:0.9"
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


def adjusted(target: RandomTransformer) -> Callable[[Tensor], Tensor]:
    """H(x) - H(0), without gradients."""

    def answer(u: Tensor) -> Tensor:
        with torch.no_grad():
            return target(u) - target(torch.zeros_like(u[:1]))

    return answer


def students(
    target: Callable[[Tensor], Tensor] | str, seed: int, updates: int, batch: int, tick: Tick
) -> tuple[FamilyReport, dict[int, float]]:
    """Tanh networks trained on a target and held against it, and their last losses."""
    members, losses = [], {}
    given = {"updates": updates, "length": TRAINED, "batch": batch, "lr": 0.005, "seed": seed}
    for size in SIZES:
        draw = torch.Generator().manual_seed(1000 * seed + size)
        student = RecurrentStudent(size, step=STEP, generator=draw)
        losses[size] = fit(student, target, **given).last
        members.append(memaudit.wrap(student, input_size=1))
        tick()
    asked = {"draws": 3, "ascent": 0, "steps": JUDGED, "norm": "sup", "seed": seed}
    return memaudit.family(members, target=target, betas=BETAS, **asked), losses


def memory(target: RandomTransformer) -> dict[str, Curve]:
    """Both memory functions of the transformer."""
    subject = memaudit.wrap(target, input_size=1)
    options = {"amplitudes": [1.0], "level": "quick", "probes": []}
    queries = ["heaviside", "impulse"]
    return dict(memaudit.scan(subject, horizon=LAGS, queries=queries, **options).memory)


def left_over(curve: Curve) -> float:
    """The largest memory in the last tenth of the window, as a share of the largest of all."""
    return float(curve.values[-LAGS // 10 :].max() / curve.values.max())


def memories(seed: int) -> tuple[RandomTransformer, dict[str, Curve]]:
    """A random transformer with its memories, and with those of the same without positions."""
    target = RandomTransformer(torch.Generator().manual_seed(seed))
    curves = memory(target)
    without = RandomTransformer(torch.Generator().manual_seed(seed), positions=False)
    curves |= {f"{query}, no positions": curve for query, curve in memory(without).items()}
    return target, curves


def run(effort: Effort) -> Outcome:
    """The memory of the target, and the family of students."""
    # App. D: a thousand epochs of a hundred batches each.
    updates, batch = effort.pick(quick=(150, 64), full=(100_000, 128))
    target, curves = memories(effort.seed)
    ticks = count(1)

    def tick() -> None:
        effort.tick(next(ticks), 2 * len(SIZES))

    asked = (effort.seed, updates, batch, tick)
    report, losses = students(adjusted(target), *asked)
    control, _ = students(CONTROL, *asked)
    kept = left_over(curves["heaviside"])
    reached = min(member.start for member in control.members) / control.scale
    return Outcome(
        holds=kept > KEPT and report.verdict == "unstable" and control.verdict == "stable",
        reason=f"after {LAGS} steps {kept:.0%} of the Heaviside memory is left. "
        f"{_shown(report, control)}: family {report.verdict} ({report.reason}), E(0) by size "
        f"{_starts(report)}; the same training on {CONTROL} is {control.verdict} "
        f"({control.reason}), and ends at {reached:.2g} of the size of its answers",
        numbers=(*_numbers(curves, report, losses), *_control_numbers(control, report)),
        settings=_settings(updates, batch),
        figure=_figure(curves, report),
        scaled=effort.pick(
            quick=f"{updates} updates of {batch} sequences instead of 100,000 of 128", full=""
        ),
    )


def _shown(report: FamilyReport, control: FamilyReport) -> str:
    """Whether the students say anything about stability; a failed control says that they do not."""
    if "undetermined" in (report.verdict, control.verdict) or control.verdict != "stable":
        return "Of the stability nothing is shown"
    return "Stability is told"


def _starts(report: FamilyReport) -> str:
    starts = [member.start for member in report.members]
    improves = all(large < small for small, large in pairwise(starts))
    told = ", ".join(f"{s:.3g}" for s in starts)
    return told if improves else f"{told}, which does not fall with the size"


def _numbers(
    curves: dict[str, Curve], report: FamilyReport, losses: dict[int, float]
) -> list[Number]:
    numbers = [
        Number(f"{q}: memory", f"{c.decay}, largest {c.values.max():.2g}")
        for q, c in curves.items()
    ]
    numbers.append(Number("size of the transformer's answers", report.scale))
    for member in report.members:
        numbers.append(Number(f"m = {member.size}: E(0)", member.start))
        numbers.append(Number(f"m = {member.size}: last loss", losses[member.size]))
    return numbers


def _control_numbers(control: FamilyReport, report: FamilyReport) -> list[Number]:
    """What the control reached, and both verdicts."""
    return [
        *(Number(f"{CONTROL}, m = {m.size}: E(0)", m.start) for m in control.members),
        Number(f"{CONTROL}: size of its answers", control.scale),
        Number(f"{CONTROL}: verdict", control.verdict),
        Number("verdict on the family", report.verdict, "no stable approximation"),
    ]


def _settings(updates: int, batch: int) -> dict[str, Any]:
    return {
        "m": SIZES,
        "updates": updates,
        "batch": batch,
        "lr": 0.005,
        "trained steps": TRAINED,
        "judged steps": JUDGED,
        "draws": 3,
        "transformer": "2 causal layers, width 32, 4 heads",
    }


def _figure(curves: dict[str, Curve], report: FamilyReport) -> Figure:
    figure, (left, right) = panels("memory of a random transformer", "tanh students")
    shown = {q: (c.lags + 1, c.values) for q, c in curves.items() if c.values.max() > 1e-9}
    lines(left, shown, x="t", y="memory", logs="xy")
    errors = {f"m = {m.size}": (report.betas, m.errors) for m in report.members}
    lines(right, errors, x="beta", y="E_m(beta)", logs="xy")
    size = {"color": "black", "linestyle": ":", "linewidth": 1.0}
    right.axhline(report.scale, label="size of the answers", **size)
    right.legend(fontsize=7)
    return figure


ROW = Row(
    id="I-F12",
    title="A transformer as target",
    claim="a random transformer has no decaying memory, and no stable approximation by tanh RNNs",
    run=run,
)
