"""`memaudit diff --fail-on` with a report that was cut short, or that misses a part of a number."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from memaudit.cli import main
from memaudit.interfaces import Status
from memaudit.report import Finding, Report
from tests.cli.played import one_line
from tests.handmade import curve, of_kind, report
from tests.spectrum.evidence import modes

WARNING = Finding("MA201", "near-boundary", "warning", "text", "advice", "cell")
SHUT = of_kind("undetermined", "context", values=np.zeros(0), status=Status.NO_TOKENS)


@pytest.fixture
def gate(tmp_path, capsys):
    def gate(before: Report, after: Report, word: str) -> str | None:
        paths = [before.save(tmp_path / "a.json"), after.save(tmp_path / "b.json")]
        code = main(["diff", *map(str, paths), "--fail-on", word])
        err = capsys.readouterr().err
        if code == 0:
            assert err == ""
            return None
        assert code == 1
        return one_line(err).removeprefix(f"memaudit: gate --fail-on {word} was hit by ")

    return gate


WHOLE, PART = report(curve()), report(curve(), complete=False)
AFTER = "what AFTER did not measure, being incomplete"


@pytest.mark.parametrize(
    ("before", "after", "word", "told"),
    [
        (WHOLE, PART, "error", AFTER),
        (WHOLE, PART, "MA105", AFTER),
        (WHOLE, PART, "new-warning", AFTER),
        (WHOLE, PART, "findings.error>0", AFTER),
        (WHOLE, PART, "horizon<10", AFTER),
        (WHOLE, PART, "horizon<-20%", AFTER),
        (WHOLE, PART, "horizon<140", "horizon = 139 at heaviside"),
        (WHOLE, PART, "complete<1", "complete = 0"),
        (WHOLE, PART, "parameters>1e9", None),
        (WHOLE, PART, "parameters>+10%", None),
        (PART, WHOLE, "horizon<-20%", "what BEFORE did not measure, being incomplete"),
        (PART, PART, "horizon<-20%", "what BEFORE and AFTER did not measure, being incomplete"),
        (PART, WHOLE, "error", None),
        (PART, WHOLE, "new-warning", None),  # nothing is there that could be new
        (PART, WHOLE, "horizon<10", None),
    ],
)
def test_a_report_that_was_cut_short_keeps_no_gate_open(gate, before, after, word, told):
    assert gate(before, after, word) == told


def test_a_finding_is_perhaps_not_new_where_before_was_cut_short(gate):
    after = report(curve(), findings=(WARNING,))
    told = "new MA201 near-boundary at cell"
    assert gate(WHOLE, after, "new-warning") == told
    assert gate(PART, after, "new-warning") == f"{told}, if it is new: BEFORE is incomplete"
    known = replace(PART, findings=(WARNING,))
    assert gate(known, after, "new-warning") is None


def test_a_query_that_one_side_has_not_measured_hides_no_fall(gate):
    both = report(curve(), SHUT)
    told = "horizon (139 at heaviside -> 139 at heaviside), not measured in"
    assert gate(WHOLE, both, "horizon<-20%") == f"{told} BEFORE: context"
    assert gate(both, WHOLE, "horizon<-20%") == f"{told} AFTER: context"
    assert gate(both, both, "heaviside.horizon<-20%") is None


def test_layers_that_sound_alike_are_compared_each_with_itself(gate):
    def made(first: float, second: float) -> Report:
        names = {"Block-A": first, "block_a": second}
        return report(spectrum=tuple(replace(modes(v), layer=n) for n, v in names.items()))

    told = "margin.block_a -50 % (0.2 -> 0.1)"
    assert gate(made(0.5, 0.8), made(0.5, 0.9), "margin.BLOCK_A<-20%") == told
    assert gate(made(0.5, 0.8), made(0.5, 0.9), "margin.Block-A<-20%") is None
    lone = report(spectrum=(replace(modes(0.5), layer="Block-A"),))
    assert gate(made(0.5, 0.8), lone, "margin.BLOCK_A<-20%") == (
        "margin.block_a, which AFTER has not measured"
    )
