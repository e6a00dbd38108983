"""Gates on numbers and findings: what hits them, what they say, which are refused."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from memaudit.interfaces import Status
from memaudit.recall.result import Decoding, RecallResult
from memaudit.registry import BUILT_IN
from memaudit.report import GateResult, Identity, Recurrence, Report
from memaudit.testing.samples import gradients, precision, stability
from tests.cli.played import one_line
from tests.handmade import (
    assumption,
    curve,
    identity,
    linear_layer,
    of_kind,
    power_law,
    report,
)
from tests.spectrum.evidence import modes


def model() -> Report:
    """Horizon 139 under both queries but one lag, margin 0.1."""
    second = curve("impulse", horizon=140, half_life=5.0)
    return report(curve(), second, spectrum=(replace(modes(0.9), layer="cell.0"),))


@pytest.mark.parametrize(
    ("gate", "told"),
    [
        ("horizon<140", "horizon = 139 at heaviside"),
        ("horizon<139", None),
        ("horizon<=139", "horizon = 139 at heaviside"),
        ("horizon == 139", "horizon = 139 at heaviside"),
        ("horizon!=139", None),
        ("horizon != 1.4e2", "horizon = 139 at heaviside"),
        ("  horizon   >  100  ", "horizon = 139 at heaviside"),
        ("horizon>=139.5", None),
        ("impulse.horizon>139", "impulse.horizon = 140"),
        ("impulse/horizon>139", "impulse.horizon = 140"),
        ("memaudit/impulse/horizon>139", "impulse.horizon = 140"),
        ("half-life<6", "half_life = 5 at impulse"),
        ("half_life<.5e1", None),
        ("rate>+0.01", "rate = 0.05 at heaviside"),
        ("margin<0.2", "margin = 0.1 at cell.0"),
        ("margin<1e-4", None),
        ("margin.cell.0<0.2", "margin.cell.0 = 0.1"),
        ("time_scale>1", "time_scale = 9.491 at cell.0"),
        ("findings.note<1", "findings.note = 0"),
        ("coverage<1", None),
        ("exponent>1", "exponent, which was not measured"),
        ("margin/nobody<1", "margin.nobody, which was not measured"),
        ("lyapunov>0", "lyapunov, which was not measured"),
    ],
)
def test_a_number_hits_its_gate(run, stage, gate, told):
    stage.answer = model()
    code, _, err = run("--fail-on", gate)
    if told is None:
        assert (code, err) == (0, "")
    else:
        assert code == 1
        assert (
            one_line(err) == f"memaudit: gate --fail-on {' '.join(gate.split())} was hit by {told}"
        )


def test_a_horizon_beyond_the_window_is_below_nothing_that_was_measured(run, stage):
    stage.answer = report(power_law())
    assert run("--fail-on", "horizon<512")[::2] == (0, "")
    assert run("--horizon", "513", "--fail-on", "horizon<=512")[::2] == (0, "")
    code, _, err = run("--horizon", "513", "--fail-on", "horizon>512")
    assert code == 1
    assert "horizon = beyond 512" in one_line(err)


def test_a_radius_beyond_every_move_is_infinite(run, stage):
    made = stability()
    stage.answer = report(curve(), stability=replace(made, curves=made.curves[::-1]))
    words = ("--probe", "stability", "--fail-on")
    assert run(*words, "radius<0.5")[::2] == (0, "")
    code, _, err = run(*words, "radius<2")
    assert code == 1
    assert one_line(err).endswith(
        "was hit by radius, which is beyond 1, not measured far enough to tell"
    )
    assert "radius, which is beyond 1" in run(*words, "radius>2")[2]


def test_gates_stand_in_the_report(run, stage, tmp_path):
    stage.answer = model()
    path = tmp_path / "r.json"
    run("--fail-on", "horizon<140", "--fail-on", "error", "--json", str(path))
    told = json.loads(path.read_text())["gates"]
    assert told == [
        {"word": "horizon<140", "hit": True, "reason": "horizon = 139 at heaviside"},
        {"word": "error", "hit": False, "reason": ""},
    ]
    assert Report.load(path).gates[0] == GateResult("horizon<140", True, told[0]["reason"])


@pytest.mark.parametrize(
    ("words", "fact"),
    [
        (["horzon<100"], "knows no number 'horzon'; did you mean horizon"),
        (["nobody.horizon<1"], "knows no number 'nobody.horizon'; did you mean"),
        (["\x1b[31m<1"], "knows no number '[31m'"),
        (["horizon<"], "wants NAME<NUMBER"),
        (["horizon<many"], "compares with 'many', which is no number; write it as 1024"),
        (["horizon<nan"], "which is no number"),
        (["horizon<1_000"], "which is no number"),
        (["horizon<٣"], "compares with '٣', which is no number"),
        (["findings.bogus>0"], "knows no number 'findings.bogus'; did you mean findings."),
        (["horizon<<5"], "compares with '<5', which is no number"),
        (["horizon=5"], "has no operator; write =="),
        (["horizon=<5"], "write <="),
        (["horizon<-20"], "cannot tell: horizon is never negative; give a limit of 0 or more"),
        (["horizon<1024"], "beyond the 512 lags that are measured; measure with --horizon 1024 or"),
        (["horizon>600", "--horizon", "600"], "measure with --horizon 601 or more"),
        (["horizon<-20%"], "changes are for memaudit diff"),
        (["horizon"], "is a number, not a finding; compare it"),
        (["radius<0.1"], "stability is not asked for, and without it there is no radius"),
        (
            ["capacity<3"],
            "--probe replaces the default ones, so give --probe assumptions --probe spectrum "
            "--probe closed-form --probe recall",
        ),
        (["context.horizon<9"], "the query context is not asked for"),
        (["impulse.horizon<9", "--query", "heaviside"], "give --query heaviside --query impulse"),
        (["new-warning"], "knows no level or finding 'new-warning'; what is new is for memaudit"),
        (["MA999"], "did you mean MA"),
        (["MA205"], "precision is not asked for, and without it there is no MA205; --probe repl"),
        (["MA201", "--probe", "assumptions"], "give --probe assumptions --probe spectrum"),
        (["MA101", "--query", "impulse"], "the query heaviside is not asked for"),
        (["MA107", "--query", "impulse"], "give --query impulse --query heaviside"),
        (["MA114", "--query", "reversed"], "the query driven is not asked for"),
        (["MA208"], "MA208 is found on a family of models, not on one; give it to memaudit family"),
    ],
)
def test_a_bad_gate_is_refused_before_any_work(run, stage, words, fact):
    code, out, err = run("--fail-on", *words)
    assert (code, out, stage.calls) == (2, "", [])
    assert one_line(err).startswith("memaudit: error[E_ARGUMENT] ")
    assert fact in err
    assert "\x1b" not in err


def test_a_finding_whose_probe_failed_hits_its_gate(run, stage):
    words = ("--probe", "precision", "--fail-on", "MA205")
    settings = {**report(curve()).settings, "probes": ["precision"]}
    stage.answer = report(curve(), settings=settings, precision=precision())
    assert "not measured" not in run(*words)[2]  # the probe ran
    error = {"code": "E_MEMORY", "stage": "precision", "message": "no room", "hint": "--quick"}
    stage.answer = report(curve(), settings=settings, complete=False, errors=(error,))
    code, _, err = run(*words)
    assert code == 1
    told = "gate --fail-on MA205 was hit by MA205, for precision was not measured"
    assert err.splitlines()[0] == f"memaudit: {told}"


# Names of layers on a command line: the exact one wins, and all that sound alike are judged.


def layer(name: str, slowest: float):
    return replace(modes(slowest), layer=name)


@pytest.mark.parametrize(
    ("gate", "told"),
    [
        ("margin.Block-A<0.3", None),
        ("memaudit/margin/Block-A<0.3", None),
        ("margin.block_a<0.3", "margin.block_a = 0.2"),
        ("margin.BLOCK_A<0.3", "margin.block_a = 0.2"),
        ("margin.BLOCK_A<0.6", "margin.Block-A = 0.5 and 1 more"),
        ("margin.BLOCK_A<0.1", None),
    ],
)
def test_the_exact_name_wins_and_else_every_like_one_is_judged(run, stage, gate, told):
    spectrum = (layer("Block-A", 0.5), layer("block_a", 0.8))
    stage.answer = report(curve(), spectrum=spectrum)
    code, _, err = run("--fail-on", gate)
    if told is None:
        assert (code, err) == (0, "")
    else:
        assert code == 1
        assert one_line(err) == f"memaudit: gate --fail-on {gate} was hit by {told}"


# Gates on numbers of the whole model, where a part of it was asked and could not be measured.


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
def test_a_query_without_a_verdict_keeps_no_gate_open(run, stage, curves, gate, told):
    assert judged(run, stage, report(*curves), gate) == told


def test_a_query_that_was_looked_at_less_far_than_the_number_is_large_keeps_no_gate_open(
    run, stage
):
    brief = of_kind("persistent", "impulse")
    short = {name: getattr(brief, name)[:32] for name in ("lags", "values", "median")}
    made = report(curve(), replace(brief, **short))
    last = int(short["lags"][-1])
    assert judged(run, stage, made, f"horizon<{last}") is None
    told = judged(run, stage, made, f"horizon<{last + 2}")
    assert told == "horizon, which is 139 at heaviside, not measured far enough to tell"
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
        "half_life, which is beyond 512, not measured far enough to tell; "
        "measure with --horizon 2000 or more"
    )


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
def test_a_layer_without_a_verdict_keeps_no_gate_open(run, stage, gate, told):
    assert judged(run, stage, layered(), gate) == told


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


def test_a_state_that_was_not_read_may_recall_more(run, stage):
    def state(name: str, capacity: float | None) -> Decoding:
        counts = {"numbers": 8, "used": 8, "inputs": 1, "half": 3, "samples": 100}
        kinds = {"kind": "state", "exact": False, "status": Status.OK, "floor": 0.0}
        return Decoding(state=name, values=np.zeros(3), capacity=capacity, **counts, **kinds)

    recall = RecallResult((), (state("a", 3.0), state("b", None)), 8, "noise", Status.OK)
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
