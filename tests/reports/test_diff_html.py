"""The page of a difference as text: what its gates said."""

from __future__ import annotations

import re

from memaudit.comparing import compare
from memaudit.reports.diff_html import diff_html
from memaudit.results import GateResult
from tests.reports.handmade import curve, report

BEFORE, AFTER = report(curve()), report(curve(horizon=69))
GATES = (
    GateResult("horizon<-20%", hit=True, told="horizon 139 -> 69, -50.4 %"),
    GateResult("new-<b>", hit=False),
)


def test_the_page_tells_what_every_gate_said():
    page = diff_html(compare(BEFORE, AFTER), BEFORE, AFTER, gates=GATES)
    section = re.search(r'<section id="gates".*?</section>', page, re.DOTALL)
    assert section is not None
    assert "horizon 139 -&gt; 69, -50.4 %" in section[0]
    assert re.findall(r'class="kind \w+">(\w+)<', section[0]) == ["hit", "open"]
    assert "new-&lt;b&gt;" in section[0]
    assert '<a href="#gates">1 gate was hit</a>: horizon&lt;-20%' in page
    assert '<a href="#gates">Gates</a>' in page


def test_a_page_without_gates_has_no_such_section():
    assert 'id="gates"' not in diff_html(compare(BEFORE, AFTER), BEFORE, AFTER)
