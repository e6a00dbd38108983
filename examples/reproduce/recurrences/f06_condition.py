"""O-F6: sparse inputs and many modes near the circle make the way back well conditioned."""

from __future__ import annotations

import math
from itertools import pairwise

import torch
from matplotlib.figure import Figure

from examples.reproduce.drawing import lines, panels
from examples.reproduce.row import Effort, Number, Outcome, Row
from examples.reproduce.vandermonde import ring, vandermonde
from memaudit.recall.linear import haar_basis

LENGTH = 512
SIZES = (32, 64, 128, 256, 512)
FUNCTIONS = (8, 16, 32, 64, 128)
RADII = (0.5, 0.9, 0.95, 0.99)
REPEATS = 3
#: (s_max / s_min)² of float64 means nothing beyond this.
RELIABLE = 28.0
#: A mean over a few draws may rise by this many decades where the claim is that it falls.
NOISE = 0.5


def log_condition(size: int, functions: int, radius: float, draw: torch.Generator) -> float:
    """log10 cond(ΩᵀΩ) of one draw, Ω = V Ψ; singular values, for ΩᵀΩ itself loses half of them."""
    matrix = vandermonde(ring(size, radii=(radius, 1.0), generator=draw), LENGTH)
    omega = matrix @ haar_basis(LENGTH, functions).to(matrix.dtype)
    values = torch.linalg.svdvals(omega)
    smallest = max(float(values[-1]), torch.finfo(values.dtype).tiny)
    return 2 * math.log10(float(values[0]) / smallest)


def table(effort: Effort) -> dict[tuple[float, int, int], float]:
    """Means over draws by inner radius, P and N, for N >= P: with fewer modes it is infinite."""
    draw = torch.Generator().manual_seed(effort.seed)
    wanted = [(r, p, n) for r in RADII for p in FUNCTIONS for n in SIZES if n >= p]
    found = {}
    for done, (r, p, n) in enumerate(wanted):
        drawn = [log_condition(n, p, r, draw) for _ in range(REPEATS)]
        found[r, p, n] = sum(drawn) / len(drawn)
        effort.tick(done + 1, len(wanted))
    return found


def rises(found: dict, along: int) -> list[tuple]:
    """Neighbours along radius (0), P (1) or N (2) where the condition does what it should not."""
    axis = ((RADII, -1), (FUNCTIONS, 1), (SIZES, -1))[along]
    bad = []
    for key, value in found.items():
        for a, b in pairwise(axis[0]):
            other = (*key[:along], b, *key[along + 1 :])
            if key[along] != a or other not in found:
                continue
            both_lost = min(value, found[other]) > RELIABLE
            # radius and N: the later must not be larger; P: not smaller
            if not both_lost and axis[1] * (found[other] - value) < -NOISE:
                bad.append((key, other))
    return bad


def run(effort: Effort) -> Outcome:
    """The table, and every place where it does not fall."""
    found = table(effort)
    bad = {name: rises(found, at) for at, name in enumerate(("r_min", "P", "N"))}
    numbers = [
        Number(f"r_min = {r:g}, P = {p}, N = {n}: log10 cond(ΩᵀΩ)", value)
        for (r, p, n), value in found.items()
    ]
    numbers += [
        Number(f"places where it goes the wrong way with {k}", len(v), 0) for k, v in bad.items()
    ]
    best, worst = found[0.99, 8, 512], found[0.5, 128, 128]
    return Outcome(
        holds=not any(bad.values()),
        reason=f"from {worst:.1f} (r_min = 0.5, P = 128, N = 128) to {best:.1f} (0.99, 8, 512); "
        + "; ".join(f"wrong way with {name}: {len(v)}" for name, v in bad.items())
        + f" of {len(found)} cells (more than {NOISE} decades)",
        numbers=tuple(numbers),
        settings={
            "L": LENGTH,
            "N": SIZES,
            "P": FUNCTIONS,
            "r_min": RADII,
            "draws": REPEATS,
            "basis": "the P coarsest Haar functions",
            "chosen": "the paper gives L only",
        },
        figure=_figure(found),
    )


def _figure(found: dict) -> Figure:
    figure, axes = panels(*(f"r_min = {r:g}" for r in RADII))
    for at, r in zip(axes, RADII, strict=True):
        curves = {
            f"P = {p}": (
                [n for n in SIZES if n >= p],
                [found[r, p, n] for n in SIZES if n >= p],
            )
            for p in FUNCTIONS
        }
        lines(at, curves, x="N", y="log10 cond(ΩᵀΩ)", logs="x", marker="o", markersize=3)
        at.axhline(RELIABLE, color="#888888", linestyle=":", linewidth=1)
        at.set_xscale("log", base=2)
        at.set_ylim(0, 40)
    return figure


ROW = Row(
    id="O-F6",
    title="Condition under sparsity",
    claim="log cond(ΩᵀΩ) falls as N grows, as P falls, and as r_min goes to 1",
    run=run,
)
