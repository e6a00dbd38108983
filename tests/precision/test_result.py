"""What the records of number formats say: metrics, sections, and the rule MA205."""

from __future__ import annotations

import math
from typing import Any

import pytest

import memaudit
from memaudit.precision.result import (
    PrecisionResult,
    RoundedLayer,
    RoundedMemory,
    Rounding,
    format_unsafe,
)
from memaudit.testing.samples import stability
from tests.handmade import report
from tests.precision.rounded_models import Diagonal

CALM = RoundedLayer("cell", 0.01, 0.012, 0, 0.002)
MOVED = RoundedLayer("cell", 0.001, 0.0, 1, 0.001)


def memory(**changes: Any) -> RoundedMemory:
    """An exponential of rate 0.05 that stays as it is."""
    fields = {
        **{"query": "impulse", "kind_before": "exponential", "kind_after": "exponential"},
        **{"rate_before": 0.05, "rate_after": 0.05, "horizon_before": 139, "horizon_after": 139},
        **{"change": 0.0},
    }
    return RoundedMemory(**{**fields, **changes})


def rounding(name: str = "bf16", *, beta: float = 1e-3, **changes: Any) -> Rounding:
    sizes = {"spectral": beta, "frobenius": beta, "max-abs": beta}
    fields = {"error": 0.1, "relative": 0.05, "layers": (CALM,), "memory": (memory(),)}
    return Rounding(name, sizes, **{**fields, **changes})


def found(*roundings: Rounding, **changes: Any):
    made = PrecisionResult(roundings, ("lam",), "sobolev", **changes)
    return list(format_unsafe.check(report(precision=made)))


def test_modes_on_the_boundary_are_an_error_reported_once_per_layer():
    (item,) = found(
        rounding(layers=(MOVED,)), rounding("fp8-e5m2", layers=(MOVED,)), rounding("fp16")
    )
    assert (item.code, item.severity, item.where) == ("MA205", "error", "cell")
    told = "bf16, fp8-e5m2: 1 mode reaches the boundary, margin 0.001 to 0"
    assert item.message == f"formats that are not safe for the recurrent weights: {told}"
    assert item.advice.startswith("keep lam in float32 when the model is cast or quantized; ")


def test_a_memory_that_grows_is_an_error():
    (item,) = found(rounding(memory=(memory(kind_after="growing", rate_after=-0.1),)))
    assert item.severity == "error"
    assert "bf16: the memory under impulse grows" in item.message


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"horizon_after": 279}, "the horizon under impulse goes from 139 to 279"),
        ({"horizon_after": 69}, "the horizon under impulse goes from 139 to 69"),
        ({"horizon_after": 0, "kind_after": "memoryless"}, "goes from 139 to 0"),
        (
            {"rate_after": 0.101, "horizon_before": None},
            "the rate under impulse goes from 0.05 to 0.1",
        ),
        ({"kind_after": "persistent", "rate_after": None}, "under impulse no longer decays"),
    ],
)
def test_a_horizon_or_rate_far_off_is_a_warning(changes, said):
    (item,) = found(rounding(memory=(memory(**changes),)))
    assert item.severity == "warning"
    assert said in item.message


@pytest.mark.parametrize(
    "changes",
    [{"horizon_after": 278}, {"horizon_after": 70}, {"horizon_after": None}, {"rate_after": 0.1}],
)
def test_up_to_a_factor_of_two_nothing_is_said(changes):
    assert found(rounding(memory=(memory(**changes),))) == []


def test_an_overflow_is_an_error_at_the_only_layer():
    lost = rounding("fp16", beta=math.inf, layers=(), memory=(), note="3 numbers overflow; not run")
    (item,) = found(rounding(), lost)
    assert (item.severity, item.where) == ("error", "cell")
    assert "fp16: 3 numbers overflow" in item.message


def test_in_a_model_of_several_layers_the_whole_is_reported_apart_and_not_twice():
    layers = (MOVED, RoundedLayer("other", 0.1, 0.1, 0, 0.0))
    calm = (CALM, layers[1])
    far = (memory(horizon_after=500),)
    first, second = found(
        rounding(layers=layers, memory=far), rounding("int8", layers=calm, memory=far)
    )
    assert (first.where, first.severity) == ("cell", "error")
    assert "horizon" not in first.message
    assert (second.where, second.severity) == ("", "warning")
    assert "weights: int8: the horizon" in second.message


def test_the_parts_of_a_host_are_reported_with_their_place():
    part = PrecisionResult(
        (rounding(layers=(MOVED,)),), ("a", "b", "c", "d"), "sobolev", where="enc"
    )
    (item,) = found(rounding(), where="dec", others=(part,))
    assert item.where == "enc: cell"
    assert item.advice.startswith("keep a, b, c and 1 more weights in float32")


@pytest.mark.parametrize(("lam", "raised"), [(0.999, True), (0.99, False)])
def test_an_eigenvalue_stored_directly_in_bf16_is_flagged_where_it_rounds_to_one(lam, raised):
    subject = memaudit.wrap(Diagonal(lam), input_size=1)
    options = {"precision.formats": "bf16,fp16"}
    made = memaudit.scan(subject, horizon=128, probes=["precision"], **options)
    told = [item.message for item in made.findings if item.code == "MA205"]
    assert bool(told) is raised
    assert all("weights: bf16: 1 mode reaches the boundary, margin 0.001 to 0" in t for t in told)


def test_the_metrics_are_those_of_the_part_that_bears_a_format_worst():
    part = PrecisionResult(
        (rounding(relative=0.2, layers=(MOVED,)),), ("a",), "sobolev", where="enc"
    )
    lost = PrecisionResult((rounding(relative=None, layers=()),), ("a",), "sobolev", where="out")
    made = report(
        precision=PrecisionResult(
            (rounding(),), ("lam",), "sobolev", where="dec", others=(part, lost)
        )
    )
    metrics = {k: v for k, v in made.metrics().items() if "precision" in k}
    assert metrics == {
        "memaudit/precision/bf16/relative_error": 0.2,
        "memaudit/precision/bf16/reached": 1.0,
    }
    assert [m.unknown for m in made.numbers() if "precision" in m.name] == [("out",), ("out",)]


def test_a_format_that_was_not_run_has_no_metrics():
    made = PrecisionResult(
        (rounding("fp16", beta=math.inf, relative=None, layers=()),), (), "sobolev"
    )
    assert list(made.metrics()) == []


def test_the_table_has_moves_errors_margins_horizons_and_a_verdict():
    lost = rounding("fp16", beta=math.inf, error=None, relative=None, layers=(), memory=())
    far = rounding("int8", memory=(memory(horizon_after=300),))
    made = PrecisionResult(
        (rounding(layers=(MOVED,)), lost, far, rounding("int4", relative=0.11)), ("lam",), "sobolev"
    )
    (section,) = made.sections()
    (table,) = section.tables
    assert table.rows == (
        ("bf16", 1e-3, 1e-3, 0.05, 0.0, 139, 139, "boundary"),
        ("fp16", math.inf, math.inf, None, None, None, None, "overflow"),
        ("int8", 1e-3, 1e-3, 0.05, 0.012, 139, 300, "changes"),
        ("int4", 1e-3, 1e-3, 0.11, 0.012, 139, 139, "answers off"),
    )
    assert section.line == "boundary: bf16; overflow: fp16; changes: int8; answers off: int4"


def test_of_a_host_the_part_that_bears_a_format_worst_is_shown():
    part = PrecisionResult(
        (rounding(layers=(MOVED,)),), ("a",), "sobolev", where="enc", note="a note"
    )
    (section,) = PrecisionResult(
        (rounding(),), ("b",), "sobolev", where="dec", others=(part,)
    ).sections()
    assert [row[-2:] for row in section.tables[0].rows] == [("boundary", "enc")]
    assert section.text[-1] == "enc: a note"


def test_a_safe_format_beyond_the_tolerance_radius_is_told_as_worst_case_and_actual():
    far, near = rounding("fp8-e4m3", beta=0.25, relative=0.02), rounding("bf16", beta=0.1)
    unsafe = rounding("int4", beta=0.5, relative=0.3)
    made = {"tolerance": {"spectral": 0.138}}
    said = (
        "fp8-e4m3: a move of up to 0.25 (spectral), beyond the tolerance radius of 0.138. That "
        "radius is the worst case of all moves of a size; this rounding changes the answers by "
        "2 % at most"
    )
    (section,) = PrecisionResult((far, near, unsafe), ("lam",), "sobolev", **made).sections()
    assert section.text[-1] == said
    (item,) = found(far, near, unsafe, **made)
    assert item.message.endswith(f"of their size. Safe all the same are {said}")
    (section,) = PrecisionResult((near, unsafe), ("lam",), "sobolev", **made).sections()
    assert "worst case" not in " ".join(section.text)


def test_the_tolerance_radius_is_that_of_the_weights_that_are_rounded():
    subject = memaudit.wrap(Diagonal(0.9), input_size=1)
    options = {"level": "quick", "queries": ["impulse"], "precision.formats": "bf16"}
    made = memaudit.scan(subject, horizon=32, probes=["stability", "precision"], **options)
    (curve,) = [c for c in made.stability.curves if c.group == "recurrent"]
    assert made["precision"].tolerance == {"spectral": curve.tolerance_radius.value}


def test_formats_are_points_on_the_figure_of_e_of_beta():
    made = report(
        stability=stability(),
        precision=PrecisionResult((rounding(), rounding("fp32", beta=0.0)), ("lam",), "sobolev"),
    )
    figures = [figure for section in made.sections() for figure in section.figures]
    (figure,) = [figure for figure in figures if figure.title.startswith("E(beta)")]
    *lines, points = figure.series
    assert [line.name for line in lines] == ["recurrent", "readout"]
    assert (points.x.tolist(), points.y.tolist(), points.labels) == ([1e-3], [0.1], ("bf16",))
