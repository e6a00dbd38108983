"""Gates on numbers of the whole model, where a part of it was asked and could not be measured."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from memaudit.memory.result import Decay, Status
from memaudit.recall.result import Decoding, Recall
from memaudit.registry import BUILT_IN
from memaudit.report import Identity, Recurrence, Report
from memaudit.testing.samples import gradients, precision, stability
from tests.cli.played import one_line
from tests.handmade import (
    LAGS,
    assumption,
    curve,
    identity,
    linear_layer,
    of_kind,
    power_law,
    report,
)
from tests.spectrum.evidence import modes

EVERYTHING = [word for probe in BUILT_IN["probes"] for word in ("--probe", probe)]
SHUT = of_kind("undetermined", "context", values=np.zeros(0), status=Status.NO_TOKENS)
HIDDEN = curve("impulse", floor=0.01, horizon=None)
UNDER_IMPULSE = "was not measured for impulse"


def judged(run, stage, made: Report, gate: str) -> str | None:
    """What hit the gate, None where nothing did."""
    stage.answer = made
    code, _, err = run("--fail-on", gate, *EVERYTHING)
    if code == 0:
        assert err == ""
        return None
    assert code == 1
    return one_line(err).removeprefix(f"memaudit: gate --fail-on {gate} was hit by ")


@pytest.mark.parametrize(
    ("curves", "gate", "told"),
    [
        ((curve(), HIDDEN), "horizon<10", f"horizon, which {UNDER_IMPULSE}"),
        ((curve(), SHUT), "horizon<10", "horizon, which was not measured for context"),
        ((curve(), HIDDEN, SHUT), "horizon<9", f"horizon, which {UNDER_IMPULSE} and 1 more"),
        ((curve(), SHUT), "half_life<10", "half_life, which was not measured for context"),
        ((curve(), SHUT), "rate>1", "rate, which was not measured for context"),
        ((curve(), HIDDEN), "horizon<140", "horizon = 139 at heaviside"),
        ((curve(), HIDDEN), "horizon==10", f"horizon, which {UNDER_IMPULSE}"),
        ((curve(), HIDDEN), "horizon!=139", f"horizon, which {UNDER_IMPULSE}"),
        # The least of them is at most what was seen: nothing unseen makes it larger.
        ((curve(), HIDDEN), "horizon>200", None),
        ((curve(), HIDDEN), "horizon==200", None),
        ((curve(), HIDDEN), "heaviside.horizon<10", None),
        ((curve(), SHUT), "rate<0.01", None),
        # Another kind of decay has no rate, which is known; no kind at all is not.
        ((curve(), power_law("impulse")), "rate>1", None),
        ((curve(), of_kind("undetermined", "impulse")), "rate>1", f"rate, which {UNDER_IMPULSE}"),
    ],
)
def test_a_query_that_tells_nothing_keeps_no_gate_open(run, stage, curves, gate, told):
    assert judged(run, stage, report(*curves), gate) == told


def test_a_query_that_was_asked_and_is_nowhere_hits_the_gate(run, stage):
    made = report(curve())
    memory = replace(made["memory"], requested=("heaviside", "mine"))
    made = replace(made, results={**made.results, "memory": memory})
    found = judged(run, stage, made, "horizon<10")
    assert found == "horizon, which was not measured for mine"


def test_a_query_that_was_looked_at_less_far_than_the_number_is_large_keeps_no_gate_open(
    run, stage
):
    brief = of_kind("persistent", "impulse")
    short = {name: getattr(brief, name)[:32] for name in ("lags", "values", "median")}
    made = report(curve(), replace(brief, **short))
    last = int(short["lags"][-1])
    assert judged(run, stage, made, f"horizon<{last}") is None
    told = judged(run, stage, made, f"horizon<{last + 2}")
    assert told == "horizon, which is 139 at heaviside, where nobody looked"
    assert judged(run, stage, made, "horizon<140") == "horizon = 139 at heaviside"


@pytest.mark.parametrize("kind", ["persistent", "growing"])
def test_what_never_halves_has_a_half_life_beyond_the_window(run, stage, kind):
    made = report(curve(), of_kind(kind, "impulse"))
    assert judged(run, stage, made, "half_life<10") is None
    assert judged(run, stage, made, "half_life<14") == "half_life = 13.86 at heaviside"
    alone = report(of_kind(kind))
    assert judged(run, stage, alone, "half_life<500") is None
    assert judged(run, stage, alone, "half_life>500") == "half_life = beyond 512"
    assert judged(run, stage, alone, "half_life<2000") == (
        "half_life, which is beyond 512, where nobody looked; measure with --horizon 2000 or more"
    )


def test_a_half_life_counts_from_the_top(run, stage):
    late = power_law(values=np.where(LAGS < 400, 0.1, 1.0), half_life=None)
    assert judged(run, stage, report(late), "half_life<100") is None
    found = judged(run, stage, report(late), "half_life<200")
    assert found == "half_life, which is beyond 112, where nobody looked"


def test_a_top_in_the_noise_has_no_half_life(run, stage):
    faint = power_law("impulse", values=LAGS**-0.01, floor=0.1, half_life=None)
    found = judged(run, stage, report(curve(), faint), "half_life<10")
    assert found == "half_life, which was not measured for impulse"


def test_a_layer_of_a_host_that_is_not_seen_may_be_the_longest(run, stage):
    layers = {"a": {"heaviside": curve()}, "b": {"heaviside": replace(HIDDEN, query="heaviside")}}
    made = report(curve(), layers=layers)
    for name in ("horizon", "heaviside.horizon"):
        found = judged(run, stage, made, f"{name}>200")
        assert found == f"{name}, which was not measured for b"
        assert judged(run, stage, made, f"{name}<100") is None


def with_recurrences(*names: str) -> Identity:
    return identity(recurrences=tuple(Recurrence(name, "lstm", 8, 100) for name in names))


def layered() -> Report:
    """Two layers, of which one has no number of any kind."""
    first, second = gradients()[0], replace(gradients()[0], layer="other", own=None)
    made = report(
        curve(),
        subject=with_recurrences("cell", "lost"),
        spectrum=(replace(modes(0.9), layer="cell", lyapunov=-0.1),),
        closed_form=(linear_layer("cell"), linear_layer("other", deviation=None)),
        gradient=(first, second),
        assumptions=(assumption("causal", True, where="a"), assumption("causal", None, where="b")),
    )
    spectrum = replace(made["spectrum"], unread=("lost",))
    return replace(made, results={**made.results, "spectrum": spectrum})


@pytest.mark.parametrize(
    ("gate", "told"),
    [
        ("margin<1e-4", "margin, which was not measured for lost"),
        ("margin<0.2", "margin = 0.1 at cell"),
        ("margin>0.2", None),
        ("margin.cell<1e-4", None),
        ("time_scale>100", "time_scale, which was not measured for lost"),
        ("lyapunov>0", "lyapunov, which was not measured for lost"),
        ("deviation>1e-3", "deviation, which was not measured for other"),
        ("gradient_over_weight>100", "gradient_over_weight, which was not measured for other"),
        ("gradient_over_weight>40", "gradient_over_weight = 41 at cell"),
        ("gradient_over_weight<1", None),
        ("assumptions.causal<1", "assumptions.causal, which was not measured for b"),
    ],
)
def test_a_layer_that_tells_nothing_keeps_no_gate_open(run, stage, gate, told):
    assert judged(run, stage, layered(), gate) == told


def test_a_layer_without_a_finite_number_is_not_the_least(run, stage):
    broken = replace(modes(0.9), layer="broken", margin=float("nan"))
    made = report(curve(), spectrum=(broken, replace(modes(0.8), layer="cell")))
    assert judged(run, stage, made, "margin<0.1") == "margin, which was not measured for broken"
    assert judged(run, stage, made, "margin<0.3") == "margin = 0.2 at cell"


def test_a_format_whose_harm_is_not_known_everywhere_hits_its_gate(run, stage):
    made = precision()
    bad, good = made.roundings
    lost = replace(good.layers[0], layer="gone", margin_after=None)
    worse = replace(good, relative=None, layers=(lost,))
    part = replace(made, where="b", roundings=(bad, worse))
    told = report(curve(), precision=replace(made, where="a", others=(part,)))
    assert judged(run, stage, told, "precision.fp16.relative_error>0.1") == (
        "precision.fp16.relative_error, which was not measured for b"
    )
    assert judged(run, stage, told, "precision.fp16.reached>0") == (
        "precision.fp16.reached, which was not measured for gone"
    )
    assert judged(run, stage, told, "precision.bf16.relative_error>0.1") is None


def test_the_radius_of_a_host_is_the_smallest_of_its_parts(run, stage):
    made = stability()
    first = made.first
    near = replace(first.tolerance_radius, value=1e-3)
    other = replace(made, where="b", curves=(replace(first, tolerance_radius=near),))
    told = report(curve(), stability=replace(made, where="a", others=(other,)))
    assert judged(run, stage, told, "tolerance_radius<2e-3") == "tolerance_radius = 0.001"


def test_a_state_that_was_not_read_may_tell_more(run, stage):
    def state(name: str, capacity: float | None) -> Decoding:
        counts = {"numbers": 8, "used": 8, "inputs": 1, "half": 3, "samples": 100}
        kinds = {"kind": "state", "exact": False, "status": Status.OK, "floor": 0.0}
        return Decoding(state=name, values=np.zeros(3), capacity=capacity, **counts, **kinds)

    recall = Recall((), (state("a", 3.0), state("b", None)), 8, "noise", Status.OK)
    made = report(curve(), recall=recall)
    assert judged(run, stage, made, "capacity<2") is None
    assert judged(run, stage, made, "capacity<4") == "capacity, which was not measured for b"
    assert judged(run, stage, made, "capacity>4") == "capacity, which was not measured for b"


def test_gates_of_an_incomplete_audit_say_so_where_they_stand_open(run, stage, tmp_path):
    stage.answer = report(curve(), complete=False)
    code, _, err = run("--fail-on", "error", "--json", str(tmp_path / "r.json"))
    assert code == 4
    told = "as far as was measured, for the audit is incomplete"
    assert err.splitlines()[0] == f"memaudit: gate --fail-on error was not hit: {told}"
    assert [(g.hit, g.reason) for g in Report.load(tmp_path / "r.json").gates] == [(False, told)]


def test_a_decay_of_no_kind_is_no_rate(run, stage):
    none = curve("impulse", decay=Decay("memoryless"), horizon=0, half_life=None)
    made = report(curve(), none)
    memory = replace(made["memory"], baseline="natural")
    made = replace(made, results={**made.results, "memory": memory})
    assert judged(run, stage, made, "half_life<10") == (
        "half_life, which was not measured for impulse"
    )
