"""`memaudit diff`: two files in, one page out; what is no report is one line and exit 3."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

from memaudit.cli import main
from memaudit.report import Report
from memaudit.testing.samples import gradients, precision, stability
from tests.cli.played import one_line
from tests.families.handmade import family_report, member
from tests.handmade import LAGS, curve, linear_layer, power_law, report
from tests.spectrum.evidence import modes

VERDICT = (
    "horizon 139 -> more than 512, half life 13.86 -> 4 (-71.1 %), "
    "margin 0.03 -> 0 (-100 %); findings: none"
)


def sample(*curves, **changes) -> Report:
    fields = {
        "spectrum": (modes(0.97),),
        "closed_form": (linear_layer(),),
        "stability": stability(),
        "precision": precision(),
        "gradient": gradients(),
    }
    return report(*(curves or (curve(values=np.exp(-0.05 * LAGS[:40])),)), **{**fields, **changes})


@pytest.fixture
def saved(tmp_path):
    before, after = sample(), sample(power_law(), spectrum=(modes(1.0, parameterization="direct"),))
    return before.save(tmp_path / "before.json"), after.save(tmp_path / "after.json")


@pytest.fixture
def diff(capsys):
    def diff(*words) -> tuple[int, str, str]:
        code = main(["diff", *map(str, words)])
        return code, *capsys.readouterr()

    return diff


def test_the_changes_are_shown_and_the_exit_is_zero(diff, saved):
    code, out, err = diff(*saved)
    assert (code, err) == (0, "")
    words = " ".join(out.split())
    assert words.startswith(f"memaudit demo:lstm: before and after {VERDICT}")
    assert "horizon 139 > 512 - better" in words
    assert "half_life 13.86 4 -71.1 worse" in words
    assert "time_scale 32.83 infinite" in words
    whole = " ".join(diff(*saved, "--verbose")[1].split())
    assert "heaviside decay exponential polynomial" in whole
    assert whole.endswith(VERDICT)


@pytest.mark.parametrize("option", ["--quiet", "-q"])
def test_quiet_prints_the_verdict_in_one_line(diff, saved, option):
    told = f"{VERDICT}\n"
    assert diff(*saved, option) == (0, told, "")
    code, out, err = diff(*saved, option, "--fail-on", "margin<-20%")
    assert (code, out) == (1, told)
    assert "gate --fail-on margin<-20% was hit" in err


def test_no_color_is_respected_where_colour_is_forced(saved, tmp_path):
    other = sample(settings={"horizon": 64}).save(tmp_path / "other.json")
    program = f"from memaudit.cli import main; main(['diff', {str(saved[0])!r}, {str(other)!r}])"
    told = []
    for more in ({}, {"NO_COLOR": "1"}):
        own = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
        variables = {**own, "FORCE_COLOR": "1", "TERM": "xterm-256color", **more}
        words = [sys.executable, "-c", program]
        done = subprocess.run(words, capture_output=True, text=True, env=variables)
        told.append(done.stdout)
    assert "\x1b[1;31m" in told[0]
    assert "\x1b[1;31m" not in told[1]
    assert "Measured with other settings: horizon 512 -> 64" in told[1]


def test_torch_is_not_loaded(saved):
    program = (
        "import sys; from memaudit.cli import main; main(['diff', {!r}, {!r}]); "
        "print([n for n in ('torch', 'transformers', 'timm') if n in sys.modules])"
    ).format(*map(str, saved))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("words", [[], ["one.json"], ["a", "b", "c"], ["a", "b", "--unknown"]])
def test_wrong_arguments_exit_with_two(words, diff):
    code, out, err = diff(*words)
    assert (code, out) == (2, "")
    assert one_line(err).startswith("memaudit: error[E_ARGUMENT]")


@pytest.mark.parametrize("place", [0, 1])
def test_a_file_that_is_not_there_is_named(place, diff, saved, tmp_path):
    files = list(saved)
    files[place] = tmp_path / "missing.json"
    code, out, err = diff(*files)
    assert (code, out) == (3, "")
    assert one_line(err).startswith(f"memaudit: error[E_NOT_FOUND] {files[place]}:")


NOT_REPORTS = {
    "empty": "",
    "text": "hello",
    "list": "[]",
    "object": "{}",
    "number": "1",
    "other schema": '{"schema": 99}',
    "nothing in it": '{"schema": 1}',
    "deep": "[" * 100_000,
}


@pytest.mark.parametrize("text", [pytest.param(t, id=name) for name, t in NOT_REPORTS.items()])
def test_a_file_that_is_no_report_exits_with_three_and_is_named(text, diff, saved, tmp_path):
    path = tmp_path / "none.json"
    path.write_text(text)
    for files in ((path, saved[1]), (saved[0], path)):
        code, out, err = diff(*files)
        assert (code, out) == (3, "")
        assert one_line(err).startswith("memaudit: error[E_")
        assert str(path) in err


def test_the_report_of_a_family_is_not_taken_for_that_of_a_model(diff, saved, tmp_path):
    members = (member(4, 1.0, 1.0), member(8, 0.5, 2.0))
    path = family_report(*members).save(tmp_path / "family.json")
    code, _, err = diff(saved[0], path)
    assert code == 3
    assert "this is the report of a family, not of one model" in one_line(err)
