"""From signed readings to a memory curve: norms, supremum over probes, numerical floor."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from memaudit.numerics.envelope import SIGNAL_OVER_FLOOR

#: How |reading| / norm(x) is taken; see `normalizer` and `magnitude`.
NORMALIZATIONS = {
    "iatn": "|y|_inf / |x|_inf, supremum over x",
    "stablessm": "|y|_inf / (|x|_inf + 1), supremum over x",
    "universal": "|y|_2 at x = 1",
    "script": "|y|_2 at one random x, not normalised",
}
#: Probes within this factor of the supremum count as attaining it; the quietest is named.
TIE = 1 - 1e-6
#: The supremum sits at the edge when the outermost amplitudes exceed the others by this much.
EDGE_EXCESS = 1.05
#: Superposition holds up to this many roundings of the largest answer, one more for every step
#: that may have added one, and up to this share of the largest reading: a small nonlinear memory
#: must not hide behind a large present answer.
LINEAR_ROUNDINGS, LINEAR_SHARE = 100.0, 1e-3
#: With coarser numbers than this, superposition proves nothing.
COARSEST_LINEAR = 1e-5


@dataclass(frozen=True, slots=True)
class Supremum:
    """The largest value over probes at every lag, its floor, and the median over probes.

    `holder` is the probe that attains it at the last lag above the floor.
    """

    values: torch.Tensor
    median: torch.Tensor
    floor: float
    holder: int | None = None


def normalizer(x: torch.Tensor, normalization: str) -> torch.Tensor:
    """What a reading for the probe x (P,D) is divided by."""
    size = x.abs().amax(-1)
    if normalization == "iatn":
        return size
    return size + 1 if normalization == "stablessm" else torch.ones_like(size)


def magnitude(readings: torch.Tensor, normalization: str) -> torch.Tensor:
    """Size of vector readings (P,n,M) as (P,n): the worst output, or the Euclidean norm."""
    if normalization in ("iatn", "stablessm"):
        low, high = readings.aminmax(dim=-1)  # no copy of the readings, unlike abs().amax()
        return torch.maximum(-low, high)
    return torch.linalg.vector_norm(readings, dim=-1)


def rounded_outputs(outputs: int, normalization: str) -> float:
    """How many times one output's rounding the `magnitude` of that many rounded outputs can be."""
    return 1.0 if normalization in ("iatn", "stablessm") else math.sqrt(outputs)


def supremum(values: torch.Tensor, floors: torch.Tensor) -> Supremum:
    """Largest of the values (P,n) that stand out of their own floor (P,).

    A probe of small amplitude has a high floor, because the answer is divided by a small norm;
    its noise must not hide what larger probes still show. Where none stands out the quietest
    probe speaks. The floor of the result is the highest among the probes that attain it: below,
    the supremum is not known.
    """
    audible = values > SIGNAL_OVER_FLOOR * floors[:, None]
    heard = torch.where(audible, values, torch.zeros_like(values))
    top = heard.amax(0)
    attains = audible & (heard >= TIE * top)
    quietest = torch.where(attains, floors[:, None], torch.inf).amin(0)
    any_heard = audible.any(0)
    quiet_row = values[int(torch.argmin(floors))]
    median = values.quantile(0.5, dim=0)
    if not bool(any_heard.any()):
        return Supremum(quiet_row, median, float(floors.amin()))
    last = int(any_heard.nonzero()[-1])
    holder = int(heard[:, last].argmax())
    floor = float(quietest[any_heard].amax())
    return Supremum(torch.where(any_heard, top, quiet_row), median, floor, holder)


def linear_supremum(basis: torch.Tensor, floors: torch.Tensor) -> Supremum:
    """The exact supremum of a linear model: sum over inputs of |reading| (D,n,M).

    sup over |x|_inf <= 1 of |sum_i x_i r_i| = sum_i |r_i|, reached at x = sign(r).
    """
    total = basis.abs().sum(0).amax(-1)
    return Supremum(total, basis.abs().amax(-1).quantile(0.5, dim=0), float(floors.sum()))


def superposition_residual(
    readings: torch.Tensor, x: torch.Tensor, basis: torch.Tensor
) -> torch.Tensor:
    """Largest deviation of each reading (P,n,M) from the sum of its basis readings (D,n,M)."""
    predicted = torch.einsum("pd,dnm->pnm", x, basis)
    return (readings - predicted).abs().flatten(1).amax(1)


def at_edge(values: torch.Tensor, amplitude: torch.Tensor, floors: torch.Tensor) -> bool:
    """Whether the outermost amplitudes still raise the supremum over most of the curve."""
    outer = (amplitude == amplitude.max()) | (amplitude == amplitude.min())
    if bool(outer.all()):
        return False
    heard = torch.where(values > SIGNAL_OVER_FLOOR * floors[:, None], values, 0.0)
    inner, edge = heard[~outer].amax(0), heard[outer].amax(0)
    lags = torch.maximum(inner, edge) > 0
    if not bool(lags.any()):
        return False
    return bool((edge[lags] > EDGE_EXCESS * inner[lags]).double().mean() > 0.5)
