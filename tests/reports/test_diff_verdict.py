"""The sentence of a difference: better or worse in numbers first, the same wherever it is told."""

from __future__ import annotations

import html
import math
import re
from dataclasses import replace

import numpy as np
import pytest
from memaudit.comparing import compare

from memaudit.cli import main
from memaudit.memory.result import Decay, Status
from memaudit.metrics import measured
from memaudit.report import Finding, Report
from memaudit.reports.diff import OTHER_MODEL, diff_text
from memaudit.reports.diff_html import diff_html
from memaudit.reports.diff_table import factor, shift
from memaudit.reports.diff_verdict import verdict_line
from tests.findings.spectral_evidence import modes
from tests.handmade import LAGS, curve, identity, power_law, report

FAST = curve(
    values=np.exp(-0.3 * LAGS),
    decay=Decay("exponential", rate=0.3, interval=(0.29, 0.31), window=(1, 60)),
    horizon=23,
    half_life=2.31,
)
UNREAD = {
    **{"values": np.zeros(0), "status": Status.NOT_MEASURED, "decay": Decay("undetermined")},
    **{"horizon": None, "half_life": None},
}
SLOW = report(curve(), spectrum=(modes(0.95),))
COLLAPSED = report(FAST, spectrum=(modes(0.7),))
SENTENCE = (
    "horizon 139 -> 23 steps (-83 %), half-life 13.86 -> 2.31 steps (-83 %), "
    "smallest margin 0.05 -> 0.3 (+500 %); changed: 1 of 1 query, 1 of 1 layer"
)
ROWS = """\
heaviside exponential 0.05 [0.0499,             13.86        139
                      0.0501]
->                    0.3 (+500 %)       2.31 (-83 %) 23 (-83 %) /3.1e+12 at 115
                      [0.29, 0.31]
"""


def line(before: Report, after: Report) -> str:
    return verdict_line(compare(before, after))


def test_the_numbers_of_the_model_come_first():
    assert line(SLOW, COLLAPSED) == SENTENCE


def test_the_other_order_tells_the_other_direction():
    assert line(COLLAPSED, SLOW).startswith("horizon 23 -> 139 steps (+504 %), half-life")


def test_terminal_one_line_and_page_say_the_same_sentence(tmp_path, capsys):
    difference = compare(SLOW, COLLAPSED)
    assert " ".join(diff_text(difference).split()).endswith(SENTENCE)
    page = html.unescape(diff_html(difference, SLOW, COLLAPSED))
    assert f'class="sentence">H{SENTENCE[1:]}.<' in page
    files = [str(SLOW.save(tmp_path / "a.json")), str(COLLAPSED.save(tmp_path / "b.json"))]
    assert main(["diff", *files, "-q"]) == 0
    assert capsys.readouterr().out == f"{SENTENCE}\n"


def test_the_horizon_is_the_one_that_gates_judge():
    before = report(curve(), curve("impulse", horizon=200), curve("reversed", horizon=101))
    after = report(curve(), curve("impulse", horizon=50), curve("reversed", horizon=101))
    assert (measured(before)["horizon"], measured(after)["horizon"]) == (101, 50)
    assert line(before, after) == "horizon 101 -> 50 steps (-50 %); changed: 1 of 3 queries"


def test_a_rounding_change_is_no_collapse():
    told = line(SLOW, replace(SLOW, spectrum=(modes(0.95001),)))
    assert told == (
        "horizon 139 steps as before, smallest margin 0.05 -> 0.04999 (-0.02 %); "
        "changed: 1 of 1 layer"
    )


def test_of_a_horizon_beyond_the_window_there_is_no_percent():
    rest = ", half-life 4 -> 13.86 steps (+246 %); changed: 1 of 1 query"
    assert line(report(power_law()), report(curve())) == f"horizon beyond 512 -> 139 steps{rest}"
    assert line(report(curve()), report(power_law())).startswith(
        "horizon 139 -> beyond 512 steps, half-life"
    )


def test_an_unknown_horizon_is_said_to_be_so():
    lost = curve(**UNREAD)
    told = line(report(curve()), report(lost))
    assert told.startswith("horizon 139 steps -> unknown, half-life 13.86 steps -> unknown; ")


def test_a_horizon_of_which_a_query_could_not_be_read_is_a_bound():
    lost = curve("impulse", **UNREAD)
    both = report(curve(), curve("impulse"))
    told = line(both, report(curve(horizon=69), lost))
    assert told == (
        "horizon 139 -> at most 69 steps, half-life 13.86 -> at most 13.86 steps; "
        "changed: 2 of 2 queries"
    )


def test_what_only_one_report_measured_is_no_change_of_the_margin():
    told = line(report(curve()), SLOW)
    assert told == "horizon 139 steps as before; changed: what was measured"


def test_findings_are_counted_as_new_gone_graver_and_stayed():
    note = Finding("MA201", "near-boundary", "note", "margin 1e-3", "look", "cell")
    error = replace(note, severity="error")
    gone, new = replace(note, code="MA104"), replace(note, code="MA105", where="other")
    before, after = (replace(SLOW, findings=f) for f in ((note, gone), (error, new)))
    assert line(before, after) == (
        "horizon 139 steps as before; findings: 1 new, 1 gone, 1 graver, 1 stayed"
    )
    assert "1 milder" in line(after, before)


def test_percents_stand_beside_horizon_half_life_and_rate():
    assert ROWS in diff_text(compare(SLOW, COLLAPSED))
    page = diff_html(compare(SLOW, COLLAPSED), SLOW, COLLAPSED)
    for words in ("0.3 (+500 %) [0.29, 0.31]", "2.31 (-83 %)", "23 (-83 %)", "/3.1e+12 at lag 115"):
        assert f">{words}<" in page
    assert "rate 0.05 → rate 0.3 (+500 %)" in page
    assert "</span> (-83 %) steps to the horizon" in page


def test_a_rate_beside_an_exponent_has_no_percent():
    told = diff_text(compare(report(curve()), report(power_law())))
    assert re.search(r"-> +polynomial +0\.5 \[0\.49, *0\.51\]", " ".join(told.split()))
    assert "> 512 (" not in told


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        (132, 22, " (-83 %)"),
        (100.0, 100.5, " (+0.5 %)"),
        (1, 10, " (+900 %)"),
        (1, 25, " (x25)"),
        (1000.0, 2.0, " (/500)"),
        (5, 5, ""),
        (0, 5, ""),
        (5, 0, ""),
        (-0.1, 0.1, ""),
        (5, math.inf, ""),
        (5, math.nan, ""),
        (5, "beyond 512", ""),
        (None, 5, ""),
        (True, 5, ""),
    ],
)
def test_a_shift_is_a_percent_or_a_factor_or_nothing(before, after, told):
    assert shift(before, after) == told


def test_a_factor_is_never_below_one():
    assert factor(8.4e8, 1.0) == "/8.4e+08"
    assert factor(1.0, 8.4e8) == "x8.4e+08"
    assert factor(1.0, 1.5) == "x1.5"
    assert factor(math.inf, 1.0) == "/infinite"


def test_the_earlier_curve_is_dashed_and_counts_have_one_format():
    after = replace(COLLAPSED, subject=identity(parameters=4513))
    page = diff_html(compare(SLOW, after), SLOW, after)
    assert "Dashed: before. Solid: after." in page
    assert "Broken" not in page
    assert ">4,384<" in page
    assert ">4,513<" in page
    assert "4,384" in diff_text(compare(SLOW, after))


OTHER = identity(
    source="demo:gru", sha256="b" * 64, description="GRU, 1 layer of 32", parameters=3393
)


def test_two_different_models_are_said_to_be_two():
    first = replace(SLOW, subject=identity(sha256="a" * 64))
    second = replace(COLLAPSED, subject=OTHER)
    difference = compare(first, second)
    assert OTHER_MODEL == "Two different models are compared, not one before and after a change."
    assert f"\n{OTHER_MODEL}\n" in diff_text(difference)
    assert f'class="notice">{OTHER_MODEL}<' in diff_html(difference, first, second)
    assert verdict_line(difference).startswith("two different models; horizon 139 -> 23 steps")


@pytest.mark.parametrize(
    "changes",
    [
        {"sha256": "b" * 64},
        {"sha256": "b" * 64, "description": "LSTM, 1 layer of 32, head to 2"},
        {"description": "another reading of it", "family": "other", "parameters": 1},
    ],
    ids=["trained on", "opened in another way", "one file"],
)
def test_one_model_is_not_called_two(changes):
    first = replace(SLOW, subject=identity(sha256="a" * 64))
    second = replace(SLOW, subject=identity(**{"sha256": "a" * 64, **changes}))
    assert not compare(first, second).other_model
    assert OTHER_MODEL not in diff_text(compare(first, second))
