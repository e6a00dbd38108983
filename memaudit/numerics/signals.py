"""Probe vectors: the directions and amplitudes over which the supremum is searched."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

#: level → (exponents of the amplitudes 2^k, basis directions, sign directions, Gaussian ones).
LEVELS: dict[str, tuple[tuple[int, ...], int, int, int]] = {
    "quick": ((-6, 0, 6), 1, 1, 1),
    "standard": ((-6, -3, 0, 3, 6), 4, 2, 2),
    "thorough": (tuple(range(-6, 7)), 16, 8, 8),
}
#: What counts as zero input, beside a number: the vector that the model is at rest with.
BASELINES: dict[str, str] = {
    "zero": "no input at all",
    "natural": "a real input, such as the embedding of a token",
}
#: All basis vectors are fed once up to this width: they give a linear model's supremum exactly.
WIDEST_SWEEP = 128


@dataclass(frozen=True, slots=True)
class Probes:
    """Probe vectors x (P,D), the size of each, and how many at the front sweep the basis."""

    x: torch.Tensor
    amplitude: torch.Tensor
    sweep: int


def seeded(seed: int) -> torch.Generator:
    """A generator of its own: the global one is nobody's business here."""
    return torch.Generator().manual_seed(seed)


def probe_vectors(
    width: int,
    *,
    level: str,
    generator: torch.Generator,
    amplitudes: tuple[float, ...] | None = None,
    sweep: bool = True,
    natural: torch.Tensor | None = None,
) -> Probes:
    """The basis at the middle amplitude, then every direction at every amplitude, in float64.

    `sweep` False leaves the basis out; a linear model then has no exact supremum.

    Directions have sup-norm 1: ones, minus ones, basis, random signs, Gaussian. `natural` rows
    (real embeddings) join at their own size.
    """
    exponents, basis, signs, gaussian = LEVELS[level]
    sizes = amplitudes or tuple(2.0**k for k in exponents)
    rows = _directions(width, basis, signs, gaussian, generator)
    # Sizes vary slowest, from the one next to 1 outwards: an interrupted audit has whole circles.
    sizes = tuple(sorted(sizes, key=lambda size: abs(math.log(size))))
    swept = torch.eye(width if sweep and width <= WIDEST_SWEEP else 0, width, dtype=torch.float64)
    x = torch.cat([sizes[0] * swept, *(size * rows for size in sizes)])
    amplitude = [torch.full((len(swept),), sizes[0])]
    amplitude += [torch.full((len(rows),), size) for size in sizes]
    if natural is not None:
        natural = natural.to("cpu", torch.float64)
        x = torch.cat([x, natural])
        amplitude.append(torch.ones(len(natural)))
    return Probes(x, torch.cat(amplitude).to(torch.float64), len(swept))


def few_probes(width: int, generator: torch.Generator) -> Probes:
    """One random direction of sup-norm 1 at a few sizes, for models of which a step costs much."""
    row = torch.randn(1, width, generator=generator, dtype=torch.float64)
    sizes = torch.tensor([1.0, 2.0**3, 2.0**6], dtype=torch.float64)
    return Probes(sizes[:, None] * (row / row.abs().amax()), sizes, 0)


def ones_probe(width: int) -> Probes:
    """The single vector x = 1 of the Universal paper."""
    return Probes(torch.ones(1, width, dtype=torch.float64), torch.ones(1, dtype=torch.float64), 0)


def random_probe(width: int, generator: torch.Generator) -> Probes:
    """One Gaussian vector, as the authors' public script draws it."""
    x = torch.randn(1, width, dtype=torch.float64, generator=generator)
    return Probes(x, torch.ones(1, dtype=torch.float64), 0)


def pulse(x: torch.Tensor, *, on: int, length: int) -> torch.Tensor:
    """Sequences (P,length,D) that hold x for the first `on` steps and are zero afterwards."""
    sequence = x.new_zeros(len(x), length, x.shape[-1])
    sequence[:, :on] = x[:, None]
    return sequence


def lag_grid(horizon: int, *, dense: int = 20, per_octave: int = 6) -> torch.Tensor:
    """Lags 0 … horizon-1: all of the first ones, then geometric, always with the last one."""
    lags = set(range(min(dense, horizon)))
    value = float(dense)
    while value < horizon:
        lags.add(int(value))
        value *= 2 ** (1 / per_octave)
    lags.add(horizon - 1)
    return torch.tensor(sorted(lags))


def _directions(
    width: int, basis: int, signs: int, gaussian: int, generator: torch.Generator
) -> torch.Tensor:
    ones = torch.ones(1, width, dtype=torch.float64)
    if width == 1:
        return torch.cat([ones, -ones])
    picked = torch.linspace(0, width - 1, min(basis, width)).round().long()
    flips = torch.randint(0, 2, (signs, width), generator=generator, dtype=torch.int64)
    bell = torch.randn(gaussian, width, generator=generator, dtype=torch.float64)
    bell = bell / bell.abs().amax(1, keepdim=True)
    rows = [ones, -ones, torch.eye(width, dtype=torch.float64)[picked], 2.0 * flips - 1.0, bell]
    return torch.cat(rows)
