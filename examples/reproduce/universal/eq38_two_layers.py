"""U-eq38: the memory of a two-layer linear RNN, and what becomes of it at equal rates."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

import memaudit
from examples.reproduce.drawing import lines, panels
from examples.reproduce.row import Effort, Number, Outcome, Row
from memaudit.memory.result import Curve
from memaudit.numerics.linear import Dense

INNER, OUTER, INSTANCES = 5, 6, 10
STEP, LAGS = 0.05, 2048
#: The rate of both layers where they meet, and the distances from which they come.
RATE, GAPS = -0.5, tuple(10.0**-k for k in range(1, 9))
#: Agreement of two ways to compute the same number in float64.
ROUNDING = 1e-11


def stacked(outer: Tensor, inner: Tensor, mix: Tensor, read: Tensor, feed: Tensor) -> Dense:
    """x2' = inner x2 + feed u, x1' = outer x1 + mix x2, y = read x1, looked at every STEP.

    The joint state moves by one matrix exponential a step, so that its answer to an impulse is
    that of continuous time, and nothing of eq. 38 goes into it.
    """
    count = len(outer)
    joint = torch.diag(torch.cat([outer, inner]))
    joint[:count, count:] = mix
    fed = torch.cat([torch.zeros(count, dtype=feed.dtype), feed])
    readout = torch.cat([read, torch.zeros(len(inner), dtype=read.dtype)])
    return Dense(torch.linalg.matrix_exp(STEP * joint), fed[:, None], readout[None])


def printed(outer: Tensor, inner: Tensor, mix: Tensor, read: Tensor, feed: Tensor) -> Tensor:
    """Eq. 38 at the lags 0 … LAGS - 1, with C and U2 taken at their own i and j."""
    t = STEP * torch.arange(LAGS, dtype=torch.float64)[:, None, None]
    gaps = inner - outer[:, None]
    waves = (torch.exp(inner * t) - torch.exp(outer[:, None] * t)) / gaps
    return (waves * (read[:, None] * mix * feed)).sum((1, 2))


def memory(system: Dense) -> Curve:
    """What an audit measures."""
    subject = memaudit.wrap(lambda u: system.run(u, "stepping"), input_size=1)
    return memaudit.scan(subject, horizon=LAGS, queries=["impulse"], probes=[]).memory["impulse"]


def off(measured: np.ndarray, wanted: Tensor) -> float:
    """The largest difference, as a share of the largest value."""
    return float(np.abs(measured - wanted.abs().numpy()).max() / wanted.abs().max())


def random_layers(draw: torch.Generator) -> tuple[Tensor, ...]:
    """Rates between -2 and -0.2, everything else Gaussian."""
    made = {"generator": draw, "dtype": torch.float64}
    outer = -0.2 - 1.8 * torch.rand(OUTER, **made)
    inner = -0.2 - 1.8 * torch.rand(INNER, **made)
    mix = torch.randn(OUTER, INNER, **made)
    return outer, inner, mix, torch.randn(OUTER, **made), torch.randn(INNER, **made)


def meeting(gap: float) -> tuple[Tensor, ...]:
    """One mode in each layer, their rates `gap` apart."""
    one = torch.ones(1, dtype=torch.float64)
    return RATE * one, (RATE + gap) * one, one[None], one, one


@dataclass(frozen=True, slots=True)
class Meeting:
    """Two layers of one mode: equal rates, and the deviations from t·exp(lambda t) by gap."""

    limit: Tensor
    equal: Curve
    near: list[float]
    lost: list[float]

    @classmethod
    def measured(cls) -> Meeting:
        """The system itself, and eq. 38 as printed, at rates that come closer."""
        t = STEP * torch.arange(LAGS, dtype=torch.float64)
        limit = t * torch.exp(RATE * t)
        equal = memory(stacked(*meeting(0.0)))
        near = [off(memory(stacked(*meeting(gap))).values, limit) for gap in GAPS]
        lost = [off(np.abs(printed(*meeting(gap)).numpy()), limit) for gap in GAPS]
        return cls(limit, equal, near, lost)

    @property
    def slope(self) -> float:
        """The power of the gap with which the deviation falls."""
        return float(np.polyfit(np.log(GAPS), np.log(self.near), 1)[0])

    @property
    def at_equal(self) -> float:
        """The deviation at equal rates."""
        return off(self.equal.values, self.limit)


def run(effort: Effort) -> Outcome:
    """Random layers against the formula, then two rates that meet."""
    draw = torch.Generator().manual_seed(effort.seed)
    drawn = [random_layers(draw) for _ in range(INSTANCES)]
    curves = [memory(stacked(*layers)) for layers in drawn]
    worst = max(off(c.values, printed(*layers)) for c, layers in zip(curves, drawn, strict=True))
    met = Meeting.measured()
    slope, at_equal = met.slope, met.at_equal
    kinds = sorted({c.decay.kind for c in [*curves, met.equal]})
    holds = worst < ROUNDING and at_equal < ROUNDING and abs(slope - 1) < 0.05
    return Outcome(
        holds=holds and kinds == ["exponential"],
        reason=f"{INSTANCES} random stacks follow eq. 38 within {worst:.1e}; rates that are "
        f"d apart differ from t·exp(lambda t) by about d^{slope:.3f}, equal ones by {at_equal:.1e}",
        numbers=_numbers(worst, met, kinds),
        settings={
            "after a look": "the window: over 800 lags some slow pairs were undetermined",
            "inner": INNER,
            "outer": OUTER,
            "step": STEP,
            "lags": LAGS,
            "rate": RATE,
        },
        figure=_figure(curves[0], drawn[0], met),
    )


def _numbers(worst: float, met: Meeting, kinds: list[str]) -> tuple[Number, ...]:
    return (
        Number(f"largest deviation from eq. 38 over {INSTANCES} random stacks", worst, 0),
        Number("deviation from t·exp(lambda t) at equal rates", met.at_equal, 0),
        Number("power of the gap with which it is approached", met.slope, 1),
        Number("coefficients of the two exponentials at the smallest gap", 1 / GAPS[-1]),
        Number("deviation at the smallest gap: system", met.near[-1]),
        Number("deviation at the smallest gap: eq. 38 as printed, in float64", met.lost[-1]),
        Number("kinds of decay", ", ".join(kinds), "exponential"),
        # d/dt log(t exp(lambda t)) = lambda + 1/t: over a finite window the slope is less steep.
        Number(
            f"rate measured at equal rates of {-RATE:g} (slope of t·exp(lambda t): |lambda| - 1/t)",
            float(met.equal.decay.rate or 0.0) / STEP,
        ),
    )


def _figure(curve: Curve, layers: tuple[Tensor, ...], met: Meeting) -> Figure:
    t = STEP * np.arange(LAGS)
    figure, (random, meet, gaps) = panels(
        "a random two-layer stack", "equal rates", "rates d apart, against t·exp(lambda t)"
    )
    pairs = {"measured": curve.values, "eq. 38": printed(*layers).abs().numpy()}
    lines(random, {k: (t[1:], v[1:]) for k, v in pairs.items()}, x="t", y="memory", logs="y")
    _dashed(random)
    both = {"measured": met.equal.values, "t·exp(lambda t)": met.limit.numpy()}
    both["exp(lambda t)"] = np.exp(RATE * t)
    lines(meet, {k: (t[1:], v[1:]) for k, v in both.items()}, x="t", y="memory", logs="y")
    _dashed(meet)
    lines(gaps, {"measured": (GAPS, met.near), "d": (GAPS, GAPS)}, x="d", y="deviation", logs="xy")
    return figure


def _dashed(axes: Axes) -> None:
    """The formula on top of what was measured lets it be seen."""
    axes.lines[1].set_linestyle("--")
    axes.legend(fontsize=7)


ROW = Row(
    id="U-eq38",
    title="Two linear layers",
    claim="the memory is a sum of (exp(l2 t) - exp(l1 t)) / (l2 - l1); near-equal rates give "
    "t·exp(lambda t)",
    run=run,
)
