"""Names that want to be more than names: shown as they are, never run."""

from __future__ import annotations

import numpy as np
import pytest

from memaudit.report import Finding
from memaudit.sections import Axis, Column, Document, Figure, Line, Mark, Points, Section, Table
from memaudit.testing.laws import NAMES
from memaudit.writers.html import render_document
from tests.writers.documents import LAGS

EVIL = (
    "</script><script>window.ran=1</script><img src=x onerror='window.ran=2'>{b|x}<!-- $c1 "
    '"onmouseover="window.ran=3" \u2028</style>'
)
#: What every object of a script has.
OWN = ("hasOwnProperty", "__proto__", "constructor", "toString", "valueOf")
ALL = {**NAMES, "all at once": EVIL, **{name: name for name in OWN}}


def everywhere(name: str) -> Document:
    """A document in which everything is called so."""
    series = (
        Line(name, LAGS, np.exp(-0.01 * LAGS)),
        Points(name, LAGS[:3], LAGS[:3] / 10, (name,) * 3),
    )
    figure = Figure(name, Axis(name), Axis(name), series, (Mark(name, x=3.0),), caption=name)
    table = Table((Column(name, key=True, help=name), Column(name)), ((name, 1.0),), name, (name,))
    section = Section(name, name, name, (name,), (table,), (figure,))
    finding = Finding(name, name, "note", name, name, name)
    return Document(name, ((name, name),) * 2, (name,), (section,), (finding,), (), (name,), name)


def looked_at(visited) -> None:
    """Hover every plot and open every table: a name must stay one wherever it is shown."""
    for plot in visited.page.locator(".plot").all():
        plot.scroll_into_view_if_needed()
        box = plot.bounding_box()
        for share in (0.2, 0.5, 0.8):
            visited.page.mouse.move(box["x"] + share * box["width"], box["y"] + 0.5 * box["height"])
    visited.page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true; })")


@pytest.mark.parametrize("what", list(ALL))
def test_a_hostile_name_is_text(visit, what):
    visited = visit(render_document(everywhere(ALL[what])), width=390)
    looked_at(visited)
    assert visited.page.evaluate("window.ran") is None
    assert visited.page.locator("img").count() == 0
    assert visited.dialogs == []
    assert visited.errors == []
    assert len(visited.requests) == 1
    assert visited.page.evaluate("document.documentElement.scrollWidth") == 390


def test_a_tag_is_shown_letter_by_letter(visit, artefacts):
    visited = visit(render_document(everywhere(EVIL)))
    title = visited.page.locator("h1").inner_text()
    assert title.startswith("</script><script>window.ran=1</script><img src=x onerror=")
    legend = visited.page.locator(".keys button").all_inner_texts()
    assert any(name.startswith("</script><script>") for name in legend)
    visited.page.screenshot(path=artefacts / "hostile-1280.png", full_page=True)


def own_names() -> str:
    lines = tuple(Line(n, LAGS, np.exp(-0.01 * (k + 1) * LAGS)) for k, n in enumerate(OWN))
    dots = tuple(Points(n, LAGS[:9] / 9, LAGS[:9] / (k + 9)) for k, n in enumerate(OWN))
    figures = (
        Figure("Lines", Axis("lag"), Axis("y", log=True), lines),
        Figure("Points", Axis("x"), Axis("y"), dots, square=True),
    )
    return render_document(Document("x", sections=(Section("S", figures=figures),)))


def test_curves_called_like_parts_of_a_script_are_drawn_and_switched(visit):
    visited = visit(own_names())
    for title in ("Lines", "Points"):
        heading = visited.page.get_by_role("heading", name=title, exact=True)
        figure = visited.page.locator("figure", has=heading)
        drawn = figure.locator(".plot path")
        before = drawn.count()
        for name in OWN:
            button = figure.get_by_role("button", name=name, exact=True)
            button.click()
            visited.page.wait_for_timeout(100)
            assert button.get_attribute("aria-pressed") == "false"
            assert drawn.count() < before, f"{name} in {title} is gone"
            button.click()
            visited.page.wait_for_timeout(100)
            assert drawn.count() == before, f"{name} in {title} is back"
    looked_at(visited)
    assert visited.errors == []


def test_a_tooltip_has_the_names_and_not_the_keys(visit):
    visited = visit(own_names())
    plot = visited.page.locator(".plot").first
    plot.scroll_into_view_if_needed()
    plot.hover(position={"x": 300, "y": 150})
    tip = visited.page.locator(".tip:visible")
    tip.wait_for()
    assert all(name in tip.inner_text() for name in OWN)
