"""The HTML page in a real browser: quiet, alone, and with working switches."""

from __future__ import annotations

import pytest

from memaudit.reports.html_page import HtmlPage
from tests.handmade import report
from tests.reports.handmade_page import LAYERS, everything

OVERVIEW, FIRST = 0, 1
HORIZONS, CURVES = 4, 5


@pytest.fixture(scope="module")
def page() -> str:
    return HtmlPage().render(everything())


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
    chosen = figure(visited, "Curves of the layers")
    assert chosen.locator(".keys:visible button[data-name]").count() == LAYERS
    before = len(lines(visited, CURVES))
    chosen.get_by_role("button", name="none", exact=True).click()
    assert len(lines(visited, CURVES)) <= before - LAYERS


def test_hovering_tells_lag_and_values(visit, page):
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
    assert chosen.locator("table").is_hidden()
    chosen.get_by_text("Data table").click()
    table = chosen.locator("table")
    assert table.is_visible()
    values = everything().memory["heaviside"].values
    row = table.locator("tr", has=visited.page.get_by_role("rowheader", name="7", exact=True))
    assert row.locator("td").first.inner_text() == f"{values[6]:.6g}"


def test_the_axis_of_lags_is_switched_for_the_whole_section(visit, page):
    visited = visit(page)
    kind = "return c.getOption().xAxis[0].type"
    assert visited.chart(OVERVIEW, kind) == "log", "a power law is straight there"
    visited.page.locator("#memory").get_by_label("linear").check()
    assert [visited.chart(k, kind) for k in (OVERVIEW, FIRST)] == ["value", "value"]
    visited.page.locator("#memory").get_by_label("logarithmic").check()
    assert visited.chart(OVERVIEW, kind) == "log"
    assert visited.chart(CURVES, kind) == "value", "another section stays as it is"
    assert visited.errors == []


def test_another_view_has_its_own_legend(visit, page):
    visited = visit(page)
    chosen = figure(visited, "Complex plane")
    assert chosen.locator(".keys:visible button[data-name]").count() == 2 + LAYERS
    chosen.locator("select").select_option("layers.2")
    assert chosen.locator(".keys:visible").inner_text().split("\n")[-1] == "at rest"
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


def test_what_stands_beside_the_complex_plane_is_as_tall(visit, page):
    visited = visit(page)
    plane, column = (
        visited.page.locator(f"#spectrum .grid > {part}").bounding_box()
        for part in (".figure", ".column")
    )
    assert plane["y"] == column["y"]
    assert plane["height"] == pytest.approx(column["height"], abs=2)


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
    assert visited.page.locator("select:visible").count() > 0, "which view is seen is told"
    visited.page.emulate_media(media="screen")
    visited.page.set_viewport_size({"width": 1280, "height": 900})
    visited.page.evaluate("window.dispatchEvent(new Event('afterprint'))")
    assert visited.chart(OVERVIEW, width) == before
    assert visited.errors == []


def test_a_page_without_curves_has_no_plots_and_is_quiet(visit):
    visited = visit(HtmlPage().render(report()))
    assert visited.page.locator("figure").count() == 0
    assert "No curve was measured" in visited.page.locator("main").inner_text()
    assert visited.errors == []
