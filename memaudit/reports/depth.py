"""What happens inside a model: memory layer by layer, and the spectra of its recurrences."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from rich.markup import escape
from rich.text import Text

from memaudit.errors import clean
from memaudit.memory.curve import longest_layers
from memaudit.reports import wording
from memaudit.reports.placing import placed
from memaudit.reports.tables import COLOURS, table

if TYPE_CHECKING:
    from rich.table import Table

    from memaudit.memory.result import Curve
    from memaudit.report import Report
    from memaudit.spectrum.result import LayerSpectrum as Spectrum


def depth_table(report: Report, *, ascii_only: bool) -> Table:
    """One row per layer of a model that ran as a whole: kind of decay and horizon by query."""
    queries = list(dict.fromkeys(q for curves in report.layers.values() for q in curves))
    longest = longest_layers(report.layers)
    made = table("layer", *(escape(clean(query)) for query in queries), ascii_only=ascii_only)
    for layer, curves in report.layers.items():
        cells = [_cell(curves.get(q), longest=longest.get(q) == layer) for q in queries]
        made.add_row(Text(clean(layer)), *cells)
    return made


def depth_line(report: Report) -> Text:
    """Which layer holds the longest memory, where the window tells."""
    longest = longest_layers(report.layers)
    held = [f"{clean(query)} {clean(layer)}" for query, layer in longest.items()]
    told = f"Longest (*): {', '.join(held)}" if held else "No layer stands out in this window"
    return Text(f"Kind of decay and horizon of the hidden state. {told}.")


def _cell(curve: Curve | None, *, longest: bool) -> Text:
    if curve is None:
        return Text(wording.NOTHING)
    kind = clean(curve.decay.kind)
    mark = " *" if longest else ""
    # A power law is one inside its window only.
    told = f"{kind} {wording.window(curve)}," if kind == "polynomial" else kind
    return Text(f"{told} {wording.horizon(curve)}{mark}", style=COLOURS.get(kind, ""))


def spectrum_table(spectra: tuple[Spectrum, ...], *, ascii_only: bool) -> Table:
    """One row per recurrent layer: modes, distance to the boundary, time scales in steps."""
    over_data = any(item.points for item in spectra)
    followed = any(item.lyapunov is not None for item in spectra)
    columns = ["recurrence", "cell", "form", "modes", "margin", "time scale"]
    columns += ["over data"] if over_data else []
    columns += ["Lyapunov"] if followed else []
    made = table(*columns, ascii_only=ascii_only)
    for item in spectra:
        place = placed(item.where, item.layer)
        row = [clean(place), clean(item.cell), clean(item.parameterization), str(item.count)]
        row += [f"{item.margin:.2e}", steps(item.time_scale)]
        row += [_range(item)] if over_data else []
        row += [_exponent(item, ascii_only=ascii_only)] if followed else []
        made.add_row(*map(Text, row))
    return made


def _exponent(item: Spectrum, *, ascii_only: bool) -> str:
    """The largest Lyapunov exponent, with half the width of its interval."""
    if item.lyapunov is None or item.lyapunov_interval is None:
        return wording.NOTHING
    low, high = item.lyapunov_interval
    return f"{item.lyapunov:.3g} {'+/-' if ascii_only else '±'} {(high - low) / 2:.1g}"


def steps(time_scale: float) -> str:
    """A time scale in steps; a mode on the boundary never decays."""
    return "infinite" if math.isinf(time_scale) else f"{time_scale:.4g}"


def _range(item: Spectrum) -> str:
    """The time scales at the outermost operating points, the shorter one first."""
    scales = sorted(point.time_scale for point in item.points)
    words = list(dict.fromkeys(map(steps, (*scales[:1], *scales[-1:]))))
    return " to ".join(words) or wording.NOTHING
