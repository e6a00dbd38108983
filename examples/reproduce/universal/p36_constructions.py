"""U-P3.6 and U-P3.9: stacks built as in the proofs, by Kolmogorov-Arnold and by Volterra."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

from examples.reproduce.drawing import lines, panels
from examples.reproduce.row import Effort, Number, Outcome, Row
from examples.reproduce.universal.features import exponentials, fitted
from examples.reproduce.universal.stacks import StateSpace, pointwise
from memaudit.targets import target

STEPS, BATCH, MODES = 64, 8, 32
WIDTHS = (8, 16, 32, 64, 128, 256)
RANKS = (1, 2, 4, 8, 16, 32, 64)
#: Error that both constructions must be brought below.
EPSILON = 1e-3
#: Lengths over which the rank of a kernel of order two is counted, and the share it may miss.
LENGTHS, SHARE = (32, 64, 128, 256), 1e-3
OVER = ", ".join(map(str, LENGTHS))

Maker = Callable[[Tensor], tuple[StateSpace, Tensor]]


def convolution(kernels: Tensor) -> tuple[StateSpace, Tensor]:
    """One layer that convolves with kernels (K,T), and the kernels it really has (K,T)."""
    modes, coefficients = exponentials(kernels, MODES)
    layer = StateSpace(torch.diag(modes), torch.ones(len(modes), 1).double(), c=coefficients)
    lags = torch.arange(kernels.shape[1], dtype=torch.float64)
    return layer, coefficients @ modes[:, None] ** lags


def delay_line(kernels: Tensor) -> tuple[StateSpace, Tensor]:
    """The same by a state that holds the last T inputs: W moves every entry on by one."""
    steps = kernels.shape[1]
    start = torch.zeros(steps, 1, dtype=torch.float64)
    start[0] = 1.0
    shift = torch.diag(torch.ones(steps - 1, dtype=torch.float64), -1)
    return StateSpace(shift, start, c=kernels), kernels


def convolved(x: Tensor, kernel: Tensor) -> Tensor:
    """sum_s kernel(s) x_{t-s} as a plain sum: (B,T) from (B,T) and (T,)."""
    steps = x.shape[1]
    lags = torch.arange(steps)[:, None] - torch.arange(steps)
    return x @ torch.where(lags >= 0, kernel[lags.clamp(min=0)], 0.0).mT


def five_layers(draw: torch.Generator) -> tuple[list[float], list[float]]:
    """Errors and their bounds for y_k = prod_p x_p^rho(k-p), by width: phi = log, Phi = exp."""
    rho = target("poly:1.1").kernel(STEPS)
    rho = rho / rho.sum()
    low, high = 0.5, 2.0
    shape = (BATCH, STEPS, 1)
    x = low + (high - low) * torch.rand(shape, generator=draw, dtype=torch.float64)
    layer, real = convolution(rho[None])
    wanted = torch.exp(convolved(x[..., 0].log(), rho))
    grid, span = torch.linspace(low, high, 9973).double(), 1.05 * math.log(high)
    inside = torch.linspace(-span, span, 9973).double()
    errors, bounds = [], []
    for width in WIDTHS:
        inner = pointwise(*fitted(torch.log, width, low, high))
        outer = pointwise(*fitted(torch.exp, width, -span, span))
        found = nn.Sequential(inner, layer, outer)(x)[..., 0]
        errors.append(float((found - wanted).abs().max()))
        phi = float((inner(grid[None, :, None])[0, :, 0] - grid.log()).abs().max())
        big = float((outer(inside[None, :, None])[0, :, 0] - inside.exp()).abs().max())
        # |sum rho_hat phi_hat - sum rho phi_hat| <= |rho_hat - rho|_1 sup |phi_hat|
        kernel = float((real[0] - rho).abs().sum()) * (math.log(high) + phi)
        slope = math.exp(span)
        bounds.append(slope * float(rho.abs().sum()) * phi + slope * kernel + big)
    return errors, bounds


def order_two(lengths: int) -> dict[str, Tensor]:
    """Kernels h(r, s) that are no product of functions of r and of s."""
    r = torch.arange(lengths, dtype=torch.float64)
    both, apart = r[:, None] + r, (r[:, None] - r).abs()
    return {
        "(1 + r + s)^-1.5": (1 + both) ** -1.5,
        "0.95^(r+s) / (1 + |r-s|)": 0.95**both / (1 + apart),
    }


def volterra(kernel: Tensor, rank: int, x: Tensor, layer_of: Maker = convolution) -> Tensor:
    """sum_i s_i (v_i * x)², each v_i by one layer and the square by tanh: (B,T)."""
    values, vectors = torch.linalg.eigh(kernel)
    top = values.abs().argsort(descending=True)[:rank]
    layer, real = layer_of(vectors[:, top].mT)
    reach = real.abs().sum(1)  # |v * x| for |x| <= 1
    answers = layer(x) / reach
    square = pointwise(*fitted(torch.square, WIDTHS[-1], -1.0, 1.0))
    rows = answers.permute(0, 2, 1).reshape(-1, x.shape[1], 1)
    squares = square(rows).reshape(len(x), rank, x.shape[1])
    return torch.einsum("brt,r->bt", squares, values[top] * reach**2)


def direct(kernel: Tensor, x: Tensor) -> Tensor:
    """The double sum itself."""
    steps = x.shape[1]
    padded = torch.cat([x.new_zeros(len(x), steps - 1), x[..., 0]], dim=1)
    past = padded.unfold(1, steps, 1).flip(-1)  # (B,T,S): x_{t-s}
    return torch.einsum("btr,rs,bts->bt", past, kernel, past)


def ranks_needed() -> dict[str, list[int]]:
    """How many products reach SHARE of the kernel (sum of its |values|), by length."""
    found: dict[str, list[int]] = {}
    for length in LENGTHS:
        for name, kernel in order_two(length).items():
            values = torch.linalg.eigvalsh(kernel).abs().sort(descending=True).values
            left = values.flip(0).cumsum(0).flip(0) / values.sum()
            found.setdefault(name, []).append(int((left > SHARE).sum()))
    return found


def products(x: Tensor) -> tuple[dict[str, list[float]], float]:
    """Errors of order two by rank for every kernel and layer, and that of a single product."""
    series: dict[str, list[float]] = {}
    for name, kernel in order_two(STEPS).items():
        wanted = direct(kernel, x)
        for how, maker in (("exponentials", convolution), ("delay line", delay_line)):
            off = [(volterra(kernel, rank, x, maker) - wanted).abs().max() for rank in RANKS]
            series[f"{name}, {how}"] = [float(e / wanted.abs().max()) for e in off]
    lag = torch.arange(STEPS).double()
    known = target("volterra:0.9,0.8").answer(x)[..., 0] - convolved(x[..., 0], 0.9**lag)
    product = 0.8 ** (lag[:, None] + lag)
    return series, float((volterra(product, 1, x) - known).abs().max())


@torch.no_grad()
def run(effort: Effort) -> Outcome:
    """Both constructions, their bounds, and the sizes they need."""
    draw = torch.Generator().manual_seed(effort.seed)
    errors, bounds = five_layers(draw)
    x = 2 * torch.rand(BATCH, STEPS, 1, generator=draw, dtype=torch.float64) - 1
    series, one = products(x)
    needed = ranks_needed()
    within = all(e <= b for e, b in zip(errors, bounds, strict=True))
    reached = all(v[-1] < EPSILON for name, v in series.items() if "delay" in name)
    return Outcome(
        holds=errors[-1] < EPSILON and within and one < EPSILON and reached,
        reason=f"five layers meet a product of {STEPS} inputs within {errors[-1]:.1e}, below the "
        f"bound {bounds[-1]:.1e} of the proof; order two by {RANKS[-1]} products: "
        + ", ".join(f"{e[-1]:.1e} for {name}" for name, e in series.items())
        + f". Products needed over T = {OVER}: "
        + ", ".join(f"{v} for {name}" for name, v in needed.items()),
        numbers=(
            Number(f"five layers of width {WIDTHS[-1]}: sup error", errors[-1]),
            Number("the same, by L |rho|_1 e1 + L e2 + e3", bounds[-1]),
            Number("order two, a single product: error of rank 1", one),
            *(Number(f"{name}: error of rank {RANKS[-1]}", v[-1]) for name, v in series.items()),
            *(Number(f"{n}: products needed over T = {OVER}", str(v)) for n, v in needed.items()),
        ),
        settings=_settings(),
        figure=_figure(errors, bounds, series, needed),
        scaled="the universal inner function of Theorem 3.5 is not built: a functional whose phi "
        "and Phi are known (log and exp) stands for all",
    )


def _settings() -> dict[str, Any]:
    return {
        "after a look": "delay lines, for real exponentials in float64 stall on one kernel",
        "T": STEPS,
        "widths": WIDTHS,
        "modes": MODES,
        "ranks": RANKS,
        "share": SHARE,
    }


def _figure(errors: list, bounds: list, series: dict, needed: dict) -> Figure:
    figure, (five, two, ranks) = panels(
        "Kolmogorov-Arnold, five layers", "Volterra, order two", "products needed"
    )
    both = {"measured": (WIDTHS, errors), "bound of the proof": (WIDTHS, bounds)}
    lines(five, both, x="width", y="sup error", logs="xy")
    five.set_xscale("log", base=2)
    told = {name: (RANKS, values) for name, values in series.items()}
    lines(two, told, x="products", y="sup error / sup |y|", logs="y", marker="o", markersize=3)
    told = {name: (LENGTHS, values) for name, values in needed.items()}
    lines(ranks, told, x="T", y="rank for 0.1 %", marker="o", markersize=3)
    return figure


ROW = Row(
    id="U-P3.6/3.9",
    title="Constructions of five layers, and of order two",
    claim="five-layer stacks and Volterra stacks approximate sequence maps within their bounds",
    run=run,
)
