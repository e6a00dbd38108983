"""`memaudit diff --fail-on`: changes in percent, findings that are new, and the later report."""

from __future__ import annotations

from dataclasses import replace

import pytest

from memaudit.cli import main
from memaudit.gates import percent
from memaudit.report import Finding, Report
from tests.cli.played import one_line
from tests.handmade import LAGS, curve, power_law, report

NOTE = Finding("MA105", "supremum-at-edge", "note", "text one", "advice")
WARNING = Finding("MA201", "near-boundary", "warning", "text two", "advice", "cell")


def shorter(horizon: int, **changes) -> Report:
    return report(curve(horizon=horizon, half_life=horizon / 10), **changes)


@pytest.fixture
def gate(tmp_path, capsys):
    def gate(before: Report, after: Report, *words: str) -> tuple[int, str]:
        paths = [before.save(tmp_path / "a.json"), after.save(tmp_path / "b.json")]
        gates = [word for gate in words for word in ("--fail-on", gate)]
        code = main(["diff", *map(str, paths), *gates])
        return code, capsys.readouterr().err

    return gate


@pytest.mark.parametrize(
    ("word", "told"),
    [
        ("horizon<-20%", "horizon -25 % (100 at heaviside -> 75 at heaviside)"),
        ("horizon < -20 %", "horizon -25 % (100 at heaviside -> 75 at heaviside)"),
        ("horizon<-25%", None),
        ("horizon<=-25%", "horizon -25 % (100 at heaviside -> 75 at heaviside)"),
        ("horizon<-30%", None),
        ("horizon>+10%", None),
        ("horizon!=0%", "horizon -25 % (100 at heaviside -> 75 at heaviside)"),
        ("heaviside.horizon<-20%", "heaviside.horizon -25 % (100 -> 75)"),
        ("rate!=0%", None),
        ("horizon<80", "horizon = 75 at heaviside"),
        ("horizon<75", None),
        ("warning", None),
        ("new-warning", None),
        ("radius<-1%", "radius, which was not measured"),
    ],
)
def test_a_change_hits_its_gate(gate, word, told):
    code, err = gate(shorter(100), shorter(75), word)
    if told is None:
        assert (code, err) == (0, "")
    else:
        assert code == 1
        assert one_line(err) == f"memaudit: gate --fail-on {word} was hit by {told}"


@pytest.mark.parametrize(
    ("before", "after", "word", "told"),
    [
        (power_law(), power_law(), "horizon!=0%", None),
        (
            power_law(),
            curve(),
            "horizon<-20%",
            "horizon beyond what was looked at (beyond 512 -> 139 at heaviside)",
        ),
        (curve(), power_law(), "horizon<-20%", None),
        (
            curve(),
            power_law(),
            "horizon>50%",
            "horizon beyond what was looked at (139 at heaviside -> beyond 512)",
        ),
        (curve(horizon=0), curve(), "horizon>50%", "horizon +inf % (0 at heaviside -> 139 at"),
        (curve(horizon=0), curve(horizon=0), "horizon!=0%", None),
    ],
)
def test_what_lies_beyond_the_window_counts_as_infinite(gate, before, after, word, told):
    code, err = gate(report(before), report(after), word)
    assert code == (0 if told is None else 1)
    assert (told or "") in err


def test_a_window_that_grew_is_no_fall(gate):
    long = {"settings": {"horizon": 2048, "seed": 0, "level": "standard"}}
    before = report(power_law())
    code, err = gate(before, report(curve(horizon=532), **long), "horizon<-20%")
    assert code == 0
    assert one_line(err) == (
        "memaudit: gate --fail-on horizon<-20% was not hit: "
        "horizon (beyond 512 -> 532 at heaviside) is no fall"
    )
    far = power_law(lags=4 * LAGS)
    assert gate(before, report(far, **long), "horizon<-20%")[0] == 0
    assert gate(report(far, **long), before, "horizon<-20%")[0] == 1


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ("a.npy, 8 sequences", "a.npy, 256 sequences", None),
        ("a.npy, 8 sequences", "b.npy, 8 sequences", "measured on other inputs: a.npy -> b.npy"),
    ],
)
def test_a_change_on_other_inputs_is_unknown(gate, before, after, told):
    reports = [report(curve("driven", normalization="none", fed=fed)) for fed in (before, after)]
    code, err = gate(*reports, "horizon<-20%")
    assert code == (0 if told is None else 1)
    assert (told or "") in err


def test_a_change_on_other_data_of_the_same_name_is_unknown(gate):
    used = curve("driven", normalization="none", fed="a.npy, 8 sequences")
    data = [f"a.npy, (1, 9, 1), sha256 {digest}" for digest in ("12", "34")]
    reports = [report(used, curve(), settings={"data": text}) for text in data]
    code, err = gate(*reports, "driven.horizon<-20%")
    assert code == 1
    assert "measured with other settings: data a.npy, (1, 9, 1), sha256 12 -> " in err
    assert gate(*reports, "heaviside.horizon<-20%")[0] == 0  # it makes its own inputs


@pytest.mark.parametrize("name", ["horizon", "half_life", "radius", "confidence"])
def test_a_forgotten_percent_sign_is_named(name, capsys):
    code = main(["diff", "missing.json", "missing.json", "--fail-on", f"{name}<-20"])
    assert code == 2
    assert f"{name} is never negative; did you mean" in one_line(capsys.readouterr().err)


@pytest.mark.parametrize(
    ("before", "after", "word", "told"),
    [
        ((), (WARNING,), "new-warning", "new MA201 near-boundary at cell"),
        ((), (WARNING,), "new-note", "new MA201 near-boundary at cell"),
        ((), (WARNING,), "new-error", None),
        ((), (WARNING,), "NEW-ma201", "new MA201 near-boundary at cell"),
        ((), (WARNING,), "new-near-boundary", "new MA201 near-boundary at cell"),
        ((), (WARNING,), "new-MA105", None),
        ((WARNING,), (WARNING,), "new-warning", None),
        ((WARNING,), (WARNING,), "warning", "MA201 near-boundary at cell"),
        ((WARNING,), (), "new-note", None),
        ((NOTE,), (replace(NOTE, severity="warning"),), "new-warning", "new MA105"),
        ((NOTE,), (replace(NOTE, severity="warning"),), "new-note", None),
        ((WARNING,), (replace(WARNING, severity="note"),), "new-note", None),
        ((), (NOTE, WARNING), "new-note", "new MA105 supremum-at-edge and 1 more"),
    ],
)
def test_a_finding_that_is_new_hits_its_gate(gate, before, after, word, told):
    code, err = gate(report(curve(), findings=before), report(curve(), findings=after), word)
    assert code == (0 if told is None else 1)
    assert (told or "") in err


@pytest.mark.parametrize(
    ("word", "fact"),
    [
        ("new-MA208", "MA208 is found on a family of models, not on one"),
        ("horzon<-20%", "did you mean horizon"),
        ("horizon<%", "which is no number"),
        ("horizon<-20%%", "which is no number"),
        ("horizon<", "wants NAME<NUMBER"),
        ("new-", "--fail-on new- does not say what is new; give a level or a finding: new-warn"),
        ("new- ", "does not say what is new"),
        ("horizon<-٣%", "which is no number"),
        ("findings.bogus>0", "knows no number 'findings.bogus'"),
        ("new-warnin", "did you mean warning"),
        ("horizon", "is a number, not a finding"),
    ],
)
def test_a_bad_gate_is_refused_before_a_file_is_read(word, fact, capsys):
    code = main(["diff", "missing.json", "missing.json", "--fail-on", word])
    out, err = capsys.readouterr()
    assert (code, out) == (2, "")
    assert fact in one_line(err)


@pytest.mark.parametrize(
    ("old", "new", "wanted"), [(100, 93, -7.0), (50, 36, -28.0), (100, 107, 7.0), (25, 18, -28.0)]
)
def test_a_change_that_meets_its_limit_meets_it_exactly(old, new, wanted):
    assert percent(float(old), float(new)) == wanted
