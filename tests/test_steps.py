"""CONTRIBUTING names the functions that a command walks through; the runs are traced."""

import re
import shutil
import sys
from pathlib import Path

import pytest

from memaudit.cli import main

ROOT = Path(__file__).parents[1]
FIXTURE = ROOT.parent / "shared" / "fixtures" / "s4d_standalone" / "small"


def steps(title: str) -> list[str]:
    """The functions of a numbered list, as file:function."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    body = text.split(f"### {title}\n", 1)[1].split("\n#", 1)[0]
    return re.findall(r"^\d+\. `([^`]+)`", body, re.M)


def traced(*arguments: str) -> list[str]:
    """Every function of the project that a command calls, in the order of the first calls."""
    order: dict[str, None] = {}

    def note(frame, event, _argument):
        if event == "call":
            path = Path(frame.f_code.co_filename)
            if path.is_relative_to(ROOT):
                order[f"{path.relative_to(ROOT).as_posix()}:{frame.f_code.co_name}"] = None

    sys.setprofile(note)
    try:
        assert main(list(arguments)) == 0
    finally:
        sys.setprofile(None)
    return list(order)


def check(title: str, calls: list[str]) -> None:
    named = steps(title)
    assert len(named) >= 6
    missing = [step for step in named if step not in calls]
    assert not missing
    assert sorted(named, key=calls.index) == named


@pytest.fixture
def report(tmp_path):
    path = tmp_path / "report.json"
    assert main(["scan", "demo:lstm", "--quick", "--horizon", "32", "--json", str(path)]) == 0
    return str(path)


def test_a_scan_walks_through_its_ten_steps(tmp_path):
    calls = traced("scan", "demo:lstm", "--quick", "--horizon", "32", "--fail-on", "error")
    assert len(steps("A scan in ten steps")) == 10
    check("A scan in ten steps", calls)


def test_a_diff_walks_through_its_steps(report):
    check("A diff in six steps", traced("diff", report, report))


@pytest.mark.shared
@pytest.mark.skipif(not FIXTURE.exists(), reason=f"no reference checkpoints at {FIXTURE}")
def test_a_retrofit_walks_through_its_steps(tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(FIXTURE, folder)
    calls = traced("retrofit", str(folder), "--out", str(tmp_path / "out"), "--no-radius")
    check("A retrofit in six steps", calls)
