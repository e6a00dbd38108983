"""Gates: what is known, what is not, and what counts as hit."""

import math

import pytest

from memaudit.errors import ArgumentError
from memaudit.gates import NumberGate, compared, parse_changes, parse_finding, parse_gates, percent
from memaudit.modes import spectrum
from memaudit.report import Finding, Metric, Report, Result
from tests.handmade import identity, report


def layer(*eigenvalues: float, name: str = "l0"):
    return spectrum(
        layer=name, cell="c", parameterization="exp", at="rest", eigenvalues=eigenvalues
    )


def scan_gates(*words: str, probes=("spectrum",), queries=(), horizon=512):
    return parse_gates(words, probes=probes, queries=queries, horizon=horizon)


class Fixed(Result):
    """A result with metrics given by hand."""

    def __init__(self, *metrics: Metric) -> None:
        self.given = metrics

    def metrics(self):
        return self.given


def with_metrics(*metrics: Metric) -> Report:
    return Report(identity(), {"horizon": 128}, results={"fixed": Fixed(*metrics)})


@pytest.mark.parametrize(
    ("sign", "low", "high", "limit", "holds"),
    [
        ("<", 1.0, 2.0, 3.0, True),
        ("<", 1.0, 2.0, 1.0, False),
        ("<", 1.0, 2.0, 1.5, None),
        ("<=", 1.0, 2.0, 2.0, True),
        ("<=", 2.0, 3.0, 2.0, None),
        (">", 1.0, 2.0, 0.5, True),
        (">", 1.0, 2.0, 2.0, False),
        (">=", 1.0, 2.0, 1.0, True),
        ("==", 2.0, 2.0, 2.0, True),
        ("==", 1.0, 3.0, 2.0, None),
        ("==", 1.0, 1.5, 2.0, False),
        ("!=", 1.0, 1.5, 2.0, True),
    ],
)
def test_a_comparison_of_an_interval_has_three_outcomes(sign, low, high, limit, holds):
    assert compared(sign, low, high, limit) is holds


def test_the_number_of_a_model_is_the_worst_of_its_layers():
    made = report(spectrum=(layer(0.9, name="a"), layer(0.99, name="b")))
    (gate,) = scan_gates("margin<0.05")
    assert gate.judge(made).reason == "margin = 0.01 at b"
    assert not scan_gates("margin<0.001")[0].judge(made).hit
    assert scan_gates("margin.a<0.2")[0].judge(made).reason == "margin.a = 0.1"


def test_what_was_not_measured_hits_a_gate_and_says_so():
    result = NumberGate("depth<3", "depth", "<", 3.0).judge(with_metrics())
    assert result.hit
    assert result.reason == "depth, which was not measured"
    result = NumberGate("depth<3", "depth", "<", 3.0).judge(with_metrics(Metric("depth", None)))
    assert result.hit


def test_a_count_beyond_the_window_is_at_least_one_more():
    metric = Metric("depth", math.inf, beyond=127, whole=True, within="horizon")
    made = with_metrics(metric)
    assert not NumberGate("", "depth", "<", 128.0).judge(made).hit
    assert NumberGate("", "depth", ">", 100.0).judge(made).reason == "depth = beyond 127"
    unknown = NumberGate("", "depth", "<", 500.0).judge(made)
    assert unknown.hit
    assert "measure with --horizon 500 or more" in unknown.reason


def test_layers_that_were_not_measured_count_only_where_they_could_matter():
    metric = Metric("margin", over="min", better="more")
    made = with_metrics(metric.at(0.5, layer="a"), metric.at(None, layer="b"))
    assert NumberGate("", "margin", "<", 0.1).judge(made).hit  # b may be below
    assert not NumberGate("", "margin", ">", 0.6).judge(made).hit  # b can only lower it


def test_names_are_found_however_they_are_spelled():
    made = with_metrics(Metric("impulse/half_life", 3.0))
    for name in ("impulse.half_life", "impulse/half-life", "memaudit/impulse/half_life"):
        assert NumberGate("", name, ">", 1.0).judge(made).hit


@pytest.mark.parametrize(
    ("word", "fact"),
    [
        ("margn<1", "knows no number"),
        ("margin<abc", "is no number"),
        ("margin=1", "has no operator"),
        ("<1", "wants NAME<NUMBER"),
        ("margin<5%", "nothing is before"),
        ("time_scale<-1", "is never negative"),
        ("MA999", "knows no level or finding"),
        ("MA208", "family"),
        ("radius<1", "stability is not asked for"),
    ],
)
def test_a_gate_that_cannot_work_is_refused_before_the_scan(word, fact):
    with pytest.raises(ArgumentError, match=fact):
        scan_gates(word)


def test_a_level_is_hit_by_everything_above_it():
    finding = Finding("MA201", "near-boundary", "warning", "m", "a", "l0")
    made = Report(identity(), {}, findings=(finding,))
    assert parse_finding("note").judge(made).reason == "MA201 near-boundary at l0"
    assert not parse_finding("error").judge(made).hit
    assert parse_finding("near-boundary").judge(made).hit


def test_a_finding_whose_probe_did_not_run_is_unknown_and_hits():
    result = parse_finding("MA201").judge(Report(identity(), {"probes": ["spectrum"]}))
    assert result.hit
    assert result.reason == "MA201, for spectrum was not measured"


def test_changes_are_in_percent_of_what_it_was():
    before, after = (report(spectrum=(layer(x),)) for x in (0.9, 0.95))
    fell, little = parse_changes(["margin<-20%", "margin<-60%"])
    assert fell.judge(after, before).reason.startswith("margin -50 % (0.1 at l0 -> 0.05 at l0)")
    assert not little.judge(after, before).hit
    assert percent(0.0, 0.0) == 0.0
    assert percent(0.0, 1.0) == math.inf


def test_only_new_findings_hit_a_gate_on_new_ones():
    finding = Finding("MA201", "near-boundary", "warning", "m", "a", "l0")
    one = report(spectrum=(layer(0.99999),), findings=(finding,))
    none = report(spectrum=(layer(0.9),))
    (gate,) = parse_changes(["new-warning"])
    assert gate.judge(one, none).reason == "new MA201 near-boundary at l0"
    assert not gate.judge(one, one).hit
