"""The HTML page in a real browser: quiet, alone, and with working switches."""

from __future__ import annotations

import numpy as np
import pytest

from memaudit.sections import Document
from memaudit.writers.html import render_document
from tests.writers.documents import LAYERS, document

#: The figures of the page by their places.
OVERVIEW, PLANE, FORMATS = 0, 1, 2


@pytest.fixture(scope="module")
def page() -> str:
    return render_document(document())


def figure(visited, title: str):
    return visited.page.locator(
        "figure", has=visited.page.get_by_role("heading", name=title, exact=True)
    )


def lines(visited, place: int) -> list[str]:
    """The colours of the lines that are drawn."""
    script = "return [...c.getDom().querySelectorAll('path')].map(p => p.getAttribute('stroke'))"
    return [hue for hue in visited.chart(place, script) if hue]


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_is_quiet_alone_and_fits(visit, page, artefacts, width, scheme):
    visited = visit(page, width=width, scheme=scheme)
    assert (
        visited.page.locator("figure[data-ready=yes]").count()
        == visited.page.locator("figure").count()
    )
    inside = visited.page.evaluate("document.documentElement.scrollWidth")
    visited.page.screenshot(path=artefacts / f"report-{width}-{scheme}.png", full_page=True)
    assert visited.errors == []
    assert [url for url in visited.requests if not url.startswith("file:")] == []
    assert len(visited.requests) == 1
    assert inside == width


def test_a_click_on_the_legend_takes_a_curve_away_and_back(visit, page):
    visited = visit(page)
    button = figure(visited, "All queries").get_by_role("button", name="impulse")
    before = lines(visited, OVERVIEW)
    button.click()
    assert button.get_attribute("aria-pressed") == "false"
    hidden = lines(visited, OVERVIEW)
    assert len(hidden) < len(before)
    assert set(before) - set(hidden), "the colour of the curve is gone"
    button.press("Enter")
    assert button.get_attribute("aria-pressed") == "true"
    assert sorted(lines(visited, OVERVIEW)) == sorted(before)


def test_all_curves_of_a_long_legend_go_at_once(visit, page):
    visited = visit(page)
    chosen = figure(visited, "Complex plane")
    assert chosen.locator(".keys button[data-name]").count() == LAYERS + 2
    points = chosen.locator(".plot path")
    before = points.count()
    chosen.get_by_role("button", name="none", exact=True).click()
    assert points.count() <= before - LAYERS


def test_what_is_not_shown_is_off_until_its_name_is_pressed(visit, page):
    visited = visit(page)
    button = figure(visited, "All queries").get_by_role("button", name="spread")
    assert button.get_attribute("aria-pressed") == "false"
    before = len(lines(visited, OVERVIEW))
    button.click()
    assert button.get_attribute("aria-pressed") == "true"
    assert len(lines(visited, OVERVIEW)) > before
    assert visited.errors == []


def test_hovering_shows_lag_and_values(visit, page):
    visited = visit(page)
    plot = figure(visited, "All queries").locator(".plot")
    plot.scroll_into_view_if_needed()
    plot.hover(position={"x": 400, "y": 150})
    tip = visited.page.locator(".tip:visible")
    tip.wait_for()
    told = tip.inner_text()
    assert told.startswith("lag ")
    assert all(query in told for query in ("heaviside", "impulse", "reversed"))


def test_a_table_opened_shows_the_numbers_of_the_report(visit, page):
    visited = visit(page)
    chosen = figure(visited, "All queries")
    assert chosen.locator("table").first.is_hidden()
    chosen.get_by_text("Data tables").click()
    table = chosen.locator("table").first
    assert table.is_visible()
    row = table.locator("tr", has=visited.page.get_by_role("rowheader", name="7", exact=True))
    assert row.locator("td").first.inner_text() == f"{np.exp(-0.05 * 7):.6g}"


def test_the_axis_below_is_switched_for_the_whole_section(visit, page):
    visited = visit(page)
    kind = "return c.getOption().xAxis[0].type"
    assert [visited.chart(k, kind) for k in (OVERVIEW, FORMATS)] == ["value", "log"]
    visited.page.locator("#memory").get_by_label("logarithmic").check()
    assert visited.chart(OVERVIEW, kind) == "log"
    assert visited.chart(OVERVIEW, "return c.getOption().xAxis[0].min") == 1
    visited.page.locator("#stability").get_by_label("linear").check()
    assert visited.chart(FORMATS, kind) == "value"
    assert visited.chart(OVERVIEW, kind) == "log", "another section stays as it is"
    assert visited.errors == []


def test_dark_is_chosen_by_the_system_and_by_the_button(visit, page):
    visited = visit(page, scheme="dark")
    paper = "getComputedStyle(document.body).backgroundColor"
    label = "return c.getDom().querySelector('text').getAttribute('fill')"
    dark, drawn = visited.page.evaluate(paper), visited.chart(OVERVIEW, label)
    visited.page.get_by_role("button", name="Light / dark").click()
    assert visited.page.evaluate(paper) == "rgb(255, 255, 255)" != dark
    assert visited.chart(OVERVIEW, label) != drawn, "plots follow the page"
    visited.page.get_by_role("button", name="Light / dark").click()
    assert visited.page.evaluate(paper) == dark


def test_the_page_prints_light_with_its_plots_and_without_its_switches(visit, page, artefacts):
    visited = visit(page, scheme="dark")
    visited.page.emulate_media(media="print")
    assert visited.page.locator("nav").is_hidden()
    assert visited.page.locator("details.data").first.is_hidden()
    assert (
        visited.page.evaluate("getComputedStyle(document.body).backgroundColor")
        == "rgb(255, 255, 255)"
    )
    sizes = "return [...memaudit.charts].map(c => c.chart.getHeight())"
    assert min(visited.chart(OVERVIEW, sizes)) > 60
    printed = visited.page.pdf(path=artefacts / "report.pdf", format="A4")
    assert printed.startswith(b"%PDF")
    assert visited.errors == []


def test_what_goes_on_beyond_an_edge_fades_out_there(visit, page):
    visited = visit(page, width=390)
    links = visited.page.locator("nav ul")
    # The policy of the page forbids wait_for_function, which evaluates text: a selector waits.
    visited.page.locator('nav ul[data-more="right"]').wait_for()
    assert "gradient" in links.evaluate("e => getComputedStyle(e).maskImage")
    links.evaluate("e => { e.scrollLeft = 40; }")
    visited.page.locator('nav ul[data-more="left right"]').wait_for()
    links.evaluate("e => { e.scrollLeft = 9999; }")
    visited.page.locator('nav ul[data-more="left "]').wait_for()
    wide = visit(page)
    wide.page.locator('nav ul[data-more=""]').wait_for()


def test_captions_are_as_wide_as_what_is_seen_of_their_tables(visit, page):
    visited = visit(page, width=390)
    ends = visited.page.locator(".scroll:visible caption span:not(.quiet)").evaluate_all(
        "all => all.map(e => e.getBoundingClientRect().right)"
    )
    assert ends
    assert max(ends) <= 390


def test_plots_have_the_size_of_paper_while_they_are_printed(visit, page):
    visited = visit(page)
    width = "return c.getWidth()"
    before = visited.chart(OVERVIEW, width)
    visited.page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    assert 600 < visited.chart(OVERVIEW, width) < 688 < before
    visited.page.set_viewport_size({"width": 688, "height": 1017})
    visited.page.emulate_media(media="print")
    assert visited.page.evaluate("document.documentElement.scrollWidth") == 688, "nothing shrinks"
    assert visited.page.locator(".hint:visible, .reset:visible, footer:visible").count() == 0
    visited.page.emulate_media(media="screen")
    visited.page.set_viewport_size({"width": 1280, "height": 900})
    visited.page.evaluate("window.dispatchEvent(new Event('afterprint'))")
    assert visited.chart(OVERVIEW, width) == before
    assert visited.errors == []


def test_a_page_without_figures_is_quiet(visit):
    visited = visit(render_document(Document("demo:lstm")))
    assert visited.page.locator("figure").count() == 0
    assert "No findings" in visited.page.locator("main").inner_text()
    assert visited.errors == []
