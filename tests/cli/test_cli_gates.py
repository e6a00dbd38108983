"""Gates on numbers: what hits them, what they say, and which are refused before any work."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from memaudit.report import Finding, GateResult, Report
from memaudit.testing.samples import precision, stability
from tests.cli.played import one_line
from tests.handmade import LAGS, curve, power_law, report
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


def test_every_gate_that_is_hit_has_a_line(run, stage):
    stage.answer = model()
    words = ("horizon<140", "horizon<10", "half_life<6", "error")
    code, _, err = run(*(word for gate in words for word in ("--fail-on", gate)))
    assert code == 1
    assert err.splitlines() == [
        "memaudit: gate --fail-on horizon<140 was hit by horizon = 139 at heaviside",
        "memaudit: gate --fail-on half_life<6 was hit by half_life = 5 at impulse",
    ]


def test_findings_that_hit_a_gate_are_counted(run, stage, monkeypatch):
    many = tuple(Finding("MA206", "gradient-range", "warning", "m", "a", w) for w in "xyz")
    monkeypatch.setattr("tests.cli.played.judge", lambda made: many)
    assert one_line(run("--fail-on", "warning")[2]) == (
        "memaudit: gate --fail-on warning was hit by MA206 gradient-range at x and 2 more"
    )


def test_a_horizon_beyond_the_window_is_below_nothing_that_was_measured(run, stage):
    stage.answer = report(power_law())
    assert run("--fail-on", "horizon<512")[::2] == (0, "")
    assert run("--horizon", "513", "--fail-on", "horizon<=512")[::2] == (0, "")
    code, _, err = run("--horizon", "513", "--fail-on", "horizon>512")
    assert code == 1
    assert "horizon = beyond 512" in one_line(err)


def test_a_limit_where_nobody_looked_hits_the_gate(run, stage):
    stage.answer = report(power_law())  # a model, say, that takes no more than 513 steps
    code, _, err = run("--horizon", "1024", "--fail-on", "horizon<1024")
    assert code == 1
    assert one_line(err) == (
        "memaudit: gate --fail-on horizon<1024 was hit by horizon, which is beyond 512, "
        "where nobody looked; measure with --horizon 1024 or more"
    )


def test_a_hidden_horizon_does_not_pass(run, stage):
    stage.answer = report(curve(values=np.exp(-0.05 * LAGS), floor=0.01, horizon=None))
    code, _, err = run("--fail-on", "horizon<10")
    assert code == 1
    assert one_line(err).endswith("was hit by horizon, which was not measured")


def test_a_radius_beyond_every_move_is_infinite(run, stage):
    made = stability()
    stage.answer = report(curve(), stability=replace(made, curves=made.curves[::-1]))
    words = ("--probe", "stability", "--fail-on")
    assert run(*words, "radius<0.5")[::2] == (0, "")
    code, _, err = run(*words, "radius<2")
    assert code == 1
    assert one_line(err).endswith("was hit by radius, which is beyond 1, where nobody looked")
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


def test_a_report_from_before_there_were_gates_still_loads():
    data = model().to_dict()
    del data["gates"]
    assert Report.from_dict(data) == model()


def test_a_gate_beats_incomplete_and_the_errors_are_still_told(run, stage):
    error = {"code": "E_MEMORY", "stage": "x", "message": "no room", "hint": "--quick"}
    stage.answer = replace(model(), complete=False, errors=(error,))
    code, _, err = run("--fail-on", "horizon<140")
    assert code == 1
    assert [line.split()[1] for line in err.splitlines()] == ["gate", "error[E_MEMORY]", "the"]
    assert run("--fail-on", "horizon<10")[0] == 4


@pytest.mark.parametrize(
    ("words", "fact"),
    [
        (["horzon<100"], "knows no number 'horzon'; did you mean horizon"),
        (["impulse.horzon<100"], "did you mean impulse.horizon"),
        (["nobody.horizon<1"], "knows no number 'nobody.horizon'; did you mean"),
        (["\x1b[31m<1"], "knows no number '[31m'"),
        (["horizon<"], "wants NAME<NUMBER"),
        (["<5"], "wants NAME<NUMBER"),
        (["<"], "wants NAME<NUMBER"),
        (["horizon<many"], "compares with 'many', which is no number; write it as 1024"),
        (["horizon<1e999"], "which is no number"),
        (["horizon<nan"], "which is no number"),
        (["horizon<inf"], "which is no number"),
        (["horizon<1_000"], "which is no number"),
        (["horizon<٣"], "compares with '٣', which is no number"),
        (["horizon<\uff13"], "which is no number"),
        (["findings.bogus>0"], "knows no number 'findings.bogus'; did you mean findings."),
        (["findings.note.x>0"], "knows no number 'findings.note.x'"),
        (["findings>0"], "knows no number 'findings'"),
        (["horizon<<5"], "compares with '<5', which is no number"),
        (["1<horizon<5"], "no number"),
        (["horizon=5"], "has no operator; write =="),
        (["horizon=<5"], "write <="),
        (["horizon=>5"], "write >="),
        (["horizon<-20"], "cannot tell: horizon is never negative; give a limit of 0 or more"),
        (["horizon<1024"], "beyond the 512 lags that are measured; measure with --horizon 1024 or"),
        (["impulse.horizon<=512"], "measure with --horizon 513 or more"),
        (["horizon>600", "--horizon", "600"], "measure with --horizon 601 or more"),
        (["horizon<-20%"], "changes are for memaudit diff"),
        (["horizon"], "is a number, not a finding; compare it"),
        (["radius<0.1"], "stability is not asked for, and without it there is no radius"),
        (
            ["capacity<3"],
            "--probe replaces the default ones, so give --probe assumptions --probe spectrum "
            "--probe closed-form --probe recall",
        ),
        (["margin<1", "--probe", "stability"], "give --probe stability --probe spectrum"),
        (["context.horizon<9"], "the query context is not asked for"),
        (["impulse.horizon<9", "--query", "heaviside"], "give --query heaviside --query impulse"),
        (["new-warning"], "knows no level or finding 'new-warning'; what is new is for memaudit"),
        (["MA999"], "did you mean MA"),
        (["MA205"], "precision is not asked for, and without it there is no MA205; --probe repl"),
        (["format-unsafe"], "precision is not asked for, and without it there is no MA205"),
        (["MA206"], "gradient is not asked for"),
        (["MA201", "--probe", "assumptions"], "give --probe assumptions --probe spectrum"),
        (["MA116", "--probe", "spectrum"], "closed-form is not asked for"),
        (["MA301", "--probe", "spectrum"], "assumptions is not asked for"),
        (["MA101", "--query", "impulse"], "the query heaviside is not asked for"),
        (["MA107", "--query", "impulse"], "give --query impulse --query heaviside"),
        (["MA107", "--query", "impulse", "--query", "context"], "the query heaviside is not"),
        (["MA114", "--query", "heaviside"], "the query impulse is not asked for"),
        (["MA114", "--query", "reversed"], "the query heaviside is not asked for"),
        (["MA115", "--query", "heaviside"], "the query impulse is not asked for"),
        (["MA208"], "MA208 is found on a family of models, not on one; give it to memaudit family"),
        (["weight-growth"], "MA209 is found on a family of models, not on one"),
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


def test_gates_come_from_the_environment_without_blanks(run, stage, monkeypatch):
    stage.answer = model()
    monkeypatch.setenv("MEMAUDIT_FAIL_ON", "horizon<10 half_life<6")
    code, _, err = run()
    assert code == 1
    assert "half_life = 5" in one_line(err)
    monkeypatch.setenv("MEMAUDIT_FAIL_ON", "horizon < 10")
    assert "without blanks in MEMAUDIT_FAIL_ON" in run()[2]


def test_an_interrupted_audit_has_no_gates(run, stage, tmp_path):
    from tests.cli.played import Interrupted

    stage.answer = Interrupted(replace(model(), complete=False))
    code, _, err = run("--fail-on", "horizon<140", "--json", str(tmp_path / "r.json"))
    assert code == 130
    assert "gate" not in err
    assert Report.load(tmp_path / "r.json").gates == ()
