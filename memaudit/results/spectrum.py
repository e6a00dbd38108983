"""The eigenvalues of a recurrent layer's step, and what follows from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from memaudit.errors import clean
from memaudit.records import Record, plain
from memaudit.results.endless import bounded, unbounded
from memaudit.results.reading import alike, floats, listed

#: A report file keeps the slowest modes only: a Mamba of 130 M parameters has 590,000.
MOST_STORED = 512


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class SpectrumPoint(Record):
    """The spectrum at one operating point of a layer whose eigenvalues depend on the data.

    `at` says which: "dt 50 %" is the median of the step size over the inputs. `eigenvalues` are
    those of one step in discrete time. `margin` is the smallest 1 - |lambda|, negative beyond
    the boundary; `time_scale` is -1 / log max |lambda| in steps, infinite on the boundary and
    beyond it.
    """

    at: str
    eigenvalues: np.ndarray
    margin: float
    time_scale: float

    def __repr__(self) -> str:
        scale = f"time scale {self.time_scale:.4g} steps"
        return f"{type(self).__name__}(at {clean(self.at)}: {scale})"

    def to_dict(self) -> dict[str, Any]:
        """Plain values; of many eigenvalues the slowest are kept."""
        return {
            "at": self.at,
            "eigenvalues": stored(self.eigenvalues),
            "margin": float(self.margin),
            "time_scale": bounded(self.time_scale),
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """The inverse of `to_dict`, as far as eigenvalues were kept."""
        return cls(**{**data, **restored(data)})


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Spectrum(Record):
    """The spectrum of one recurrent layer; `points` holds it at further operating points.

    `parameterization` is the function that makes the eigenvalue from the raw weight, by its name
    among the reparameterizations. `count` is how many eigenvalues there are; a report file keeps
    the slowest ones only. `at`, `margin` and `time_scale` are those of `SpectrumPoint`.
    `lyapunov` is the largest Lyapunov exponent per step along a trajectory, the mean rate at which
    nearby states part (positive) or meet (negative), None when none was run; `lyapunov_interval`
    spans two standard errors around it. `note` says what else there is to know.
    """

    layer: str
    cell: str
    parameterization: str
    at: str
    eigenvalues: np.ndarray
    margin: float
    time_scale: float
    count: int
    points: tuple[SpectrumPoint, ...] = ()
    where: str = ""
    lyapunov: float | None = None
    lyapunov_interval: tuple[float, float] | None = None
    note: str = ""

    def __repr__(self) -> str:
        made = clean(self.parameterization)
        return (
            f"Spectrum({clean(self.layer)}: {self.count} modes, {made}, at {clean(self.at)} "
            f"margin {self.margin:.3g}, time scale {self.time_scale:.4g} steps)"
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain values; of many eigenvalues the slowest are kept."""
        return {
            "layer": self.layer,
            "cell": self.cell,
            "parameterization": self.parameterization,
            "at": self.at,
            "eigenvalues": stored(self.eigenvalues),
            "margin": float(self.margin),
            "time_scale": bounded(self.time_scale),
            "count": self.count,
            "points": [point.to_dict() for point in self.points],
            "where": self.where,
            "lyapunov": self.lyapunov,
            "lyapunov_interval": plain(self.lyapunov_interval),
            "note": self.note,
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """The inverse of `to_dict`, as far as eigenvalues were kept."""
        points = tuple(SpectrumPoint.from_dict(item) for item in listed(data.get("points", ())))
        span = data.get("lyapunov_interval")
        more = {
            "points": points,
            "lyapunov_interval": None if span is None else tuple(listed(span)),
        }
        return cls(**{**data, **restored(data), **more})


def stored(eigenvalues: np.ndarray) -> dict[str, list[float]]:
    """The slowest eigenvalues, in their order, as real and imaginary parts."""
    flat = np.asarray(eigenvalues, dtype=np.complex128).ravel()
    if len(flat) > MOST_STORED:
        slowest = np.argsort(-np.abs(flat), kind="stable")[:MOST_STORED]
        flat = flat[np.sort(slowest)]
    return {"real": flat.real.tolist(), "imag": flat.imag.tolist()}


def restored(data: dict[str, Any]) -> dict[str, Any]:
    """Eigenvalues and time scale as they were before `to_dict`."""
    parts = data["eigenvalues"]
    real, imag = floats(parts["real"]), floats(parts["imag"])
    alike(real=real, imaginary=imag)
    return {"eigenvalues": real + 1j * imag, "time_scale": unbounded(data["time_scale"])}
