"""What lies on what in a real browser: plots and tables on paper, names beside points."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from memaudit.reports.html_page import HtmlPage
from memaudit.testing.samples import precision
from tests.handmade import LAGS, curve, of_kind, report
from tests.reports.handmade_page import everything

BOXES = (
    "all => all.map(e => e.getBoundingClientRect()).map(b => [b.left, b.top, b.right, b.bottom])"
)


def figure(visited, title: str):
    heading = visited.page.get_by_role("heading", name=title, exact=True)
    return visited.page.locator("figure", has=heading)


def apart(one: list[float], other: list[float]) -> bool:
    """Whether two boxes share nothing; letters may come as near as a pixel."""
    across = one[2] <= other[0] + 1 or other[2] <= one[0] + 1
    return across or one[3] <= other[1] + 1 or other[3] <= one[1] + 1


@pytest.mark.parametrize("layers", [1, 24])
def test_on_paper_no_plot_is_larger_than_its_box(visit, layers):
    whole = everything()
    visited = visit(HtmlPage().render(replace(whole, spectrum=whole.spectrum[:layers])))
    visited.page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    visited.page.set_viewport_size({"width": 688, "height": 1017})
    visited.page.emulate_media(media="print")
    heights = visited.page.locator(".plot:visible").evaluate_all(
        "all => all.map(e => [e.querySelector('svg').getBoundingClientRect().height,"
        " e.getBoundingClientRect().height])"
    )
    assert len(heights) > 5
    assert all(drawn <= box + 1 for drawn, box in heights), heights


@pytest.mark.parametrize("width", [1280, 390])
def test_names_of_number_formats_lie_neither_on_each_other_nor_on_points(visit, width):
    made = precision()
    betas = np.geomspace(0.02, 0.03, 6)
    near = tuple(
        replace(made.roundings[0], format=f"format-{k}", betas={"spectral": b, "max-abs": b})
        for k, b in enumerate(betas.tolist())
    )
    page = HtmlPage().render(everything(precision=replace(made, roundings=near)))
    visited = visit(page, width=width)
    names = figure(visited, "E(beta)").locator(".plot text", has_text="format-")
    boxes = names.evaluate_all(BOXES)
    assert len(boxes) >= 2
    assert all(apart(a, b) for a, b in combinations(boxes, 2)), boxes
    script = (
        "const s = c.getOption().series.find(s => s.id === 'formats');"
        "return s.data.map(d => c.convertToPixel({ seriesId: 'formats' }, d.value))"
    )
    place = visited.page.locator("figure").evaluate_all(
        "all => all.findIndex(f => f.querySelector('h3').textContent === 'E(beta)')"
    )
    plot = figure(visited, "E(beta)").locator(".plot").bounding_box()
    for x, y in visited.chart(place, script):
        at = [plot["x"] + x - 4, plot["y"] + y - 4, plot["x"] + x + 4, plot["y"] + y + 4]
        assert all(apart(at, box) for box in boxes)
    assert visited.errors == []


def test_a_horizon_of_zero_stands_at_a_place_called_zero(visit):
    layers = {f"l{k}": {"impulse": curve("impulse", horizon=h)} for k, h in enumerate((0, 39))}
    visited = visit(HtmlPage().render(everything(layers=layers)))
    told = figure(visited, "Horizon of every layer").locator(".plot text").all_text_contents()
    assert [word for word in told if word[0].isdigit()] == ["0", "10⁰", "10¹", "10²"]
    assert visited.errors == []


def test_a_query_of_which_nothing_is_heard_leaves_the_page_quiet(visit):
    silent = of_kind("memoryless", "reversed", values=np.zeros(len(LAGS)), floor=1e-18)
    visited = visit(HtmlPage().render(report(curve("impulse"), silent)))
    chosen = figure(visited, "reversed")
    assert "Not drawn: nothing rises above the numerical floor" in chosen.inner_text()
    assert chosen.locator("svg, .plot").count() == 0
    visited.page.locator("#memory").get_by_label("logarithmic").check()
    assert visited.errors == []
