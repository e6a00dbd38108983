"""What changed between two reports, on a page: to the letter, and within 80 columns."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console

from memaudit.comparing import compare
from memaudit.memory.result import Status
from memaudit.report import Finding, Report
from memaudit.reports.diff import diff_page, diff_text
from memaudit.reports.diff_html import diff_html
from memaudit.reports.diff_verdict import verdict_line
from memaudit.rules import judge
from memaudit.testing.moved_samples import gradients, precision, stability
from tests.findings.spectral_evidence import modes
from tests.handmade import curve, identity, of_kind, power_law, report
from tests.reports.test_recall_table import sample as recall

LAYERS = tuple(modes(0.5 + 0.01 * k, layer=f"layers.{k}") for k in range(13))
BEFORE = report(curve(), curve("impulse"), spectrum=LAYERS)
AFTER = report(
    power_law(values=2.0 * curve().values),
    curve("impulse"),
    spectrum=(modes(0.5, parameterization="best"), *LAYERS[1:]),
    subject=identity(source="out", sha256="0123456789abcdef"),
)
PAGE = """\
memaudit diff
before  demo:lstm
after   out

Subject
        before     after
───────────────────────────────
source  demo:lstm  out
sha256  -          0123456789ab
9 facts unchanged

Settings
3 facts unchanged

In the tables the row -> tells what is different after; an empty cell in it is
as before, and - stands where a report has no value.

Memory
query     decay       rate or exponent      half-life horizon farthest apart
────────────────────────────────────────────────────────────────────────────
heaviside exponential 0.05 [0.0499, 0.0501]     13.86     139
->        polynomial  0.5 [0.49, 0.51]      4 (-71 %)   > 512 x2 at 1
Farthest apart: how many times larger (x) or smaller (/) the later curve is, at
the lag where the two lie farthest apart beyond their numerical floors.
1 query unchanged

Recurrent layers
layer    form margin time scale
───────────────────────────────
layers.0 exp  0.5    1.443
->       best
12 layers unchanged

horizon 139 steps as before, half-life 13.86 -> 4 steps (-71 %); changed:
subject, 1 of 2 queries, 1 of 13 layers
"""


def page(before: Report, after: Report, **options) -> str:
    return diff_text(compare(before, after), **options)


def test_the_page_is_the_same_to_the_letter():
    assert page(BEFORE, AFTER) == PAGE


def test_reports_that_tell_the_same_end_with_no_change():
    told = page(BEFORE, BEFORE)
    assert told.endswith("\nno change\n")
    assert "13 layers unchanged" in told
    assert "->" not in told


def test_without_a_second_row_no_legend_explains_it():
    told = page(BEFORE, replace(BEFORE, spectrum=LAYERS[:12]))
    assert "layers.12 (only before)" in told
    assert "an empty cell" not in told


def test_verbose_shows_every_row():
    told = page(BEFORE, AFTER, verbose=True)
    assert all(f"layers.{k} " in told for k in range(13))
    assert "impulse" in told
    assert "parameters" in told


def test_other_settings_are_told_with_a_warning():
    longer = replace(BEFORE, settings={**BEFORE.settings, "horizon": 1024})
    told = page(BEFORE, longer)
    assert "horizon  512     1024" in told
    assert "The settings differ: curves may not be comparable." in told
    assert "comparable" not in page(BEFORE, AFTER)


def test_what_only_one_report_measured_is_named():
    more = replace(BEFORE, stability=stability(), precision=precision(), gradient=gradients())
    assert "Measured only after: stability, precision, gradient." in page(BEFORE, more)
    assert "Measured only before: stability, precision, gradient." in page(more, BEFORE)
    assert page(BEFORE, more).endswith("; changed: what was measured\n")


def test_radii_that_were_searched_in_other_ways_are_said_to_be_so():
    one, other = (replace(BEFORE, stability=item) for item in (stability(), stability()))
    other = replace(other, stability=replace(stability(), draws=5))
    assert "The radii were searched for in different ways" in page(one, other)


def test_a_radius_that_moved_is_told_with_both_values():
    item = stability()
    first, second = item.curves
    wider = replace(first, radius=replace(first.radius, value=0.2, interval=(0.2, 0.21)))
    moved = replace(item, curves=(wider, second))
    told = page(replace(BEFORE, stability=item), replace(BEFORE, stability=moved))
    assert "recurrent, spectral 0.05 [0.05, 0.0505]" in told
    assert "->                  0.2 [0.2, 0.21]" in told
    assert "1 group of weights unchanged" in told


def test_numbers_that_differ_are_told_in_digits_that_show_it():
    slower = curve(half_life=13.8625)
    told = page(report(curve()), report(slower))
    assert "13.86" in told
    assert "13.8625" in told


def test_findings_that_came_and_went_have_a_sign_each():
    risen = replace(curve(), horizon=None)
    near = report(risen, spectrum=(modes(0.99999),))
    judged = replace(near, findings=judge(near))
    bare = replace(near, findings=())
    came, went = page(bare, judged), page(judged, bare)
    assert "+ MA201 warning near-boundary" in came
    assert "- MA201 warning near-boundary" in went
    assert f"{len(judged.findings)} stayed: " in page(judged, judged)


def test_a_finding_that_became_graver_is_shown():
    note = Finding("MA201", "near-boundary", "note", "margin 1e-3", "look", "cell")
    error = replace(note, severity="error", message="margin 1e-9")
    told = page(replace(BEFORE, findings=(note,)), replace(BEFORE, findings=(error,)))
    assert "= MA201 note -> error near-boundary\n    cell: margin 1e-9\n" in told


def test_another_status_is_a_sentence_below_the_table():
    told = page(report(curve()), report(replace(curve(), status=Status.UNSETTLED)))
    assert "heaviside: measured -> the state had not settled" in " ".join(told.split())


@pytest.mark.parametrize("width", [40, 80, 120])
@pytest.mark.parametrize("ascii_only", [True, False])
def test_the_page_keeps_the_width_and_the_letters_of_the_console(width, ascii_only):
    long = replace(AFTER, subject=identity(source="a/very/long/path" * 15), memory={})
    shown = compare(replace(BEFORE, layers={"x" * 90: {"impulse": curve("impulse")}}), long)
    sheet = StringIO()
    console = Console(file=sheet, width=width, color_system=None, highlight=False, _environ={})
    console.print(diff_page(shown, before="a.json", after="b.json", ascii_only=ascii_only))
    assert max(map(len, sheet.getvalue().splitlines())) <= width
    assert sheet.getvalue().isascii() or not ascii_only


def test_foreign_text_cannot_colour_the_page():
    evil = "[red]x\x1b[31m\u202e"
    named = {evil: replace(of_kind("growing"), query=evil)}
    told = page(
        replace(BEFORE, subject=identity(source=evil), memory=named, settings={evil: evil}),
        replace(AFTER, spectrum=(modes(0.9, layer=evil, parameterization=evil),)),
    )
    assert "[red]x" in told
    assert "\x1b" not in told
    assert "\u202e" not in told


def test_the_last_line_counts_what_changed():
    assert verdict_line(compare(BEFORE, BEFORE)) == "no change"
    assert verdict_line(compare(BEFORE, AFTER)) == " ".join(PAGE.splitlines()[-2:])


RECALL = """\
Recall
state capacity numbers half
───────────────────────────
gru   13.53    32      2
->    9.5              1
2 states unchanged
"""


def test_capacities_stand_side_by_side():
    first, *rest = recall().decodings
    moved = replace(recall(), decodings=(replace(first, capacity=9.5, half=1), *rest))
    before, after = report(curve(), recall=recall()), report(curve(), recall=moved)
    difference = compare(before, after)
    assert RECALL in diff_text(difference)
    assert verdict_line(difference) == "horizon 139 steps as before; changed: 1 of 3 states"
    page = diff_html(difference, before, after)
    assert "Recall: 2 states unchanged" in page
    assert '<span class="before">13.53</span> → <span class="change">9.5</span>' in page
