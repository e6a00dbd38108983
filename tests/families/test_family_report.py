"""What is said of a family: members, curves, crossings, MA208, MA209, and its file."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from memaudit.errors import SourceError
from memaudit.families.result import FamilyReport, weight_growth
from memaudit.rules import judge
from tests.families.handmade import BETAS, family_report, member, stable, unstable
from tests.handmade import identity


def weights(family):
    return list(weight_growth.check(family))


def test_crossings_that_shift_left_are_a_warning_with_their_places():
    (found,) = judge(unstable(), family=True)
    assert (found.code, found.severity) == ("MA208", "warning")
    assert "(m = 2 and 4)" in found.message
    assert "(m = 4 and 8)" in found.message


def grown(**last):
    return family_report(member(2, 0.5, 1.0), member(4, 0.2, 1.0), member(8, 0.1, 1.0, **last))


def test_weights_that_grow_fourfold_are_reported():
    assert weights(grown(weight=4.0)) == []
    (found,) = weights(grown(weight=4.1))
    assert (found.where, "from 1 to 4.1" in found.message) == ("weights", True)


def test_a_shrinking_margin_is_reported_where_moves_reach_the_boundary():
    (found,) = weights(grown(margin=0.01, radius=0.008))
    assert (found.where, "from 0.1 to 0.01" in found.message) == ("modes", True)
    assert weights(grown(margin=0.01, radius=math.inf)) == []
    assert weights(grown(margin=0.03, radius=0.008)) == []


def test_a_model_beyond_the_boundary_is_reported_too():
    (found,) = weights(grown(margin=-0.2, radius=0.001))
    assert "from 0.1 to -0.2" in found.message


def test_the_first_headline_is_the_verdict():
    (first,) = unstable().document().headlines
    assert first.startswith("unstable: the crossings shift left as the models grow (beta = ")
    assert stable().document().headlines[0].startswith("stable: no crossings")


def test_every_member_has_a_row_and_a_curve():
    members, crossings = unstable().sections()
    assert members.tables[0].rows == tuple(
        (m, f"model{m}.pt", m**-2.0, 1.0, 0.1, 0.128) for m in (2, 4, 8)
    )
    (figure,) = members.figures
    assert [line.name for line in figure.series[:3]] == ["m = 2", "m = 4", "m = 8"]
    assert np.array_equal(figure.series[2].y, 8**-2.0 + 8**3 * BETAS)
    assert figure.marks[0].y == 10.0
    assert crossings.tables[0].keys() == [("2 and 4",), ("4 and 8",)]


def test_a_crossing_is_a_number_a_bound_or_a_sentence():
    def place(*members):
        return family_report(*members).sections()[1].tables[0].rows[0][1]

    assert place(member(2, 1.0, 0.0), member(4, 0.5, 1e4)) == "below 0.001"
    assert place(member(2, 1.0, 1.0), member(4, 0.5, 1.0)) == "no crossing"
    assert place(member(2, 1.0, 1.0), member(4, 1.0, 1.0)) == "everywhere: no better unmoved"
    # E = 1 and 0.5 + 15 beta: twice as large at beta = 0.1
    assert place(member(2, 1.0, 0.0), member(4, 0.5, 15.0)) == pytest.approx(0.1, rel=0.02)


def test_the_reference_is_named_and_has_no_curve():
    made = family_report(member(2, 0.1, 1.0), against=identity(source="big.pt"))
    (section,) = made.sections()
    assert section.text == ("big.pt is the reference, and has no curve.",)
    assert made.document().headlines == ["undetermined: one curve crosses nothing; add members"]


def test_a_partial_report_says_so_first():
    assert stable().document().warnings == ()
    assert "incomplete" in replace(unstable(), complete=False).document().warnings[0]


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
