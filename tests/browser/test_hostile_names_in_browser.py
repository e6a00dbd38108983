"""Names that want to be more than names: shown as they are, never run."""

from __future__ import annotations

import numpy as np
import pytest
from memaudit.comparing import compare

from memaudit.reports.diff_html import diff_html
from memaudit.reports.html_page import HtmlPage
from memaudit.testing.laws import NAMES, everywhere
from tests.handmade import LAGS, curve, report
from tests.reports.handmade_page import everything, modes

EVIL = (
    "</script><script>window.ran=1</script><img src=x onerror='window.ran=2'>{b|x}<!-- $c1 "
    '"onmouseover="window.ran=3" \u2028</style>'
)
#: What every object of a script has.
OWN = ("hasOwnProperty", "__proto__", "constructor", "toString", "valueOf")
ALL = {**NAMES, "all at once": EVIL, **{name: name for name in OWN}}


def looked_at(visited) -> None:
    """Hover every plot and open every table: a name must stay one wherever it is shown."""
    for plot in visited.page.locator(".plot").all():
        plot.scroll_into_view_if_needed()
        box = plot.bounding_box()
        for share in (0.2, 0.5, 0.8):
            visited.page.mouse.move(box["x"] + share * box["width"], box["y"] + 0.5 * box["height"])
    visited.page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true; })")


@pytest.mark.parametrize("what", [name for name in ALL if name != "100 000 letters"])
def test_a_hostile_name_is_text(visit, what):
    visited = visit(HtmlPage().render(everywhere(everything(), ALL[what])), width=390)
    looked_at(visited)
    assert visited.page.evaluate("window.ran") is None
    assert visited.page.locator("img").count() == 0
    assert visited.dialogs == []
    assert visited.errors == []
    assert len(visited.requests) == 1
    assert visited.page.evaluate("document.documentElement.scrollWidth") == 390


def test_a_tag_is_shown_letter_by_letter(visit, artefacts):
    visited = visit(HtmlPage().render(everywhere(everything(), EVIL)))
    title = visited.page.locator("h1").inner_text()
    assert title.startswith("</script><script>window.ran=1</script><img src=x onerror=")
    legend = visited.page.locator(".keys button").all_inner_texts()
    assert any(name.startswith("</script><script>") for name in legend)
    visited.page.screenshot(path=artefacts / "hostile-1280.png", full_page=True)


def test_a_difference_of_hostile_reports_is_text(visit):
    before = everywhere(everything(), EVIL)
    after = everywhere(everything(findings=()), EVIL)
    visited = visit(diff_html(compare(before, after), before, after, files=(EVIL, EVIL)))
    looked_at(visited)
    assert visited.page.evaluate("window.ran") is None
    assert visited.errors == []
    assert len(visited.requests) == 1


def test_curves_called_like_parts_of_a_script_are_drawn_and_switched(visit):
    queries = [curve(name, values=np.exp(-0.01 * (k + 1) * LAGS)) for k, name in enumerate(OWN)]
    layers = {name: {"impulse": curve("impulse")} for name in OWN}
    spectra = tuple(modes(name) for name in OWN)
    visited = visit(HtmlPage().render(everything(**made(queries, layers, spectra))))
    for title in ("All queries", "Curves of the layers", "Complex plane"):
        figure = visited.page.locator(
            "figure", has=visited.page.get_by_role("heading", name=title, exact=True)
        )
        drawn = figure.locator(".plot path")
        before = drawn.count()
        for name in OWN:
            button = figure.get_by_role("button", name=name, exact=True)
            button.click()
            assert button.get_attribute("aria-pressed") == "false"
            assert drawn.count() < before, f"{name} in {title} is gone"
            button.click()
            assert drawn.count() == before, f"{name} in {title} is back"
    looked_at(visited)
    assert visited.errors == []


def test_a_tooltip_tells_the_names_and_not_the_keys(visit):
    visited = visit(HtmlPage().render(report(*(curve(name) for name in OWN))))
    plot = visited.page.locator(".plot").first
    plot.scroll_into_view_if_needed()
    plot.hover(position={"x": 300, "y": 150})
    tip = visited.page.locator(".tip:visible")
    tip.wait_for()
    assert all(name in tip.inner_text() for name in OWN)


def made(queries, layers, spectra) -> dict:
    return {"memory": {c.query: c for c in queries}, "layers": layers, "spectrum": spectra}
