"""What lies on what in a real browser: plots and tables on paper, names beside points."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from memaudit.sections import Axis, Document, Figure, Line, Points, Section
from memaudit.writers.html import render_document
from tests.writers.documents import document

BOXES = (
    "all => all.map(e => e.getBoundingClientRect()).map(b => [b.left, b.top, b.right, b.bottom])"
)


def apart(one: list[float], other: list[float]) -> bool:
    """Whether two boxes share nothing; letters may come as near as a pixel."""
    across = one[2] <= other[0] + 1 or other[2] <= one[0] + 1
    return across or one[3] <= other[1] + 1 or other[3] <= one[1] + 1


def test_on_paper_no_plot_is_larger_than_its_box(visit):
    visited = visit(render_document(document()))
    visited.page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    visited.page.set_viewport_size({"width": 688, "height": 1017})
    visited.page.emulate_media(media="print")
    heights = visited.page.locator(".plot:visible").evaluate_all(
        "all => all.map(e => [e.querySelector('svg').getBoundingClientRect().height,"
        " e.getBoundingClientRect().height])"
    )
    assert len(heights) == 3
    assert all(drawn <= box + 1 for drawn, box in heights), heights


@pytest.mark.parametrize("width", [1280, 390])
def test_names_of_points_lie_neither_on_each_other_nor_on_points(visit, width):
    betas = np.geomspace(0.02, 0.03, 6)
    sizes = np.geomspace(1e-4, 1.0, 30)
    names = tuple(f"format-{k}" for k in range(6))
    figure = Figure(
        "E(beta)",
        Axis("beta", log=True),
        Axis("error", log=True),
        (Line("recurrent", sizes, 3 * sizes), Points("formats", betas, 3 * betas, names)),
    )
    page = render_document(Document("x", sections=(Section("S", figures=(figure,)),)))
    visited = visit(page, width=width)
    boxes = visited.page.locator(".plot text", has_text="format-").evaluate_all(BOXES)
    assert len(boxes) >= 2
    assert all(apart(a, b) for a, b in combinations(boxes, 2)), boxes
    script = (
        "const s = c.getOption().series.find(s => s.id === 'points formats');"
        "return s.data.map(d => c.convertToPixel({ seriesId: s.id }, d.value))"
    )
    plot = visited.page.locator(".plot").bounding_box()
    for x, y in visited.chart(0, script):
        at = [plot["x"] + x - 4, plot["y"] + y - 4, plot["x"] + x + 4, plot["y"] + y + 4]
        assert all(apart(at, box) for box in boxes)
    assert visited.errors == []


def test_a_figure_without_anything_to_draw_leaves_the_page_quiet(visit):
    zeros = Figure("Z", Axis("lag"), Axis("y", log=True), (Line("a", np.arange(9), np.zeros(9)),))
    first, *others = document().sections
    section = Section("Memory", figures=(*first.figures, zeros))
    visited = visit(render_document(document(sections=(section, *others))))
    assert "Not drawn: there is nothing to see." in visited.page.locator("main").inner_text()
    visited.page.locator("#memory").get_by_label("logarithmic").check()
    assert visited.errors == []
