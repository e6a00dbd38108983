"""The page of a difference in a real browser."""

from __future__ import annotations

import numpy as np
import pytest
from memaudit.comparing import compare

from memaudit.reports.diff_html import diff_html
from tests.handmade import LAGS, curve
from tests.reports.handmade_page import everything


@pytest.fixture(scope="module")
def page() -> str:
    before = everything()
    faster = curve("heaviside", values=np.exp(-0.1 * LAGS), horizon=69)
    after = everything(memory={**before.memory, "heaviside": faster}, findings=before.findings[1:])
    return diff_html(compare(before, after), before, after, files=("a.json", "b.json"))


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_is_quiet_alone_and_fits(visit, page, artefacts, width, scheme):
    visited = visit(page, width=width, scheme=scheme)
    visited.page.screenshot(path=artefacts / f"diff-{width}-{scheme}.png", full_page=True)
    assert visited.errors == []
    assert len(visited.requests) == 1
    assert visited.page.evaluate("document.documentElement.scrollWidth") == width


def test_both_curves_lie_on_top_of_each_other_and_can_be_switched(visit, page):
    visited = visit(page)
    names = (
        "const names = memaudit.charts[place].views[0].names; return c.getOption().series"
        ".filter(s => s.type === 'line').map(s => names[s.name.slice(1)])"
    )
    assert visited.chart(0, names) == ["before", "after"]
    button = visited.page.locator("figure").first.get_by_role("button", name="before")
    button.click()
    assert visited.chart(0, "return c.getOption().legend[0].selected") == {"s0": False, "s1": True}


def test_what_changed_is_told(visit, page):
    told = visit(page).page.locator("main").inner_text()
    assert "139 → 69" in told
    assert "- gone" in told
    assert "1 of 3 queries" in told
