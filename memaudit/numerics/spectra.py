"""From eigenvalues to spectra: distance to the boundary and time scale."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from memaudit.results import Spectrum, SpectrumPoint

#: How `at` begins where a whole recurrence was run until it came to rest without input.
AT_REST = "rest: zero input"
#: What `at` holds where it never came to rest.
NOT_SETTLED = "not settled"


def margin(eigenvalues: np.ndarray) -> float:
    """The distance of the slowest mode to the unit circle, min(1 - |lambda|)."""
    return float(1.0 - np.abs(eigenvalues).max())


def time_scale(eigenvalues: np.ndarray) -> float:
    """Steps in which the slowest mode falls to 1/e: -1 / log max |lambda|."""
    largest = float(np.abs(eigenvalues).max())
    if largest >= 1.0:
        return math.inf
    return 0.0 if largest == 0.0 else -1.0 / math.log(largest)


def point(at: str, eigenvalues: Any) -> SpectrumPoint:
    """The spectrum at one operating point."""
    values = _complex(eigenvalues)
    return SpectrumPoint(at, values, margin(values), time_scale(values))


def spectrum(
    *,
    layer: str,
    cell: str,
    parameterization: str,
    at: str,
    eigenvalues: Any,
    points: tuple[SpectrumPoint, ...] = (),
) -> Spectrum:
    """The spectrum of one layer from the eigenvalues of its step."""
    values = _complex(eigenvalues)
    return Spectrum(
        layer=layer,
        cell=cell,
        parameterization=parameterization,
        at=at,
        eigenvalues=values,
        margin=margin(values),
        time_scale=time_scale(values),
        count=len(values),
        points=points,
    )


def _complex(eigenvalues: Any) -> np.ndarray:
    """One flat array of complex numbers, from an array or a tensor on any device."""
    if hasattr(eigenvalues, "detach"):
        eigenvalues = eigenvalues.detach().cpu()
        eigenvalues = eigenvalues if eigenvalues.is_complex() else eigenvalues.double()
        eigenvalues = eigenvalues.numpy()
    return np.asarray(eigenvalues, dtype=np.complex128).ravel()
