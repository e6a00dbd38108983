"""Plugins of other people: installed, listed, used; broken and rival ones hurt nobody else."""

from __future__ import annotations

import csv
import importlib
import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from memaudit import registry
from memaudit.testing import check_adapter, check_query, check_report_format

PROJECT = Path(__file__).parent / "third_party"
PROGRAM = "import sys; from memaudit.cli import main; sys.exit(main())"
TAPS = [0.5, -1.0, 0.25, 0.0, 2.0]


def run(*words: str | Path, installed: list[Path], folder: Path) -> subprocess.CompletedProcess:
    """The program in a process of its own, with these folders as further site-packages."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("MEMAUDIT_")}
    paths = [*map(str, installed), *filter(None, [kept.get("PYTHONPATH")])]
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, *map(str, words)],
        env={
            **kept,
            "PYTHONPATH": os.pathsep.join(paths),
            "OMP_NUM_THREADS": "1",
            "MEMAUDIT_NO_PROGRESS": "1",  # a slow machine would get lines of it in a log
        },
        cwd=folder,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=120,
    )


def distribution(folder: Path, name: str, module: str, code: str, **points: str) -> None:
    """An installed distribution of one module; a point is kind="name = module:Class"."""
    (folder / f"{module}.py").write_text(code, encoding="utf-8")
    info = folder / f"{name.replace('-', '_')}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    groups = "".join(f"[memaudit.{kind}]\n{line}\n" for kind, line in points.items())
    (info / "entry_points.txt").write_text(groups)


@pytest.fixture(scope="module")
def acme(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project of tests/third_party, built from its pyproject and installed into a folder."""
    missing = [name for name in ("pip", "hatchling") if find_spec(name) is None]
    assert not missing, f"{missing} must be there to install a plugin: pip install -e .[test]"
    target = tmp_path_factory.mktemp("acme")
    quiet = ["--quiet", "--no-input", "--disable-pip-version-check", "--no-index"]
    how = ["--no-deps", "--no-build-isolation", "--target", str(target), str(PROJECT)]
    command = [sys.executable, "-m", "pip", "install", *quiet, *how]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return target


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two distributions whose modules cannot be imported: one raises, one leaves."""
    folder = tmp_path_factory.mktemp("broken")
    raising, leaving = "raise RuntimeError('no licence')\n", "import sys\nsys.exit('good bye')\n"
    both = {"adapters": "cracked = cracked:Adapter", "queries": "cracked = cracked:Query"}
    distribution(folder, "memaudit-cracked", "cracked", raising, **both)
    distribution(folder, "memaudit-leaver", "leaver", leaving, adapters="leaver = leaver:Adapter")
    return folder


@pytest.fixture(scope="module")
def rival(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A distribution that wants the name of Acme's query."""
    folder = tmp_path_factory.mktemp("rival")
    code = "from memaudit.memory.queries import Impulse as DoublePulse\n"
    distribution(folder, "rival", "rival", code, queries="double-pulse = rival:DoublePulse")
    return folder


@pytest.fixture
def imported(acme: Path, monkeypatch: pytest.MonkeyPatch):
    """Acme's classes in this process; the registry forgets them afterwards."""
    monkeypatch.syspath_prepend(str(acme))
    registry._points.cache_clear()
    yield lambda module, name: getattr(importlib.import_module(f"memaudit_acme.{module}"), name)
    registry._points.cache_clear()


def test_the_list_names_a_strangers_plugins_and_why_broken_ones_fail(acme, broken, tmp_path):
    done = run("list", installed=[acme, broken], folder=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    said = " ".join(done.stdout.split())
    assert "acme memaudit-acme Acme's linear filters" in said
    assert "double-pulse memaudit-acme two inputs in a row" in said
    assert "csv memaudit-acme every lag of every curve" in said
    assert said.count("cracked memaudit-cracked does not import: RuntimeError: no licence") == 2
    assert "leaver memaudit-leaver does not import: SystemExit: good bye" in said
    assert "rnn memaudit" in said
    assert "heaviside memaudit" in said


@pytest.mark.parametrize("adapter", [["--adapter", "acme"], []], ids=["chosen", "found"])
def test_a_strangers_model_query_and_report_give_the_closed_form(acme, adapter, tmp_path):
    model = tmp_path / "x.acme.json"
    model.write_text(json.dumps({"taps": TAPS}))
    words = ["--query", "double-pulse", "--report", "csv=out.csv", "--set", "gain=2"]
    words += ["--horizon", "64", "--no-progress"]
    done = run("scan", model, *adapter, *words, installed=[acme], folder=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "acme" in done.stdout
    with open(tmp_path / "out.csv", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [int(row["lag"]) for row in rows] == list(range(64))
    assert {(row["query"], row["kind"]) for row in rows} == {("double-pulse", "finite")}
    formula = np.zeros(64)
    formula[: len(TAPS)] = 2 * np.abs(TAPS)
    assert np.abs(np.array([float(row["value"]) for row in rows]) - formula).max() <= 1e-12


def test_broken_and_clashing_plugins_do_not_stop_a_scan(acme, broken, rival, tmp_path):
    words = ["scan", "demo:lstm", "--quick", "--horizon", "64", "--json", "-"]
    done = run(*words, installed=[acme, broken, rival], folder=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    report = json.loads(done.stdout)
    assert report["complete"] is True
    assert set(report["memory"]) == {"heaviside", "impulse", "reversed"}


@pytest.mark.parametrize(
    "words", [["list"], ["scan", "demo:lstm", "--query", "double-pulse"]], ids=["list", "scan"]
)
def test_two_distributions_with_one_name_are_both_named(acme, rival, words, tmp_path):
    done = run(*words, installed=[acme, rival], folder=tmp_path)
    assert done.returncode == 5
    assert done.stderr.startswith("memaudit: error[E_PLUGIN_CLASH] ")
    assert done.stderr.count("\n") == 1
    assert "queries/double-pulse is registered by" in done.stderr
    assert "memaudit_acme.double_pulse:DoublePulse (memaudit-acme)" in done.stderr
    assert "rival:DoublePulse (rival)" in done.stderr
    if words == ["list"]:
        assert "heaviside" in done.stdout


@pytest.mark.parametrize("content", [{"taps": TAPS}, {"decay": 0.9}], ids=["taps", "decay"])
def test_the_adapter_keeps_the_laws(imported, content, tmp_path):
    model = tmp_path / "model.acme.json"
    model.write_text(json.dumps(content))
    adapter = imported("adapter", "AcmeAdapter")()
    assert "acme" in registry.available("adapters")
    check_adapter(adapter, model)
    check_adapter(adapter, tmp_path, options={"gain": 2.0})


def test_the_query_keeps_the_laws(imported):
    check_query(imported("double_pulse", "DoublePulse")())


def test_the_report_format_keeps_the_laws(imported):
    check_report_format(imported("csv_table", "CsvTable")())


def test_a_name_that_looks_like_a_formula_stays_a_text(imported):
    cell = importlib.import_module("memaudit_acme.csv_table")._cell
    assert cell("=HYPERLINK(1)") == "'=HYPERLINK(1)"
