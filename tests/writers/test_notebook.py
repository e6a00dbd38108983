"""A report in a notebook: a small table, no script, nothing raw."""

from __future__ import annotations

from memaudit.testing.report_format import HOSTILE, everywhere
from tests.handmade import curve, of_kind, power_law, report
from tests.reports.handmade_page import everything


def test_every_query_has_a_row_with_its_verdict():
    made = report(curve(), power_law("impulse"))._repr_html_()
    assert made.count("<tr>") == 3
    for word in ("demo:lstm", "exponential", "rate 0.05 [0.0499, 0.0501]", "139", "&gt; 512"):
        assert word in made
    assert made.count("<svg") == 2
    assert "Findings: none" in made


def test_nothing_in_it_runs_or_is_loaded():
    made = everywhere(everything(), HOSTILE)._repr_html_()
    assert "<script" not in made
    assert "<img" not in made
    assert "&lt;img src=x" in made
    assert "\x1b" not in made
    assert "src=" not in made.replace("&lt;img src=x onerror=alert(1)&gt;", "")


def test_without_curves_and_partial_it_says_so():
    made = report(complete=False)._repr_html_()
    assert "PARTIAL REPORT" in made
    assert "No curve was measured." in made


def test_a_curve_prints_itself_in_the_words_of_the_reports():
    assert repr(power_law()).endswith("; horizon > 512, half-life 4, 512 lags)")
    assert repr(curve(half_life=13.8629436)).endswith("; horizon 139, half-life 13.86, 512 lags)")
    assert "horizon -, half-life -" in repr(of_kind("memoryless"))
