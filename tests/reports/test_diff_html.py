"""The page of a difference as text: what its gates said, and what is drawn of both reports."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import numpy as np
from memaudit.comparing import compare

from memaudit.report import GateResult
from memaudit.reports.diff_html import diff_html
from memaudit.reports.page.detail import MOST_BYTES
from tests.handmade import LAGS, curve, linear_layer, report
from tests.reports.handmade_page import modes

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
    assert re.findall(r'class="kind \w+">(\w+)<', section[0]) == ["hit", "passed"]
    assert "new-&lt;b&gt;" in section[0]
    assert '<a href="#gates">1 gate was hit</a>: horizon&lt;-20%' in page
    assert '<a href="#gates">Gates</a>' in page


def test_a_page_without_gates_has_no_such_section():
    assert 'id="gates"' not in diff_html(compare(BEFORE, AFTER), BEFORE, AFTER)


def figures(page: str) -> dict[str, str]:
    found = re.findall(r"<figure.*?</figure>", page, flags=re.DOTALL)
    return {re.search("<h3>(.*?)</h3>", drawn)[1]: drawn for drawn in found}


def views(figure: str) -> list[dict]:
    return [json.loads(text) for text in re.findall(r'class="view">(.*?)</script>', figure)]


def points(view: dict, name: str) -> list:
    key = f"s{view['names'].index(name)}"
    return next(s["data"] for s in view["option"]["series"] if s["name"] == key)


def test_the_modes_of_both_reports_lie_in_one_plane():
    slow, fast = modes("rnn"), modes("rnn")
    fast = replace(fast, eigenvalues=0.5 * np.asarray(fast.eigenvalues))
    before, after = report(spectrum=(slow, modes("gone"))), report(spectrum=(fast,))
    drawn = figures(diff_html(compare(before, after), before, after))["Complex plane"]
    (view,) = views(drawn)
    assert view["names"] == ["unit circle", "before", "after"]
    was, now = points(view, "before"), points(view, "after")
    assert len(was) == len(now) == 40
    assert (was[0][2], now[0][2]) == (0.999, 0.4995)
    assert ">0.999<" in drawn, "the table has the numbers"
    assert ">0.4995<" in drawn
    assert "gone" not in drawn


def test_many_layers_are_seen_together_and_one_by_one():
    both = report(spectrum=(modes("a"), modes("b")))
    drawn = figures(diff_html(compare(both, both), both, both))["Complex plane"]
    assert re.findall("<option>(.*?)</option>", drawn) == ["all layers", "a", "b"]
    assert [len(points(view, "after")) for view in views(drawn)] == [80, 40, 40]


def test_closed_forms_lie_on_top_of_each_other():
    before = report(closed_form=(linear_layer("a"),))
    after = report(closed_form=(linear_layer("a", exact=np.exp(-0.1 * LAGS), horizon=69),))
    drawn = figures(diff_html(compare(before, after), before, after))["Closed form by layer"]
    (view,) = views(drawn)
    assert points(view, "before")[0] == [1, 0.95123]
    assert points(view, "after")[0] == [1, 0.90484]
    assert "horizon 139" in drawn
    assert "horizon 69" in drawn


def test_cards_are_as_many_as_there_is_room_for():
    many = report(*(curve(f"{k} " + "q" * 300) for k in range(700)))
    page = diff_html(compare(many, many), many, many)
    assert len(page.encode()) <= MOST_BYTES
    assert re.search(r">\d+ more in the JSON report<", page)
