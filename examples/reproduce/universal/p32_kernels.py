"""U-P3.2: sums of exponentials fit any kernel over T steps, and what they cost."""

from __future__ import annotations

from decimal import Decimal, localcontext

import torch
from matplotlib.figure import Figure
from torch import Tensor

from examples.reproduce.drawing import lines, panels
from examples.reproduce.row import Effort, Number, Outcome, Row
from examples.reproduce.students import fitted
from memaudit.numerics.recall import roots_of_unity, vandermonde
from memaudit.targets import target

KERNELS = {
    "exp:0.9": "0.9^k",
    "poly:1.1": "(k+1)^-1.1",
    "airy:20,0.25": "Airy, around 20",
    "shift:10": "a delay of 10",
}
STEPS = 64
SIZES = (2, 4, 8, 16, 32, 64)
#: Enough that sums of coefficients of 1e100 still tell the last digit of a float64.
DIGITS = 200
EXACT = 1e-15


def in_float64(name: str, size: int) -> tuple[float, float]:
    """Sup error and the sum of |coefficients| of the least-squares fit without a penalty."""
    student = fitted(name, size, steps=STEPS, ridge=0.0)
    with torch.no_grad():
        error = (student.kernel(STEPS) - target(name).kernel(STEPS)).abs().max()
        return float(error), float((student.b * student.c).abs().sum())


def in_decimals(name: str) -> tuple[float, float]:
    """The same for as many modes as steps, by elimination with many digits."""
    modes = fitted(name, STEPS, steps=STEPS, ridge=0.0).modes().tolist()
    with localcontext() as context:
        context.prec = DIGITS
        wanted = [Decimal(v) for v in target(name).kernel(STEPS).tolist()]
        powers = [[Decimal(mode) ** k for mode in modes] for k in range(STEPS)]
        found = solved([[*row, v] for row, v in zip(powers, wanted, strict=True)])
        sums = [sum(p * c for p, c in zip(row, found, strict=True)) for row in powers]
        error = max(abs(s - v) for s, v in zip(sums, wanted, strict=True))
        return float(error), float(sum(abs(c) for c in found))


def solved(rows: list[list[Decimal]]) -> list[Decimal]:
    """The solution of a square system whose rows end with their right-hand sides."""
    count = len(rows)
    for at in range(count):
        best = max(range(at, count), key=lambda row: abs(rows[row][at]))
        rows[at], rows[best] = rows[best], rows[at]
        head = rows[at]
        for row in rows[at + 1 :]:
            factor = row[at] / head[at]
            row[at:] = [a - factor * b for a, b in zip(row[at:], head[at:], strict=True)]
    found = [Decimal(0)] * count
    for at in reversed(range(count)):
        known = sum(rows[at][k] * found[k] for k in range(at + 1, count))
        found[at] = (rows[at][-1] - known) / rows[at][at]
    return found


def on_the_circle(kernel: Tensor) -> tuple[float, float]:
    """The same for the roots of unity, which the proof does not consider."""
    powers = vandermonde(roots_of_unity(STEPS), STEPS).flip(-1)  # (N,k): lambda^0 … lambda^(k-1)
    coefficients = powers.conj() @ kernel.to(powers.dtype) / STEPS
    error = ((powers.mT @ coefficients).real - kernel).abs().max()
    return float(error), float(coefficients.abs().sum())


def run(effort: Effort) -> Outcome:
    """Errors and coefficients by size, then exactly."""
    errors: dict[str, tuple[tuple[int, ...], list[float]]] = {}
    weights: dict[str, tuple[tuple[int, ...], list[float]]] = {}
    numbers: list[Number] = []
    exact: list[float] = []
    for at, (name, told) in enumerate(KERNELS.items()):
        found = [in_float64(name, size) for size in SIZES]
        errors[told], weights[told] = ((SIZES, list(v)) for v in zip(*found, strict=True))
        error, sum_of = in_decimals(name)
        exact.append(error)
        circle = on_the_circle(target(name).kernel(STEPS))
        numbers += [
            Number(f"{told}: sup error, m = {STEPS}, {DIGITS} digits", error, 0),
            Number(f"{told}: sum of |c|, m = {STEPS}, {DIGITS} digits", sum_of),
            Number(f"{told}: sup error, m = {STEPS}, float64", found[-1][0]),
            Number(f"{told}: sum of |c|, m = {STEPS}, float64", found[-1][1]),
            Number(f"{told}: sup error, roots of unity, float64", circle[0]),
            Number(f"{told}: sum of |c|, roots of unity", circle[1]),
        ]
        effort.tick(at + 1, len(KERNELS))
    largest = max(float(n.measured) for n in numbers if "sum of |c|" in n.name)
    stuck = max(values[-1] for _, values in errors.values())
    return Outcome(
        holds=max(exact) < EXACT,
        reason=f"with m = T = {STEPS} real modes every kernel is met within {max(exact):.1e}, at "
        f"the price of coefficients that add up to {largest:.1e}; in float64, where those cannot "
        f"be held, the delay stays {stuck:.2g} away, while roots of unity reach rounding",
        numbers=tuple(numbers),
        settings={"T": STEPS, "m": SIZES, "modes": "Chebyshev nodes of (0, 1)", "digits": DIGITS},
        figure=_figure(errors, weights),
    )


def _figure(errors: dict[str, tuple], weights: dict[str, tuple]) -> Figure:
    figure, (left, right) = panels("error over T = 64 steps", "growth of the coefficients")
    lines(left, errors, x="m", y="sup error, float64", logs="xy", marker="o", markersize=3)
    lines(right, weights, x="m", y="sum of |c|", logs="xy", marker="o", markersize=3)
    for axes in (left, right):
        axes.set_xscale("log", base=2)
    return figure


ROW = Row(
    id="U-P3.2",
    title="Sums of exponentials",
    claim="a single state-space layer approximates any convolution kernel over T steps",
    run=run,
)
