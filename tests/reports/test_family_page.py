"""The page of a family: what it must say, at every width and in every alphabet."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from memaudit.errors import SourceError
from memaudit.families.result import FamilyReport
from memaudit.report import Report
from memaudit.reports.error_plot import HEIGHT, ErrorPlot, error_plot
from memaudit.reports.family_page import family_text
from tests.handmade import identity
from tests.reports.handmade_family import family_report, member, stable, unstable


def family_plot(report: FamilyReport, **options: Any) -> list[str]:
    drawn = ErrorPlot(report.betas, [m.errors for m in report.members], report.scale)
    return error_plot(drawn, **options)


def test_the_last_line_is_the_verdict():
    last = family_text(unstable()).splitlines()[-1]
    assert last.startswith("unstable: the crossings shift left as the models grow (beta = ")
    assert family_text(stable()).splitlines()[-1].startswith("stable: no crossings")


def test_every_member_has_its_letter_in_the_table_and_in_the_picture():
    page = family_text(unstable())
    for letter, size in zip("abc", (2, 4, 8), strict=True):
        assert f"\n{letter}  {size}  model{size}.pt" in page
        assert any(letter in line for line in family_plot(unstable()))


def test_a_power_law_is_a_straight_line_and_the_highest_curve_leaves_the_picture():
    lines = family_plot(family_report(member(2, 0.0, 1.0), member(4, 0.0, 0.01)), width=40)
    body = [line[7:] for line in lines[:HEIGHT]]
    for letter in "ab":
        at = [(r, line.index(letter)) for r, line in enumerate(body) if letter in line]
        rows, columns = np.array(at).T
        assert len(rows) > 3
        slope = np.polyfit(columns, rows, 1)[0]
        assert np.abs(np.polyval(np.polyfit(columns, rows, 1), columns) - rows).max() < 0.6
        assert slope < 0


@pytest.mark.parametrize("width", [40, 60, 72])
@pytest.mark.parametrize("ascii_only", [True, False])
def test_the_picture_is_as_wide_as_it_may_be(width, ascii_only):
    lines = family_plot(unstable(), width=width, ascii_only=ascii_only)
    assert {len(line) for line in lines} == {width}
    assert all(line.isascii() for line in lines) == ascii_only


def test_infinite_errors_and_exact_fits_are_drawn_without_them():
    wild = member(4, 0.0, 0.0, errors=np.where(np.arange(11) < 5, 0.0, np.inf))
    assert len(family_plot(family_report(member(2, 0.1, 1.0), wild))) == HEIGHT + 2
    lost = member(2, 0.1, 1.0, errors=np.full(11, np.inf))
    assert len(family_plot(family_report(lost, lost))) == HEIGHT + 2


def test_the_reference_is_told_and_has_no_curve():
    page = family_text(family_report(member(2, 0.1, 1.0), against=identity(source="big.pt")))
    assert "big.pt (the reference)" in page
    assert "undetermined: one curve crosses nothing" in page


def test_a_partial_report_says_so_first():
    first = family_text(replace(unstable(), complete=False)).splitlines()[0]
    assert first.startswith("PARTIAL REPORT")


def test_hostile_names_do_not_reach_the_terminal():
    odd = member(2, 0.1, 1.0, subject=identity(source="a\x1b[31m\nb"))
    assert "\x1b" not in family_text(family_report(odd, member(4, 0.05, 1.0)))


def test_a_saved_family_is_loaded_as_it_was(tmp_path):
    wild = member(8, 0.0, 0.0, errors=np.full(11, np.inf), radius=np.inf, margin=None)
    made = family_report(member(2, 0.1, 1.0), wild, against=identity())
    assert FamilyReport.load(made.save(tmp_path / "f.json")) == made
    text = (tmp_path / "f.json").read_text()
    assert json.loads(text)["members"][1]["errors"][0] == "infinite"


@pytest.mark.parametrize(
    "damage", [{"schema": 2}, {"kind": "report"}, {"members": 3}, {"strange": 1}, {"betas": None}]
)
def test_a_damaged_or_other_report_is_refused(damage):
    with pytest.raises(SourceError):
        FamilyReport.from_dict({**unstable().to_dict(), **damage})


def test_a_report_of_one_model_and_one_of_a_family_are_not_confused(tmp_path):
    with pytest.raises(SourceError):
        Report.load(unstable().save(tmp_path / "f.json"))
