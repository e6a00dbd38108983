"""S-eq55/56: modes go to the boundary for a long memory, or the weights pay for it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import torch
from matplotlib.figure import Figure
from torch import Tensor

from examples.reproduce.drawing import lines, panels
from examples.reproduce.row import Effort, Number, Outcome, Row
from memaudit.targets import target

SIZES = (1, 2, 4, 8)
#: Lags over which kernels are fitted.
STEPS = 4000
#: A mode counts when it holds this share of the kernel's sum: others are rounding.
HELD = 1e-3
#: Rates that the modes of (56) may not fall below, and how long the memory must last.
RADII, ENDS = (0.05, 0.1), (25, 50, 75, 100)
#: A fit is as good as this everywhere, as a share of the target.
TOLERANCE = 0.1


@dataclass(frozen=True, slots=True)
class Price:
    """What weights a model with the radius beta needs to follow the target up to the lag T."""

    radius: float
    end: int
    weights: float
    bound: float


def slowest(kernel: Tensor, m: int) -> float:
    """The max lambda of the m exponentials e^{lambda t} nearest to a kernel, all rates free."""
    t = torch.arange(len(kernel), dtype=torch.float64)
    ends = (math.log(20.0 / len(kernel)), math.log(2.0)) if m > 1 else (math.log(0.1),) * 2
    raw = torch.linspace(*ends, m, dtype=torch.float64).requires_grad_()
    options = {"max_iter": 200, "line_search_fn": "strong_wolfe", "tolerance_change": 1e-14}
    optimizer = torch.optim.LBFGS([raw], **options)

    def loss() -> Tensor:
        # What no amplitudes can fit: only the rates are left to search for.
        optimizer.zero_grad()
        basis = torch.linalg.qr(torch.exp(-raw.exp() * t[:, None]))[0]
        left = (kernel - basis @ (basis.mT @ kernel)).square().sum().log()
        left.backward()
        return left

    with torch.enable_grad():
        optimizer.step(loss)
    rates = raw.detach().exp()
    table = torch.exp(-rates * t[:, None])
    amplitudes = torch.linalg.lstsq(table, kernel[:, None]).solution[:, 0]
    mass = (amplitudes / rates).abs()
    return -float(rates[mass > HELD * mass.sum()].min())


def price(radius: float, end: int) -> Price | None:
    """The smallest sum |c u| found with rates from `radius` on; None where nothing fits.

    With |c|_2 = |U|_2 that sum is theta², the product of the weights of input and readout.
    """
    rho = target("poly:1.1").kernel(end + 1)
    t = torch.arange(end + 1, dtype=torch.float64)
    rates = radius * torch.logspace(0, math.log10(20.0 / radius), 40, dtype=torch.float64)
    table = torch.exp(-rates * t[:, None]) / rho[:, None]
    wanted = torch.cat([torch.ones(end + 1), torch.zeros(40)]).double()[:, None]
    for halves in range(17):
        # Ever less is asked of the weights, until the fit is good enough.
        penalty = 10.0 ** (-halves / 2) * torch.eye(40, dtype=torch.float64)
        solved = torch.linalg.lstsq(torch.cat([table, penalty]), wanted, driver="gelsd")
        off = float((table @ solved.solution - 1.0).abs().max())
        if off <= TOLERANCE:
            # The model's own memory at T is at least 1 - off of the target's.
            bound = math.exp(radius * end) * (1.0 - off) * float(rho[-1]) / 2.0
            return Price(radius, end, float(solved.solution.abs().sum()), bound)
    return None


def listed(found: dict[str, list[float]], prices: list[Price]) -> list[Number]:
    """The slowest modes by size, and the prices beside what (56) asks for."""
    modes = [
        Number(f"{n}: max lambda at m = {m}", v)
        for n, g in found.items()
        for m, v in zip(SIZES, g, strict=True)
    ]
    told = "theta² with rates from {:g} on, T = {}"
    return modes + [
        Number(told.format(p.radius, p.end), p.weights, f"at least {p.bound:.3g}") for p in prices
    ]


def run(effort: Effort) -> Outcome:
    """The slowest modes of the best fits, and the price of staying away from the boundary."""
    long = target("poly:1.1").kernel(STEPS)
    short = long * target("exp:0.9").kernel(STEPS)
    found: dict[str, list[float]] = {"(t+1)^-1.1": [], "0.9^t (t+1)^-1.1": []}
    for number, m in enumerate(SIZES):
        for name, kernel in zip(found, (long, short), strict=True):
            found[name].append(slowest(kernel, m))
        effort.tick(number + 1, len(SIZES) + 1)
    polynomial, exponential = found.values()
    prices = [p for r in RADII for end in ENDS if (p := price(r, end)) is not None]
    limit = math.log(0.9)
    falls = all(-b < -a / 2.0 for a, b in pairwise(polynomial))
    stays = all(rate < limit for rate in exponential)
    paid = min(p.weights / p.bound for p in prices)
    growth = {r: _growth([p for p in prices if p.radius == r]) for r in RADII}
    numbers = listed(found, prices)
    numbers += [
        Number(f"growth of log theta² by T, rates from {r:g} on", g) for r, g in growth.items()
    ]
    dear = prices[-1]
    return Outcome(
        holds=falls and stays and paid >= 1.0 and all(g >= r for r, g in growth.items()),
        reason=f"the slowest mode goes from {polynomial[0]:.3g} to {polynomial[-1]:.2g} as m goes "
        f"from {SIZES[0]} to {SIZES[-1]}, while for 0.9^t (t+1)^-1.1 it stays below log 0.9 = "
        f"{limit:.3f} (at {exponential[-1]:.3f}); with rates of {dear.radius:g} or more, theta² is "
        f"{dear.weights:.2g} at T = {dear.end}, and never less than (56) asks for",
        numbers=tuple(numbers),
        settings={"m": SIZES, "steps": STEPS, "tolerance of (56)": TOLERANCE, "held share": HELD},
        figure=_figure(found, prices, limit),
    )


def _growth(prices: list[Price]) -> float:
    """The slope of log theta² over the last two ends."""
    one, other = prices[-2:]
    return math.log(other.weights / one.weights) / (other.end - one.end)


def _figure(found: dict[str, list[float]], prices: list[Price], limit: float) -> Figure:
    figure, (left, right) = panels("(55): the slowest mode", "(56): the price of a distance")
    curves = {name: (SIZES, [-v for v in values]) for name, values in found.items()}
    lines(left, curves, x="m", y="- max lambda", logs="xy", marker="o", markersize=4)
    left.axhline(-limit, color="#888888", linestyle=":", linewidth=1)
    left.set_xticks(SIZES, [str(m) for m in SIZES])
    left.minorticks_off()
    for colour, radius in zip(("C0", "C1"), RADII, strict=True):
        some = [p for p in prices if p.radius == radius]
        ends = [p.end for p in some]
        told = {f"theta², rates from {radius:g} on": (ends, [p.weights for p in some])}
        lines(right, told, x="T", y="theta²", logs="y", color=colour, marker="o", markersize=4)
        right.plot(
            ends, [p.bound for p in some], "--", color=colour, linewidth=1, label="its bound"
        )
    right.legend(fontsize=7)
    return figure


ROW = Row(
    id="S-eq55/56",
    title="The price of a long memory",
    claim="max Re lambda goes to zero from below as m grows; with modes kept away from zero the "
    "weights grow exponentially with the memory",
    run=run,
)
