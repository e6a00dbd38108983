"""`report.plot()`: which panels there are, what is drawn in them, and that nothing else happens."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from matplotlib.figure import Figure

from memaudit.errors import ArgumentError, MemauditError
from memaudit.memory.result import Status
from memaudit.recall.result import Decoding, Recall
from memaudit.spectrum.result import spectrum
from memaudit.testing import sample_reports
from memaudit.testing.report_format import NAMES, everywhere
from tests.handmade import curve, of_kind, power_law, report


def recall() -> Recall:
    read = Decoding(
        state="rnn",
        kind="state",
        numbers=8,
        used=8,
        inputs=1,
        values=np.exp(-0.1 * np.arange(64)),
        floor=0.01,
        capacity=7.5,
        half=6,
        samples=1000,
        exact=False,
        status=Status.OK,
    )
    return Recall(linear=(), decodings=(read,), lags=64, fed="noise", status=Status.OK)


def modes(layer: str = "rnn", **changes):
    fields = {"cell": "cell", "parameterization": "exp", "at": "rest"}
    return spectrum(layer=layer, eigenvalues=[0.9, 0.5 + 0.5j, 0.5 - 0.5j], **{**fields, **changes})


def whole():
    moved = sample_reports()["moved"]
    return replace(moved, memory={"heaviside": curve()}, spectrum=(modes(),), recall=recall())


def titles(figure: Figure) -> list[str]:
    return [axes.get_title() for axes in figure.axes]


def legend(figure: Figure, panel: int = 0) -> list[str]:
    box = figure.axes[panel].get_legend()
    return [text.get_text() for text in box.get_texts()]


def pixels(figure: Figure) -> bytes:
    return figure._repr_png_()  # type: ignore[attr-defined]


def test_a_panel_for_everything_that_was_measured_and_none_for_the_rest():
    every = ["Memory by lag", "Eigenvalues of one step", "E(β)", "Past inputs in the state"]
    assert titles(whole().plot()) == every
    assert titles(report(curve()).plot()) == every[:1]
    assert titles(report(curve(), spectrum=(modes(),)).plot()) == every[:2]


def test_memory_is_drawn_on_logarithmic_axes_with_its_verdict():
    figure = report(curve(), power_law("impulse")).plot()
    (axes,) = figure.axes
    assert (axes.get_xscale(), axes.get_yscale()) == ("symlog", "log")
    assert legend(figure) == [
        "heaviside: exponential, rate 0.05, horizon 139",
        "impulse: polynomial, exponent 0.5, horizon > 512",
    ]


def test_the_fit_lies_on_a_curve_that_is_one():
    (axes,) = report(curve()).plot().axes
    memory, fitted, horizon = axes.get_lines()
    assert np.allclose(memory.get_ydata(), np.exp(-0.05 * np.arange(1, 513)))
    assert np.allclose(
        fitted.get_ydata(), np.exp(-0.05 * np.asarray(fitted.get_xdata())), rtol=1e-3
    )
    assert (fitted.get_xdata()[0], fitted.get_xdata()[-1]) == (1, 512)
    assert list(horizon.get_xdata()) == [139, 139]
    (window,) = axes.patches
    assert (window.get_x(), window.get_width()) == (1, 511)


def test_a_floor_that_is_reached_is_drawn_and_a_far_one_is_not():
    noisy = curve(values=np.exp(-0.05 * np.arange(1, 513)) + 1e-6, floor=1e-6, horizon=None)
    (axes,) = report(noisy).plot().axes
    assert [line.get_linestyle() for line in axes.get_lines()][-1] == ":"
    (axes,) = report(curve(horizon=None)).plot().axes
    assert ":" not in [line.get_linestyle() for line in axes.get_lines()]


def test_queries_are_chosen_by_name():
    made = report(curve(), curve("impulse"), curve("reversed"))
    assert [word.split(":")[0] for word in legend(made.plot(queries=["reversed"]))] == ["reversed"]
    assert len(legend(made.plot(queries="impulse"))) == 1
    with pytest.raises(ArgumentError, match="no query 'impulze'; did you mean impulse"):
        made.plot(queries=["impulze"])


def test_what_shows_nothing_is_named():
    silent = of_kind("memoryless", "impulse", values=np.zeros(512))
    assert legend(report(curve(), silent).plot())[-1] == "nothing to see: impulse"
    (axes,) = report(silent).plot().axes
    assert axes.texts[0].get_text() == "no curve to draw"


def test_the_unit_circle_stands_round_the_eigenvalues():
    _, axes = report(curve(), spectrum=(modes(), modes("other"))).plot().axes
    (circle,) = axes.patches
    assert circle.get_radius() == 1.0
    assert axes.get_aspect() == 1.0
    assert legend(axes.figure, 1) == ["rnn, margin 1.0e-01", "other, margin 1.0e-01"]


def test_of_many_layers_the_first_and_the_last_are_named():
    figure = report(curve(), spectrum=tuple(modes(f"layers.{k}") for k in range(24))).plot()
    assert legend(figure, 1) == ["layers.0, margin 1.0e-01", "layers.23, margin 1.0e-01"]
    assert len(figure.axes[1].collections) == 24


def test_a_partial_report_says_so_in_the_title():
    assert report(curve(), complete=False).plot().get_suptitle() == "demo:lstm (partial report)"


@pytest.mark.parametrize("name", ["full", "layered", "deep", "moved", "partial", "empty"])
def test_every_report_can_be_drawn(name):
    assert pixels(sample_reports()[name].plot()).startswith(b"\x89PNG")


@pytest.mark.parametrize("name", [*NAMES.values(), r"$\frac{$", "$x$", "_hidden", "^_{}\\"])
def test_hostile_names_are_plain_text(name):
    figure = everywhere(sample_reports()["deep"], name).plot()
    assert pixels(figure).startswith(b"\x89PNG")
    assert len(legend(figure)) == 1


def test_neither_pyplot_nor_a_window_is_touched():
    code = (
        "import sys; from tests.handmade import curve, report; report(curve()).plot(); "
        "assert 'matplotlib.pyplot' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_without_matplotlib_the_error_says_what_to_install(monkeypatch):
    for module in [name for name in sys.modules if name.startswith("memaudit.writers.drawing")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MemauditError, match="matplotlib is not installed; pip install") as caught:
        report(curve()).plot()
    assert caught.value.code == "E_DEPENDENCY"
    assert caught.value.hint == 'pip install "memaudit[plot]"'


def test_equal_curves_lie_in_bands_and_their_fit_is_black():
    figure = report(*(curve(query) for query in ("a", "b", "c"))).plot()
    lines = [line for line in figure.axes[0].lines if not line.get_label().startswith("_")]
    assert [line.get_linewidth() for line in lines] == pytest.approx([5.4, 3.4, 1.4])
    fits = [line for line in figure.axes[0].lines if line.get_color() == "black"]
    assert len(fits) == 3


@pytest.mark.parametrize("most", [1.7e308, 1e-320])
def test_numbers_at_the_ends_of_what_there_is_are_drawn(most):
    moved = sample_reports()["moved"].stability
    errors = np.full(len(moved.curves[0].errors), most)
    edge = replace(moved, scale=most, curves=(replace(moved.curves[0], errors=errors),))
    loud = curve(values=most * np.exp(-0.05 * np.arange(1, 513)), floor=0.0)
    wide = curve("impulse", values=np.geomspace(1e-300, 1.7e308, 512))
    made = report(loud, wide, stability=edge, spectrum=(modes(),))
    assert pixels(made.plot()).startswith(b"\x89PNG")
