"""The matplotlib figure: which panels there are, and what is drawn in them."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from matplotlib.figure import Figure as MatplotlibFigure

from memaudit.errors import ArgumentError, MemauditError
from memaudit.sections import Axis, Document, Figure, Line, Points, Section
from memaudit.writers.figure import figure
from tests.handmade import report
from tests.writers.documents import LAGS, LAYERS, document


def legend(made: MatplotlibFigure, panel: int = 0) -> list[str]:
    return [text.get_text() for text in made.axes[panel].get_legend().get_texts()]


def pixels(made: MatplotlibFigure) -> bytes:
    return made._repr_png_()  # type: ignore[attr-defined]


def of(*figures: Figure) -> Document:
    return Document("x", sections=tuple(Section("S", figures=(one,)) for one in figures))


def test_a_panel_for_the_first_figure_of_every_section():
    made = figure(document())
    assert [axes.get_title() for axes in made.axes] == ["All queries", "Complex plane", "E(beta)"]
    assert made.get_suptitle() == "demo:lstm"


def test_lines_marks_and_scales_are_those_of_the_document():
    axes = figure(document()).axes[0]
    assert (axes.get_xscale(), axes.get_yscale()) == ("linear", "log")
    first, _, dashed, horizon, *_ = axes.get_lines()
    assert np.allclose(first.get_ydata(), np.exp(-0.05 * LAGS))
    assert dashed.get_linestyle() == "--"
    assert list(horizon.get_xdata()) == [139, 139]
    assert legend(axes.figure) == ["heaviside", "impulse", "reversed", "floor", "window"]


def test_curves_on_each_other_are_seen():
    widths = [line.get_linewidth() for line in figure(document()).axes[0].get_lines()[:2]]
    assert widths == [2.5, 1.5]


def test_a_square_has_its_circles_and_names_the_first_and_the_last_of_many():
    axes = figure(document()).axes[1]
    assert [patch.get_radius() for patch in axes.patches] == [1.0, 0.9]
    assert axes.get_aspect() == 1.0
    assert len(axes.collections) == LAYERS
    assert legend(axes.figure, 1)[:2] == ["layers.0", "layers.23"]


def test_series_are_chosen_by_name():
    made = figure(document(), series=["impulse"])
    assert [axes.get_title() for axes in made.axes] == ["All queries"]
    assert legend(made)[0] == "impulse"
    assert len(figure(document(), series="reversed").axes) == 1
    with pytest.raises(ArgumentError, match="no query 'impulze'; did you mean impulse"):
        figure(document(), series=["impulze"])


def test_nothing_to_draw_is_said():
    zeros = Figure("Z", Axis("x"), Axis("y", log=True), (Line("a", LAGS, 0.0 * LAGS),))
    (axes,) = figure(of(zeros)).axes
    assert axes.texts[0].get_text() == "nothing to draw"
    assert pixels(figure(Document("x"))).startswith(b"\x89PNG")


def test_a_partial_report_says_so_in_the_title():
    made = figure(replace(document(), warnings=("PARTIAL REPORT",)))
    assert made.get_suptitle() == "demo:lstm (partial report)"


@pytest.mark.parametrize(
    "name", [r"$\frac{$", "$x$", "_hidden", "^_{}\\", "a\x1b\ud800", "x" * 999]
)
def test_hostile_names_are_plain_text(name):
    series = (
        Line(name, LAGS, np.exp(-0.01 * LAGS)),
        Points(name, LAGS[:2], LAGS[:2], (name, name)),
    )
    made = figure(of(Figure(name, Axis(name), Axis(name), series)))
    assert pixels(made).startswith(b"\x89PNG")
    assert len(legend(made)) == 2


@pytest.mark.parametrize("most", [1.7e308, 1e-320])
def test_numbers_at_the_ends_of_what_there_is_are_drawn(most):
    line = Line("a", LAGS, most * np.exp(-0.05 * LAGS))
    wide = Line("b", LAGS, np.geomspace(1e-300, 1.7e308, len(LAGS)))
    made = figure(of(Figure("F", Axis("x"), Axis("y", log=True), (line, wide))))
    assert pixels(made).startswith(b"\x89PNG")


def test_neither_pyplot_nor_a_window_is_touched():
    code = (
        "import sys; from memaudit.writers.figure import figure; "
        "from tests.writers.documents import document; figure(document()); "
        "assert 'matplotlib.pyplot' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_without_matplotlib_the_error_says_what_to_install(monkeypatch):
    monkeypatch.delitem(sys.modules, "memaudit.writers.figure", raising=False)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MemauditError, match="matplotlib is not installed; pip install") as caught:
        report().plot()
    assert caught.value.code == "E_DEPENDENCY"
    assert caught.value.hint == 'pip install "memaudit[plot]"'
