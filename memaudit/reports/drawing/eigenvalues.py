"""Eigenvalues of one step in the complex plane, with the boundary."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from matplotlib import colormaps
from matplotlib.patches import Circle

from memaudit.reports.drawing.label import label
from memaudit.reports.placing import placed

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from memaudit.spectrum.result import LayerSpectrum as Spectrum

#: More layers than these are told by their colour, from the first to the last.
NAMED = 8
#: What lies further out is drawn at the edge of the picture by nobody: it would squeeze the rest.
FARTHEST = 3.0


def draw_eigenvalues(axes: Axes, spectra: tuple[Spectrum, ...]) -> None:
    """A colour a layer; on the circle a mode lasts for ever."""
    axes.set_title("Eigenvalues of one step")
    axes.set_xlabel("Re λ")
    axes.set_ylabel("Im λ")
    axes.add_patch(Circle((0, 0), 1.0, fill=False, color="black", lw=1.0))
    scale = colormaps["viridis"]
    farthest = 1.0
    for place, item in enumerate(spectra):
        values = np.asarray(item.eigenvalues, dtype=np.complex128)
        values = values[np.isfinite(values)]
        farthest = max(farthest, float(np.abs(values).max(initial=0.0)))
        colour = f"C{place}" if len(spectra) <= NAMED else scale(place / (len(spectra) - 1))
        told = len(spectra) <= NAMED or place in (0, len(spectra) - 1)
        where = placed(item.where, item.layer)
        part = f", {len(values)} of {item.count} modes" if len(values) < item.count else ""
        name = f"{label(where, limit=28)}, margin {item.margin:.1e}{part}" if told else "_"
        axes.scatter(values.real, values.imag, s=14, color=colour, alpha=0.7, lw=0, label=name)
    edge = 1.08 * min(farthest, FARTHEST)
    axes.set_xlim(-edge, edge)
    axes.set_ylim(-edge, edge)
    axes.set_aspect("equal")
    axes.axhline(0, color="black", lw=0.5, alpha=0.4)
    axes.axvline(0, color="black", lw=0.5, alpha=0.4)
    axes.legend(fontsize="small", loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
