"""O-L6: ring sampling is uniform on the ring between two circles."""

from __future__ import annotations

import math

import torch
from matplotlib.figure import Figure
from torch import Tensor

from examples.reproduce.drawing import lines, panels
from examples.reproduce.row import Effort, Number, Outcome, Row
from examples.reproduce.vandermonde import ring
from memaudit_ssm import LRU

RINGS = ((0.0, 1.0), (0.4, 0.8), (0.95, 1.0), (0.99, 1.0))
COUNT = 100_000
#: Cells of equal area in which the eigenvalues are counted: radii times angles.
CELLS = (8, 16)
#: A uniform sample fails one test in this many; all tests of the row share it.
LEVEL = 1e-3


def kolmogorov(share: Tensor) -> float:
    """The p-value of the Kolmogorov-Smirnov test of numbers that should be uniform on [0, 1]."""
    count = len(share)
    ordered = share.sort().values
    steps = torch.arange(count + 1, dtype=torch.float64) / count
    distance = float(torch.maximum((steps[1:] - ordered).max(), (ordered - steps[:-1]).max()))
    scaled = distance * (math.sqrt(count) + 0.12 + 0.11 / math.sqrt(count))
    if scaled < 0.2:  # the series below needs many terms there, and is 1 to ten digits
        return 1.0
    terms = ((-1) ** (k - 1) * math.exp(-2 * (k * scaled) ** 2) for k in range(1, 101))
    return min(1.0, max(0.0, 2 * sum(terms)))


def pearson(area: Tensor, angle: Tensor) -> float:
    """The p-value of the chi-squared test of equally many in every cell of equal area."""
    rows, columns = CELLS
    at = (area * rows).long().clamp(0, rows - 1) * columns
    at += (angle * columns).long().clamp(0, columns - 1)
    found = torch.bincount(at, minlength=rows * columns).double()
    expected = len(area) / len(found)
    statistic = float(((found - expected) ** 2 / expected).sum())
    half = torch.tensor([(len(found) - 1) / 2, statistic / 2], dtype=torch.float64)
    return float(torch.special.gammaincc(half[0], half[1]))


def shares(modes: Tensor, radii: tuple[float, float]) -> tuple[Tensor, Tensor]:
    """The share of the ring's area inside |lambda|, and of the turn before its angle."""
    low, high = radii
    area = (modes.abs().double() ** 2 - low**2) / (high**2 - low**2)
    return area, (modes.angle().double() / math.tau) % 1.0


def tested(modes: Tensor, radii: tuple[float, float]) -> dict[str, float]:
    """The p-values of radius, angle, and both together."""
    area, angle = shares(modes, radii)
    return {"radius": kolmogorov(area), "angle": kolmogorov(angle), "both": pearson(area, angle)}


def run(effort: Effort) -> Outcome:
    """Two samplers on four rings, and one that is known to be wrong."""
    draw = torch.Generator().manual_seed(effort.seed)
    found: dict[str, dict[str, float]] = {}
    kept: dict[str, Tensor] = {}
    for radii in RINGS:
        name = f"T({radii[0]:g}, {radii[1]:g})"
        kept[name] = ring(COUNT, radii=radii, generator=draw)
        found[f"{name}, Lemma 6"] = tested(kept[name], radii)
        with torch.no_grad():
            layer = LRU(1, COUNT, radii=radii, generator=draw).double()
            found[f"{name}, LRU layer"] = tested(layer.modes(), radii)
    even = torch.rand(2, COUNT, generator=draw, dtype=torch.float64)
    wrong = tested(torch.polar(even[0], math.tau * even[1]), (0.0, 1.0))
    smallest = min(p for tests in found.values() for p in tests.values())
    asked = LEVEL / sum(len(tests) for tests in found.values())
    numbers = [
        Number(f"{name}: p of {test}", p)
        for name, tests in found.items()
        for test, p in tests.items()
    ]
    numbers.append(Number("uniform radius instead: p of radius", wrong["radius"]))
    return Outcome(
        holds=smallest > asked and wrong["radius"] < asked,
        reason=f"the smallest of {len(numbers) - 1} p-values is {smallest:.3g}, above the level "
        f"{asked:.1e}; a uniform radius is not uniform on the disk, and has {wrong['radius']:.1e}",
        numbers=tuple(numbers),
        settings={"rings": RINGS, "samples": COUNT, "cells": CELLS, "level": asked},
        figure=_figure(kept),
    )


def _figure(kept: dict[str, Tensor]) -> Figure:
    figure, (plane, radius) = panels("eigenvalues", "share of the area inside |lambda|")
    for name in ("T(0.4, 0.8)", "T(0.95, 1)"):
        some = kept[name][:1500]
        plane.plot(some.real, some.imag, ".", markersize=2, label=name)
    plane.set_aspect("equal")
    plane.set_xlabel("real part", fontsize=9)
    plane.set_ylabel("imaginary part", fontsize=9)
    plane.tick_params(labelsize=8)
    plane.legend(fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5), markerscale=4)
    curves = {}
    for (name, modes), radii in zip(kept.items(), RINGS, strict=True):
        ordered = shares(modes, radii)[0].sort().values[::500]
        curves[name] = (ordered.tolist(), torch.linspace(0, 1, len(ordered)).tolist())
    lines(radius, curves, x="(|lambda|² - r_min²) / (r_max² - r_min²)", y="share of samples")
    return figure


ROW = Row(
    id="O-L6",
    title="Sampling on a ring",
    claim="exp(-nu + i theta) of Lemma 6 is uniform on the ring between r_min and r_max",
    run=run,
)
