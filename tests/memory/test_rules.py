"""Every rule fires on its evidence, with the numbers in its message, and not without it."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from memaudit.interfaces import Status
from memaudit.memory.curve import AtSize
from memaudit.memory.result import AssumptionsResult, MemoryResult
from memaudit.modes import spectrum
from memaudit.numerics.verdict import Decay
from memaudit.report import Recurrence
from memaudit.rules import AUDIT_RULES, judge, unmet
from tests.handmade import (
    LAGS,
    assumption,
    curve,
    identity,
    of_kind,
    power_law,
    report,
)

ZERO = np.zeros(512)
SLOW = {
    "values": np.exp(-0.01 * LAGS),
    "decay": Decay("exponential", rate=0.01, window=(1, 512), confidence=0.9),
}
FAST = Decay("exponential", rate=0.2, interval=(0.19, 0.21), window=(1, 100))


def silent(query: str):
    return of_kind("memoryless", query, values=ZERO, status=Status.BELOW_FLOOR)


#: code, severity, a report that must raise it, words of its message
EVIDENCE = [
    (
        "MA001",
        "warning",
        report(curve(), complete=False, errors=({"code": "E_MEMORY", "message": "too little"},)),
        "kept: heaviside; reason: E_MEMORY too little",
    ),
    ("MA002", "warning", report(curve(), subject=identity(coverage=0.374)), "37.4 % of the 4,384"),
    (
        "MA003",
        "note",
        report(curve(), subject=identity(assumed={"nonlinearity": "tanh (not in the file)"})),
        "nonlinearity: tanh",
    ),
    (
        "MA004",
        "note",
        report(curve(), environment={"memory": "memory ran short: at most 512 steps"}),
        "at most 512 steps",
    ),
    (
        "MA007",
        "note",
        report(curve(), settings={"budget": "9000tokens", "left_out": ["memory"]}),
        "the budget of 9000tokens was used up; cut short or left out: memory; measured: heaviside",
    ),
    (
        "MA005",
        "note",
        report(curve(values=np.exp(-0.05 * LAGS[:255])), subject=identity(longest=512)),
        "at most 512 steps; lags measured instead of 512: heaviside 256",
    ),
    (
        "MA006",
        "warning",
        report(curve(), of_kind("undetermined", "context", status=Status.NO_TOKENIZER)),
        "context: the model has no tokenizer that fits it",
    ),
    (
        "MA119",
        "warning",
        report(curve("driven", unfed=Status.NO_TOKENIZER)),
        "the text was not fed: the model has no tokenizer that fits it",
    ),
    ("MA101", "note", report(of_kind("memoryless", values=ZERO)), "at most 0 against"),
    (
        "MA102",
        "error",
        report(
            curve(
                values=np.exp(0.01 * LAGS),
                decay=Decay("growing", rate=-0.01, interval=(-0.011, -0.009), window=(1, 512)),
            )
        ),
        "rate -0.01 [-0.011, -0.009] a lag over lags 1 to 512",
    ),
    (
        "MA103",
        "warning",
        report(of_kind("persistent", values=np.full(512, 0.25))),
        "over lags 1 to 512, 0.25 at most and 0.25 at the end",
    ),
    (
        "MA104",
        "note",
        report(of_kind("undetermined", status=Status.TOO_FEW_LAGS, floor=0.5)),
        "0 of 512 lags above 10 x floor 0.5, fewer than 20 lags",
    ),
    ("MA105", "note", report(curve(at_edge=True)), "(heaviside; 64 probes)"),
    (
        "MA106",
        "note",
        report(curve(**SLOW, horizon=None)),
        # exp(-0.01·(t - 1)) = 1/1000 at t = 1 + 690.8
        "more than 512 lags, about 692 by the fit",
    ),
    (
        "MA118",
        "note",
        report(
            of_kind(
                "growing",
                sizes=(
                    AtSize(1.0, 1.0, "growing", None, 511),
                    AtSize(64.0, 0.02, "growing", None, 511),
                ),
            )
        ),
        "a constant input starts an oscillation of bounded size (heaviside)",
    ),
    (
        "MA117",
        "warning",
        report(
            curve("driven", share=0.004, fed="unit noise, 256 sequences"),
            subject=identity(recurrences=(Recurrence("a", "LSTM", 4, 80, 1),)),
        ),
        "inputs other than the present one make 0.004 of the natural variation",
    ),
    ("MA107", "note", report(curve(), power_law("impulse")), "exponent 0.5 over lags 8 to 512"),
    (
        "MA107",
        "note",
        report(curve(), curve("impulse", decay=FAST)),
        "heaviside: exponential, rate 0.05 [0.0499, 0.0501]; impulse: exponential, rate 0.2",
    ),
    (
        "MA108",
        "warning",
        report(
            silent("heaviside"), silent("impulse"), assumptions=(assumption("responsive", False),)
        ),
        "heaviside, impulse read at most 0",
    ),
    (
        "MA109",
        "error",
        report(of_kind("growing", status=Status.DIVERGED, values=np.array([1.0, 1e300]))),
        "the last finite lag is 2, with 1e+300",
    ),
    (
        "MA110",
        "note",
        report(curve("reversed", status=Status.UNSETTLED, prefix=2048)),
        "after 2048 steps",
    ),
    ("MA111", "note", report(power_law()), "exponent 0.5 [0.49, 0.51] over lags 8 to 512"),
    (
        "MA112",
        "warning",
        report(curve(values=np.full(512, 2.0), noise=1e-3)),
        "by 0.001, largest value 2",
    ),
    (
        "MA113",
        "warning",
        report(curve(), curve("impulse", horizon=200), subject=identity(context=2048)),
        "a context of 2048 steps; the longest horizon that was measured is 200 (impulse)",
    ),
    (
        "MA114",
        "warning",
        report(curve(), silent("impulse")),
        "(impulse: memoryless), under input it is not (heaviside exponential)",
    ),
    (
        "MA115",
        "note",
        report(silent("heaviside"), curve("impulse")),
        "(heaviside: memoryless), others do (impulse exponential)",
    ),
    (
        "MA301",
        "warning",
        report(curve(), assumptions=(assumption("causal", False),)),
        "(residual 0.5, tolerance 1e-09); the curves read the past only",
    ),
    (
        "MA302",
        "note",
        report(curve(), assumptions=(assumption("time-homogeneous", False, note="3 offsets"),)),
        "(residual 0.5, tolerance 1e-09): 3 offsets",
    ),
    (
        "MA303",
        "warning",
        report(curve(), assumptions=(assumption("deterministic", False),)),
        "residual 0.5",
    ),
    (
        "MA304",
        "warning",
        report(curve(), assumptions=(assumption("rows-independent", False),)),
        "residual 0.5",
    ),
    (
        "MA305",
        "note",
        report(curve(), assumptions=(assumption("bounded", False),)),
        "the model is not bounded (residual 0.5",
    ),
]


@pytest.mark.parametrize(("code", "severity", "evidence", "words"), EVIDENCE)
def test_rule_fires_once_on_its_evidence_and_names_the_numbers(code, severity, evidence, words):
    found = [finding for finding in judge(evidence) if finding.code == code]
    assert [finding.severity for finding in found] == [severity]
    assert words in found[0].message
    assert found[0].advice


RULES = (*AUDIT_RULES, *MemoryResult.rules, *AssumptionsResult.rules)


def test_every_rule_has_evidence_in_this_table():
    assert {row[0] for row in EVIDENCE} == {one.code for one in RULES}


def test_findings_are_sorted_by_severity_then_code_then_place():
    layers = {
        "b": {"heaviside": of_kind("growing")},
        "a": {"heaviside": of_kind("growing"), "impulse": of_kind("persistent", "impulse")},
    }
    host = identity(coverage=0.5, assumed={"x": "y"}, whole=False)
    found = judge(report(layers=layers, subject=host))
    assert [(f.code, f.where) for f in found] == [
        ("MA102", "a"),
        ("MA102", "b"),
        ("MA002", ""),
        ("MA103", "a"),
        ("MA003", ""),
        ("MA107", "a"),
    ]


@pytest.mark.parametrize(
    ("attention", "severities"),
    [("", ["warning", "warning"]), ("causal", ["note", "warning"]), ("both ways", ["note"] * 2)],
)
def test_attention_that_does_what_it_is_made_for_is_a_note(attention, severities):
    measured = (assumption("causal", False),)
    subject = identity(attention=attention)
    found = judge(report(of_kind("persistent"), assumptions=measured, subject=subject))
    told = {f.code: f.severity for f in found}
    assert [told["MA103"], told["MA301"]] == severities


def test_a_layer_that_answers_is_not_accused_of_ignoring_its_input():
    layers = {"dead": {"heaviside": silent("heaviside")}, "live": {"heaviside": curve()}}
    measured = (
        assumption("responsive", False, where="dead"),
        assumption("responsive", True, where="live"),
    )
    found = judge(report(layers=layers, assumptions=measured))
    assert [(f.code, f.where) for f in found] == [("MA108", "dead")]


@pytest.mark.parametrize(
    ("rate", "interval"),
    [(0.07, (0.069, 0.071)), (0.2, (0.04, 0.3))],
    ids=["within a factor of 1.5", "overlapping intervals"],
)
def test_rates_that_are_near_or_uncertain_agree(rate, interval):
    other = curve("impulse", decay=Decay("exponential", rate=rate, interval=interval))
    assert judge(report(curve(), other)) == ()


# MA106: how far a fit is trusted beyond the window, and the horizon that is advised


def test_a_power_law_is_not_extrapolated_beyond_sixteen_windows():
    # t^-0.5 reaches a thousandth at lag a million, two thousand windows away
    (finding,) = [f for f in judge(report(power_law())) if f.code == "MA106"]
    assert "by the fit" not in finding.message
    assert finding.advice == "try --horizon 2048"


def test_a_fit_of_little_confidence_is_not_extrapolated_and_is_no_power_law():
    sure = {f.code: f for f in judge(report(curve(**SLOW, horizon=None), power_law("impulse")))}
    assert ("about 692 by the fit" in sure["MA106"].message, "MA111" in sure) == (True, True)
    law = Decay("polynomial", exponent=0.5, window=(8, 512), confidence=0.4)
    decay = replace(SLOW["decay"], confidence=0.4)
    guess = curve(values=SLOW["values"], decay=decay, horizon=None)
    found = {f.code: f for f in judge(report(guess, power_law("impulse", decay=law)))}
    assert "by the fit" not in found["MA106"].message
    assert found["MA106"].advice == "try --horizon 2048"
    assert "MA111" not in found


def test_the_advised_horizon_is_the_next_power_of_two():
    evidence = report(curve(**SLOW, horizon=None))
    assert [f.advice for f in judge(evidence)] == ["try --horizon 1024"]


# MA104: an open verdict names the horizon that the spectrum asks for


def advice(scale: float) -> str:
    slow = spectrum(
        layer="a",
        cell="s4d",
        parameterization="exp",
        at="every step",
        eigenvalues=np.array([math.exp(-1.0 / scale)]),
    )
    open_ = curve(decay=Decay("undetermined"), horizon=None, half_life=None)
    found = judge(report(open_, spectrum=(slow,), settings={"horizon": 512}))
    return next(item.advice for item in found if item.code == "MA104")


def test_the_horizon_holds_seven_time_scales_of_the_slowest_mode():
    assert "--horizon 8192 (the slowest mode lasts 1e+03 steps)" in advice(1000.0)


@pytest.mark.parametrize("scale", [10.0, 1e9], ids=["inside the window", "too far"])
def test_a_mode_that_no_horizon_helps_names_none(scale):
    assert "a larger --horizon" in advice(scale)


# What must not be found


def test_a_head_that_was_not_run_is_worth_a_note_only():
    (finding,) = judge(report(curve(), subject=identity(coverage=0.95)))
    assert (finding.code, finding.severity) == ("MA002", "note")


def test_a_repetition_that_saturates_is_no_short_context():
    short = report(curve("repeat", horizon=10), subject=identity(context=2048))
    assert "MA113" not in {finding.code for finding in judge(short)}


def test_empty_curves_are_judged_without_a_crash():
    empty = np.array([])
    for kind in ("growing", "persistent", "polynomial", "undetermined", "memoryless"):
        for status in Status:
            judge(report(of_kind(kind, values=empty, status=status, decay=Decay(kind))))


# What a rule lacks


@pytest.mark.parametrize(
    ("code", "curves", "missing"),
    [
        ("MA101", [curve("impulse")], "heaviside was not asked for"),
        ("MA107", [curve()], "impulse was not asked for"),
        ("MA107", [curve(), curve("context")], "impulse was not asked for"),
        ("MA107", [curve(), curve("impulse")], ""),
        ("MA114", [curve()], "impulse was not asked for"),
        ("MA114", [curve("impulse"), curve("reversed")], "driven was not asked for"),
        ("MA115", [curve("impulse")], "heaviside was not asked for"),
        ("MA115", [curve(), curve("repeat")], "driven was not asked for"),
        ("MA115", [curve(), curve("reversed")], ""),
        ("MA301", [curve()], "assumptions was not asked for"),
    ],
)
def test_a_rule_names_the_query_that_it_lacks(code, curves, missing):
    one = next(one for one in RULES if one.code == code)
    assert unmet(one, report(*curves)) == missing
    if missing:
        assert code not in {finding.code for finding in judge(report(*curves))}
