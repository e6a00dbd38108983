"""Every hostile case is green; the table is made once, by the command that a person would run."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.hostile.cases import every_case

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """Title → what is wrong, which must be nothing."""
    target = tmp_path_factory.mktemp("hostile") / "rows.json"
    made = subprocess.run(
        [sys.executable, "-m", "tests.hostile", "--json", str(target)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert target.exists(), made.stdout[-2000:] + made.stderr[-2000:]
    print(made.stdout)
    return json.loads(target.read_text())


@pytest.mark.parametrize("title", [case.title for case in every_case()])
def test_the_case_ends_as_it_must(table: dict[str, list[str]], title: str) -> None:
    assert table[title] == []
