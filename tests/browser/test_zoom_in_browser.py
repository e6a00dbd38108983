"""Zooming in a real browser: what was selected is seen, on straight and logarithmic axes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from memaudit.writers.html import render_document
from tests.browser.test_page_in_browser import OVERVIEW, figure
from tests.writers.documents import curves, document


@pytest.fixture(scope="module")
def page() -> str:
    first, *others = document().sections
    return render_document(
        document(sections=(replace(first, figures=(curves(log=True),)), *others))
    )


def dragged(visited, plot) -> None:
    """A rectangle is drawn in a plot, from (200, 60) to (500, 200) in its pixels."""
    plot.scroll_into_view_if_needed()
    box = plot.bounding_box()
    visited.page.mouse.move(box["x"] + 200, box["y"] + 60)
    visited.page.mouse.down()
    visited.page.mouse.move(box["x"] + 500, box["y"] + 200, steps=8)
    visited.page.mouse.up()


def test_dragging_zooms_and_a_button_goes_back(visit, page):
    visited = visit(page)
    chosen = figure(visited, "All queries")
    assert chosen.locator(".reset").is_hidden()
    dragged(visited, chosen.locator(".plot"))
    extent = "return c.getModel().getComponent('xAxis').axis.scale.getExtent()"
    first, last = visited.chart(OVERVIEW, extent)
    assert 1 < first < last < 400
    chosen.locator(".reset").click()
    assert visited.chart(OVERVIEW, extent) == [1, 512]
    assert chosen.locator(".reset").is_hidden()


def test_a_dragged_rectangle_is_what_is_seen(visit, page):
    visited = visit(page)
    ends = (
        "const box = c.getModel().getComponent('grid').coordinateSystem.getRect();"
        "const at = (x, y) => c.convertFromPixel('grid', [x, y]);"
        "return [at(200, 200), at(500, 60), at(box.x, box.y + box.height), "
        "at(box.x + box.width, box.y)]"
    )
    (left, low), (right, high), _, _ = visited.chart(OVERVIEW, ends)
    assert low < 1e-3 < 1e-1 < high, "several powers of ten lie in the rectangle"
    dragged(visited, figure(visited, "All queries").locator(".plot"))
    _, _, (first, bottom), (last, top) = visited.chart(OVERVIEW, ends)
    assert [first, last] == pytest.approx([left, right], rel=0.03)
    assert [bottom, top] == pytest.approx([low, high], rel=0.1), "the lower end, too"
    assert visited.errors == []


def test_the_wheel_zooms_around_the_pointer_and_out_again(visit, page):
    visited = visit(page)
    plot = figure(visited, "All queries").locator(".plot")
    plot.scroll_into_view_if_needed()
    box = plot.bounding_box()
    at = [round(box["x"] + 300), round(box["y"] + 120)]  # a mouse stands on whole pixels
    visited.page.mouse.move(*at)
    under = f"return c.convertFromPixel('grid', [{at[0] - box['x']}, {at[1] - box['y']}])"
    extent = "return c.getModel().getComponent('yAxis').axis.scale.getExtent()"
    before, whole = visited.chart(OVERVIEW, under), visited.chart(OVERVIEW, extent)
    visited.page.keyboard.down("Control")
    visited.page.mouse.wheel(0, -50)
    near = plot.locator("xpath=..").locator(".reset:visible")
    near.wait_for()
    assert visited.chart(OVERVIEW, under) == pytest.approx(before, rel=1e-6)
    for _ in range(3):
        visited.page.mouse.wheel(0, 50)
    near.wait_for(state="detached")
    visited.page.keyboard.up("Control")
    assert visited.chart(OVERVIEW, extent) == whole


def test_another_theme_leaves_the_zoom_as_it_is(visit, page):
    visited = visit(page)
    dragged(visited, figure(visited, "All queries").locator(".plot"))
    extent = "return c.getModel().getComponent('xAxis').axis.scale.getExtent()"
    near = visited.chart(OVERVIEW, extent)
    visited.page.get_by_role("button", name="Light / dark").click()
    assert visited.chart(OVERVIEW, extent) == near != [1, 512]


def test_the_keyboard_zooms_moves_and_goes_back(visit, page):
    visited = visit(page)
    extent = "return c.getModel().getComponent('xAxis').axis.scale.getExtent()"
    plot = figure(visited, "All queries").locator(".plot")
    plot.focus()
    plot.press("+")
    near = visited.chart(OVERVIEW, extent)
    quarter = 512**0.25
    assert near == pytest.approx([quarter, 512 / quarter]), "half of a logarithmic axis"
    plot.press("ArrowRight")
    assert visited.chart(OVERVIEW, extent)[0] > near[0]
    plot.press("0")
    assert visited.chart(OVERVIEW, extent) == [1, 512]


def test_after_a_zoom_labels_are_round_and_the_old_tooltip_is_gone(visit, page):
    visited = visit(page)
    plot = figure(visited, "All queries").locator(".plot")
    plot.scroll_into_view_if_needed()
    plot.hover(position={"x": 300, "y": 150})
    visited.page.locator(".tip:visible").wait_for()
    for _ in range(2):  # the second time lies inside a power of ten
        dragged(visited, plot)
        visited.page.wait_for_timeout(400)
        assert visited.page.locator(".tip:visible").count() == 0
        told = visited.chart(
            OVERVIEW,
            "return [...c.getDom().querySelectorAll('text')].map(t => t.textContent)",
        )
        labels = [label for label in told if label[0].isdigit()]
        assert len(labels) >= 4
        assert max(len(label.lstrip("0.")) for label in labels) <= 4, labels
    figure(visited, "All queries").locator(".reset").click()
    assert visited.chart(OVERVIEW, "return c.getOption().xAxis[0].axisLabel.customValues") is None
    assert visited.errors == []
