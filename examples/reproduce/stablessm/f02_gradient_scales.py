"""S-F2, S-T1: the gradient scale functions of the reparameterizations."""

from __future__ import annotations

from collections.abc import Callable

import torch
from matplotlib.figure import Figure
from torch import Tensor

from examples.reproduce.drawing import lines, panels
from examples.reproduce.row import Effort, Number, Outcome, Row
from memaudit import registry
from memaudit.numerics.reparameterization import gradient_scale

#: Table 1 as it is printed: time → form → G(w). `best` has a = 1, b = 0.5.
TABLE: dict[str, dict[str, Callable[[Tensor], Tensor]]] = {
    "continuous": {
        "relu": lambda w: (w > 0) / w**2,
        "exp": lambda w: torch.exp(-w),
        "softplus": lambda w: w.exp() / ((1 + w.exp()) * torch.log(1 + w.exp()) ** 2),
        "best": lambda w: 2 * w.abs(),
    },
    "discrete": {
        "relu": lambda w: (w > 0) * torch.exp(-w) / (1 - torch.exp(-w)) ** 2,
        "exp": lambda w: torch.exp(w - w.exp()) / (1 - torch.exp(-w.exp())) ** 2,
        "softplus": lambda w: torch.exp(-w),
        "tanh": lambda w: torch.exp(2 * w),
        "best": lambda w: 2 * w.abs(),
    },
}
#: Raw weights at which formulas are compared. No zero: there the ratio to w means nothing.
LOW, HIGH, COUNT = -4.0, 4.0, 160
#: Formulas in float64, with cancellation in 1 - f.
EQUAL = 1e-9


def weights() -> Tensor:
    """Raw weights around zero, but not zero."""
    step = (HIGH - LOW) / COUNT
    return LOW + step * (torch.arange(COUNT, dtype=torch.float64) + 0.5)


def deviation(time: str, name: str) -> float:
    """The largest relative difference of the printed formula and of automatic derivatives."""
    w = weights()
    exact = gradient_scale(registry.build("reparams", name, time=time).forward, w, time=time)
    apart = (TABLE[time][name](w) - exact).abs()
    return float((apart / exact.clamp(min=1e-300)).where(exact > 0, apart).max())


def spread(scale: Tensor, w: Tensor) -> float:
    """Largest over smallest of G(w) / |w|, where there is a gradient."""
    ratio = (scale / w.abs())[scale > 0]
    return float(ratio.max() / ratio.min())


def milder() -> float:
    """In which share of rates from 1e-3 to 10 softplus has a smaller G/|w| than exp."""
    lam = -torch.logspace(-3, 1, 2000, dtype=torch.float64)
    found = []
    for name in ("softplus", "exp"):
        form = registry.build("reparams", name, time="continuous")
        w = form.inverse(lam)
        found.append(form.gradient_scale(w) / w.abs())
    return float((found[0] < found[1]).double().mean())


def run(effort: Effort) -> Outcome:
    """Table 1 against automatic derivatives, and the balance that Figure 2 shows."""
    off = {f"{t} {n}": deviation(t, n) for t, group in TABLE.items() for n in group}
    effort.tick(1, 2)
    w = weights()
    spreads = {f"{t} {n}": spread(g(w), w) for t, group in TABLE.items() for n, g in group.items()}
    others = min(value for name, value in spreads.items() if "best" not in name)
    balanced = max(spreads["continuous best"], spreads["discrete best"])
    # Equation (127) taken at its word: ln(-f) = a w² + b.
    slip = spread(gradient_scale(lambda w: -torch.exp(w**2 + 0.5), w, time="continuous"), w)
    zero = registry.build("reparams", "best", time="discrete").forward(torch.zeros(1).double())
    numbers = [Number(f"{n}: formula against autograd, largest share", v) for n, v in off.items()]
    numbers += [
        Number(
            f"{name}: G/|w|, largest over smallest, |w| < 4", value, 1.0 if "best" in name else None
        )
        for name, value in spreads.items()
    ]
    numbers += [
        Number("discrete best at w = 0", float(zero), "inside (-1, 1)"),
        Number("share of rates 1e-3 to 10 where softplus is milder than exp", milder()),
        Number("f = -exp(w² + b) after (127): G/|w|, largest over smallest", slip),
    ]
    worst = max(off, key=lambda name: off[name])
    return Outcome(
        holds=off[worst] < EQUAL and balanced < 1 + EQUAL and others > 10,
        reason=f"all nine formulas agree with automatic derivatives to {off[worst]:.1g} ({worst}); "
        f"G/|w| of best is constant, of the others it spans a factor of {others:.3g} at least",
        numbers=tuple(numbers),
        settings={"w": [LOW, HIGH, COUNT], "a": 1.0, "b": 0.5},
        figure=_figure(),
        errata="Table 1 puts the discrete best into (-1, 1): at w = 0 it is exactly -1. Equations "
        "(126) and (127) of Appendix G should read f'/f² = Lw; the form that they end in is right",
    )


def _figure() -> Figure:
    figure, axes = panels("continuous time", "discrete time")
    # The panels of the paper show both signs of w; a gap at zero keeps the poles apart.
    sides = [torch.linspace(a, b, 200, dtype=torch.float64) for a, b in ((-3, -0.03), (0.03, 3))]
    w = torch.cat([sides[0], torch.full((1,), float("nan"), dtype=torch.float64), sides[1]])
    for at, (_, group) in zip(axes, TABLE.items(), strict=True):
        curves = {}
        for name, scale in group.items():
            ratio = scale(w) / w.abs()
            curves[name] = (w.tolist(), ratio.where(ratio > 0, torch.nan).tolist())
        lines(at, curves, x="w", y="G(w) / |w|", logs="y")
        at.set_ylim(1e-2, 1e4)
    return figure


ROW = Row(
    id="S-F2, S-T1",
    title="Gradient scale functions",
    claim="the gradient scales of relu, exp, softplus, tanh and best are those of Table 1, and "
    "best alone has a constant gradient over weight",
    run=run,
)
