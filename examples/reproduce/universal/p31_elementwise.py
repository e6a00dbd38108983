"""U-P3.1: two state-space layers fit any element-wise function."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

import memaudit
from examples.reproduce.drawing import lines, panels
from examples.reproduce.row import Effort, Number, Outcome, Row
from examples.reproduce.universal.features import Function, fitted, modulus, staircase
from examples.reproduce.universal.stacks import pointwise

WIDTHS = (16, 64, 256, 1024, 4096)
FITTED = (16, 32, 64, 128, 256)
LOW, HIGH, GRID = -1.0, 1.0, 5003
#: Sequences that the stacks answer, and the error that every function must be brought below.
BATCH, LENGTH, EPSILON = 16, 256, 0.02


def weierstrass(x: Tensor) -> Tensor:
    """Continuous and, as far as five terms go, smooth nowhere."""
    terms = torch.arange(5, dtype=x.dtype)
    return (2.0**-terms * torch.cos(3.0**terms * math.pi * x[..., None])).sum(-1)


FUNCTIONS = {
    "sin(3 pi x)": lambda x: torch.sin(3 * math.pi * x),
    "|x|": torch.abs,
    "sqrt |x|": lambda x: x.abs().sqrt(),
    "Weierstrass": weierstrass,
}


@dataclass(frozen=True, slots=True)
class Fits:
    """Sup errors of one function by width, the bounds of the construction, and on sequences."""

    built: list[float]
    bounds: list[float]
    random: float
    fitted: list[float]

    @classmethod
    def of(cls, f: Function, u: Tensor) -> Fits:
        """The construction and least squares, on a grid; the widest construction on u as well."""
        grid = torch.linspace(LOW, HIGH, GRID, dtype=torch.float64)[None, :, None]
        steps = [pointwise(*staircase(f, m, LOW, HIGH)) for m in WIDTHS]
        some = [pointwise(*fitted(f, m, LOW, HIGH)) for m in FITTED]
        return cls(
            [_error(stack, f, grid) for stack in steps],
            [2 * modulus(f, (HIGH - LOW) / (m - 1), LOW, HIGH) for m in WIDTHS],
            _error(steps[-1], f, u),
            [_error(stack, f, grid) for stack in some],
        )

    @property
    def within(self) -> bool:
        """Whether every width stays within its bound."""
        return all(e <= b for e, b in zip(self.built, self.bounds, strict=True))


@torch.no_grad()
def run(effort: Effort) -> Outcome:
    """The construction and least squares for every width, and an audit."""
    draw = torch.Generator().manual_seed(effort.seed)
    u = LOW + (HIGH - LOW) * torch.rand(BATCH, LENGTH, 1, generator=draw, dtype=torch.float64)
    found: dict[str, Fits] = {}
    for at, (name, f) in enumerate(FUNCTIONS.items()):
        found[name] = Fits.of(f, u)
        effort.tick(at + 1, len(FUNCTIONS))
    kinds = _kinds()
    worst = max(fits.built[-1] for fits in found.values())
    within = all(fits.within for fits in found.values())
    present = kinds["reading the present (eq. 1)"] == "memoryless"
    return Outcome(
        holds=worst <= EPSILON and within and present,
        reason=f"with {WIDTHS[-1]} units the largest sup error of {len(FUNCTIONS)} functions is "
        f"{worst:.2g} (asked: {EPSILON}), and every width stays within the bound 2 w(cell); with "
        "the indices of eq. 12 the answer comes one step late, with those of eq. 1 at once",
        numbers=(
            *(number for name, fits in found.items() for number in _numbers(name, fits)),
            *(Number(f"memory, {how}", kind, "memoryless") for how, kind in kinds.items()),
        ),
        settings={
            "after a look": "staircases up to 4096, for 512 fitted units missed 0.02; five terms",
            "widths": WIDTHS,
            "fitted": FITTED,
            "K": (LOW, HIGH),
            "epsilon": EPSILON,
        },
        figure=_figure(found),
        errata="eq. 12 and 13 give y_k = f(x_{k-1}): U_1 must read x_{k+1}, as in eq. 1",
    )


def _numbers(name: str, fits: Fits) -> list[Number]:
    return [
        Number(f"{name}: sup error of {WIDTHS[-1]} steps", fits.built[-1]),
        Number(f"{name}: the bound 2 w(cell) for them", fits.bounds[-1]),
        Number(f"{name}: on random sequences", fits.random),
        Number(f"{name}: sup error, {FITTED[-1]} by least squares", fits.fitted[-1]),
    ]


def _figure(found: dict[str, Fits]) -> Figure:
    figure, axes = panels("smooth staircases, no fit", "least squares")
    built = {name: fits.built for name, fits in found.items()}
    solved = {name: fits.fitted for name, fits in found.items()}
    for at, widths, errors in zip(axes, (WIDTHS, FITTED), (built, solved), strict=True):
        lines(at, {k: (widths, v) for k, v in errors.items()}, x="m", y="sup error", logs="xy")
        at.set_xscale("log", base=2)
        at.axhline(EPSILON, color="#888888", linestyle=":", linewidth=1)
    return figure


def _error(stack: nn.Module, f: Function, u: Tensor) -> float:
    """The largest error over sequences, in pieces that fit into the cache."""
    parts = [(stack(part) - f(part[..., 0])[..., None]).abs().max() for part in u.split(64, dim=1)]
    return float(torch.stack(parts).max())


def _kinds() -> dict[str, str]:
    """What an audit calls the memory with the indices of either equation."""
    weights = fitted(torch.abs, FITTED[0], LOW, HIGH)
    found = {}
    for how, late in (("reading the present (eq. 1)", False), ("as printed in eq. 12", True)):
        subject = memaudit.wrap(pointwise(*weights, late=late), input_size=1)
        report = memaudit.scan(subject, horizon=64, queries=["impulse"], probes=[])
        decay = report.memory["impulse"].decay
        found[how] = decay.kind if decay.support is None else f"{decay.kind} ({decay.support})"
    return found


ROW = Row(
    id="U-P3.1",
    title="Two layers and element-wise functions",
    claim="two state-space layers with W = 0 approximate any continuous element-wise function",
    run=run,
)
