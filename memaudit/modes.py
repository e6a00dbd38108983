"""The eigenvalues of one step of a recurrent layer, as adapters and probes report them."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

from memaudit.errors import clean
from memaudit.records import Complexes, Record, Unbounded

if TYPE_CHECKING:
    import numpy as np

#: A report file keeps the slowest modes only: a Mamba of 130 M parameters has 590,000.
MOST_STORED = 512
#: How `at` begins where a whole recurrence was run until it came to rest without input.
AT_REST = "rest: zero input"
#: The form of a weight of which nobody says how it makes its modes.
UNKNOWN = "unknown"
#: What `at` holds where it never came to rest.
NOT_SETTLED = "not settled"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class SpectrumPoint(Record):
    """The spectrum at one operating point of a layer whose eigenvalues depend on the data.

    `at` says which: "dt 50 %" is the median of the step size over the inputs. `eigenvalues` are
    those of one step in discrete time. `margin` is the smallest 1 - |lambda|, negative beyond
    the boundary; `time_scale` is -1 / log max |lambda| in steps, infinite on the boundary and
    beyond it.
    """

    at: str
    eigenvalues: Complexes
    margin: float
    time_scale: Unbounded

    def __repr__(self) -> str:
        scale = f"time scale {self.time_scale:.4g} steps"
        return f"{type(self).__name__}(at {clean(self.at)}: {scale})"

    @classmethod
    def of(cls, at: str, eigenvalues: Any) -> Self:
        """The point at which a step has these eigenvalues."""
        values = _complex(eigenvalues)
        return cls(at, values, margin(values), time_scale(values))

    def stored(self) -> Self:
        """Of many eigenvalues the slowest are kept."""
        return replace(self, eigenvalues=slowest_modes(self.eigenvalues, MOST_STORED))


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class LayerSpectrum(Record):
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
    eigenvalues: Complexes
    margin: float
    time_scale: Unbounded
    count: int
    points: tuple[SpectrumPoint, ...] = ()
    where: str = ""
    lyapunov: float | None = None
    lyapunov_interval: tuple[float, float] | None = None
    note: str = ""

    def __repr__(self) -> str:
        form = clean(self.parameterization)
        return (
            f"LayerSpectrum({clean(self.layer)}: {self.count} modes, {form}, at {clean(self.at)} "
            f"margin {self.margin:.3g}, time scale {self.time_scale:.4g} steps)"
        )

    @classmethod
    def of(
        cls,
        *,
        layer: str,
        cell: str,
        parameterization: str,
        at: str,
        eigenvalues: Any,
        points: tuple[SpectrumPoint, ...] = (),
    ) -> Self:
        """The spectrum of one layer from the eigenvalues of its step."""
        values = _complex(eigenvalues)
        return cls(
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

    def stored(self) -> Self:
        """Of many eigenvalues the slowest are kept."""
        return replace(self, eigenvalues=slowest_modes(self.eigenvalues, MOST_STORED))

    @property
    def place(self) -> str:
        """The layer, behind the part of a host that it stands in; a part of one layer once."""
        return place_of(self.layer, self.where)

    def slowest(self, *, input_ended: bool) -> tuple[float, float, str]:
        """Time scale, margin and operating point of the slowest mode.

        After the end of the input (`input_ended`) a recurrence that was seen to settle goes there.
        Where the step depends on the data, zero input to a model is none at its layers.
        """
        rest = (self.time_scale, self.margin, self.at)
        if input_ended and self.at.startswith(AT_REST):
            return rest
        points = [(point.time_scale, point.margin, point.at) for point in self.points]
        return min(rest, *points, key=lambda one: one[1]) if points else rest


#: How adapters make them.
point, spectrum = SpectrumPoint.of, LayerSpectrum.of


def place_of(layer: str, where: str) -> str:
    """The name of a layer behind that of the part of a host; a part of one layer once."""
    inside = not where or f"{layer}.".startswith(f"{where}.")
    return layer if inside else f"{where}.{layer}"


def margin(eigenvalues: np.ndarray) -> float:
    """The distance of the slowest mode to the unit circle, min(1 - |lambda|)."""
    import numpy as np

    return float(1.0 - np.abs(eigenvalues).max())


def time_scale(eigenvalues: np.ndarray) -> float:
    """Steps in which the slowest mode falls to 1/e: -1 / log max |lambda|."""
    import numpy as np

    largest = float(np.abs(eigenvalues).max())
    if largest >= 1.0:
        return math.inf
    return 0.0 if largest == 0.0 else -1.0 / math.log(largest)


def slowest_modes(eigenvalues: np.ndarray, most: int) -> np.ndarray:
    """The eigenvalues of largest modulus, in their order."""
    import numpy as np

    flat = np.asarray(eigenvalues, dtype=np.complex128).ravel()
    if len(flat) <= most:
        return flat
    return flat[np.sort(np.argsort(-np.abs(flat), kind="stable")[:most])]


def _complex(eigenvalues: Any) -> np.ndarray:
    """One flat array of complex numbers, from an array or a tensor on any device."""
    import numpy as np

    if hasattr(eigenvalues, "detach"):
        eigenvalues = eigenvalues.detach().cpu()
        eigenvalues = eigenvalues if eigenvalues.is_complex() else eigenvalues.double()
        eigenvalues = eigenvalues.numpy()
    return np.asarray(eigenvalues, dtype=np.complex128).ravel()
