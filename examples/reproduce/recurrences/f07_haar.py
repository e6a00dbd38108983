"""O-F7 and O-F8: sparse inputs of 4096 steps are read back from few modes near the circle."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import Tensor

from examples.reproduce.drawing import lines, panels
from examples.reproduce.recurrences.reading import WAYS
from examples.reproduce.row import Effort, Number, Outcome, Row
from examples.reproduce.vandermonde import ring, vandermonde
from memaudit.recall.linear import haar_basis

LENGTH, FUNCTIONS = 4096, 32
SIZES = (32, 64, 128, 256)
#: Inner radius → the N from which the paper sees perfect reconstruction.
PRINTED = {0.95: 256, 0.99: 64}
PRECISIONS = {"float64": torch.complex128, "float32": torch.complex64}
#: Perfect: the worst relative error over all k and inputs is below this.
PERFECT = 1e-6
INPUTS = 4


@dataclass(frozen=True, slots=True)
class Run:
    """Worst relative error of u_{1:k} over the inputs, and the rank of Ω_k, at some steps k."""

    steps: list[int]
    errors: list[float]
    ranks: list[int]

    @property
    def worst(self) -> float:
        """Over all k."""
        return max(self.errors)


def read_along(modes: Tensor, basis: Tensor, u: Tensor, *, every: int) -> dict[tuple, Run]:
    """Step Ω_k and x_k side by side, read u_{1:k} = Ψ_k Ω_k^+ x_k, in both ways and precisions."""
    found = {}
    fed = torch.cat([basis, u], dim=1)
    for precision, dtype in PRECISIONS.items():
        lam, driven = modes.to(dtype)[:, None], fed.to(dtype)
        state = torch.zeros(len(modes), fed.shape[1], dtype=dtype)
        runs: dict[str, Run] = {way: Run([], [], []) for way in WAYS}
        for at in range(LENGTH):
            state = lam * state + driven[at]
            if (at + 1) % every == 0:
                for way in WAYS:
                    _look(runs[way], state, basis[: at + 1], u[: at + 1], way)
        found |= {(precision, way): run for way, run in runs.items()}
    return found


def _look(run: Run, state: Tensor, basis: Tensor, u: Tensor, way: str) -> None:
    if way == "real":
        state = torch.cat([state.real, state.imag])
    omega, x = state[:, :FUNCTIONS], state[:, FUNCTIONS:]
    left, values, right = torch.linalg.svd(omega, full_matrices=False)
    kept = values > max(omega.shape) * torch.finfo(values.dtype).eps * values[0]
    inverse = torch.where(kept, 1 / torch.where(kept, values, 1.0), 0.0)
    alpha = right.mH @ (inverse[:, None] * (left.mH @ x))
    found = basis @ (alpha.real if alpha.is_complex() else alpha).double()
    size = u.norm(dim=0).clamp(min=torch.finfo(u.dtype).tiny)
    run.steps.append(len(u))
    run.errors.append(float(((found - u).norm(dim=0) / size).max()))
    run.ranks.append(int(kept.sum()))


def enough(runs: dict[tuple, Run], radius: float, precision: str, way: str) -> int | None:
    """The smallest N from which on the reconstruction is perfect."""
    good = [runs[radius, n, precision, way].worst < PERFECT for n in SIZES]
    fits = [n for at, n in enumerate(SIZES) if all(good[at:])]
    return min(fits) if fits else None


def readings(effort: Effort, basis: Tensor, every: int) -> dict[tuple, Run]:
    """Inner radius, N, precision and way → what was read back."""
    draw = torch.Generator().manual_seed(effort.seed)
    u = basis @ torch.randn(FUNCTIONS, INPUTS, generator=draw, dtype=torch.float64)
    runs: dict[tuple, Run] = {}
    for radius in PRINTED:
        for n in SIZES:
            modes = ring(n, radii=(radius, 1.0), generator=draw)
            found = read_along(modes, basis, u, every=every)
            runs |= {(radius, n, *key): value for key, value in found.items()}
            effort.tick(len(runs), len(PRINTED) * len(SIZES) * 4)
    return runs


def run(effort: Effort) -> Outcome:
    """Both rings, all N, both ways and precisions."""
    every = effort.pick(quick=16, full=1)
    basis = haar_basis(LENGTH, FUNCTIONS)
    runs = readings(effort, basis, every)
    met = [runs[r, n, "float64", "complex"].worst < PERFECT for r, n in PRINTED.items()]
    short = runs[0.95, 64, "float64", "complex"].worst
    return Outcome(
        holds=all(met) and short > PERFECT,
        reason="float64, V^+ as written: "
        + "; ".join(
            f"T({r:g}, 1) perfect from N = {enough(runs, r, 'float64', 'complex')} "
            f"(worst error {runs[r, n, 'float64', 'complex'].worst:.1e} at {n})"
            for r, n in PRINTED.items()
        )
        + f", while T(0.95, 1) with N = 64 is off by {short:.2g}. In float32 they need "
        + " and ".join(str(enough(runs, r, "float32", "complex") or "over 256") for r in PRINTED),
        numbers=tuple(number for radius in PRINTED for number in _numbers(runs, radius)),
        settings=_settings(every),
        figure=_figure(runs, basis, effort.seed),
        scaled="" if every == 1 else f"every {every}th k is looked at, not every one",
    )


def _numbers(runs: dict[tuple, Run], radius: float) -> list[Number]:
    numbers = []
    for precision in PRECISIONS:
        for way in WAYS:
            least = enough(runs, radius, precision, way)
            told = PRINTED[radius] if (precision, way) == ("float64", "complex") else None
            name = f"T({radius:g}, 1), {precision}, {way}: smallest N that is perfect"
            numbers.append(Number(name, least or "more than 256", told))
    for n in SIZES:
        worst = runs[radius, n, "float64", "complex"].worst
        numbers.append(Number(f"T({radius:g}, 1), N = {n}: worst relative error", worst))
    return numbers


def _settings(every: int) -> dict[str, Any]:
    return {
        "L": LENGTH,
        "P": FUNCTIONS,
        "N": SIZES,
        "inputs": INPUTS,
        "k": f"every {every}",
        "perfect": PERFECT,
        "after a look": "from which error on it is perfect",
        "chosen": "the paper does not say its precision, nor from which error on it is perfect",
    }


def _figure(runs: dict[tuple, Run], basis: Tensor, seed: int) -> Figure:
    titles = [f"error, T({r:g}, 1), float64" for r in PRINTED] + ["ranks, T(0.95, 1), N = 256"]
    figure, axes = panels(*titles)
    for at, radius in zip(axes, PRINTED, strict=False):
        found = {f"N = {n}": runs[radius, n, "float64", "complex"] for n in SIZES}
        curves = {name: (run.steps, run.errors) for name, run in found.items()}
        lines(at, curves, x="k", y="relative error of u_1 … u_k", logs="y")
        at.set_ylim(1e-16, 10)
    omega = runs[0.95, 256, "float64", "complex"]
    some = omega.steps[:: max(1, len(omega.steps) // 16)]
    draw = torch.Generator().manual_seed(seed)
    matrix = vandermonde(ring(256, radii=(0.95, 1.0), generator=draw), LENGTH)
    # The last k columns are V_k: the newest input comes last.
    reached = [int(torch.linalg.matrix_rank(matrix[:, -k:])) for k in some]
    spanned = [int(torch.linalg.matrix_rank(basis[:k])) for k in some]
    ranks = {"V_k": (some, reached), "Ψ_k": (some, spanned), "Ω_k": (omega.steps, omega.ranks)}
    lines(axes[-1], ranks, x="k", y="rank", logs="y")
    axes[-1].lines[1].set_linestyle("--")
    axes[-1].legend(fontsize=7)
    return figure


ROW = Row(
    id="O-F7/F8",
    title="Sparse inputs of 4096 steps",
    claim="32 Haar functions over 4096 steps are read back perfectly from N = 256 modes of "
    "T(0.95, 1), and from N = 64 of T(0.99, 1)",
    run=run,
)
