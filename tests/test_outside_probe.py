"""Plugins of other people, installed by their own pyproject, are as good as memaudit's own.

An outside probe appears everywhere with no edit of memaudit, and memaudit does without any one of
its own.
"""

from __future__ import annotations

import csv
import importlib
import json
import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from torch import nn

import memaudit
from memaudit import registry
from memaudit.cli import main
from memaudit.registry import BUILT_IN
from memaudit.report import Report, UnreadResult
from memaudit.testing import check_adapter, check_probe, check_query, check_report_format

PROJECT = Path(__file__).parent / "third_party"
PROGRAM = "import sys; from memaudit.cli import main; sys.exit(main())"
TAPS = [0.5, -1.0, 0.25, 0.0, 2.0]
#: The sum of their squares.
ENERGY = 5.3125


def run(
    *words: str | Path, installed: list[Path], folder: Path, program: str = PROGRAM
) -> subprocess.CompletedProcess:
    """The program in a process of its own, with these folders as further site-packages."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("MEMAUDIT_")}
    paths = [*map(str, installed), *filter(None, [kept.get("PYTHONPATH")])]
    return subprocess.run(
        [sys.executable, "-c", program, *map(str, words)],
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
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return target


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A distribution whose module cannot be imported."""
    folder = tmp_path_factory.mktemp("broken")
    both = {"adapters": "cracked = cracked:Adapter", "probes": "cracked = cracked:Probe"}
    code = "raise RuntimeError('no licence')\n"
    distribution(folder, "memaudit-cracked", "cracked", code, **both)
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
    registry._installed.cache_clear()
    yield lambda module, name: getattr(importlib.import_module(f"memaudit_acme.{module}"), name)
    registry._installed.cache_clear()


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "x.acme.json"
    path.write_text(json.dumps({"taps": TAPS}))
    return path


@pytest.fixture
def scanned(imported, model: Path) -> Report:
    return memaudit.scan(model, horizon=16, queries=["impulse"], probes=["energy"])


def test_the_list_names_outside_plugins_and_why_broken_ones_fail(acme, broken, tmp_path):
    done = run("list", installed=[acme, broken], folder=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    listed = " ".join(done.stdout.split())
    assert "acme memaudit-acme Acme's linear filters" in listed
    assert "double-pulse memaudit-acme two inputs in a row" in listed
    assert "csv memaudit-acme every lag of every curve" in listed
    assert "energy memaudit-acme energy of the answer to one unit input" in listed
    assert "energy energy sum of the squared answers" in listed  # among the metrics
    assert "AC001" in listed
    assert listed.count("cracked memaudit-cracked does not import: RuntimeError: no licence") == 2
    assert "heaviside memaudit" in listed


@pytest.mark.parametrize("adapter", [["--adapter", "acme"], []], ids=["chosen", "found"])
def test_an_outside_model_query_and_report_give_the_closed_form(acme, adapter, model, tmp_path):
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
    report = Report.from_dict(json.loads(done.stdout))
    assert report.complete
    assert set(report.memory) == {"driven", "heaviside", "impulse", "reversed"}


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


# The outside probe


def test_the_numbers_of_an_outside_probe_are_the_reports_numbers(scanned):
    assert scanned["energy"].energy == pytest.approx(ENERGY, rel=1e-12)
    assert scanned.energy is scanned["energy"]
    assert scanned.metrics()["memaudit/energy"] == pytest.approx(ENERGY, rel=1e-12)
    assert scanned.frame()["energy"][0] == pytest.approx(ENERGY, rel=1e-12)


def test_every_writer_shows_an_outside_probe(scanned):
    for name in ("terminal", "html", "markdown"):
        text = registry.build("reports", name).render(scanned)
        assert "5.312 of one unit input" in text, name
    for name in ("terminal", "html"):
        text = registry.build("reports", name).render(scanned)
        assert "energy of the half" in text, name
        assert "Energy by step" in text, name


def test_the_json_report_gives_an_outside_result_back(scanned, tmp_path):
    again = Report.load(scanned.save(tmp_path / "report.json"))
    assert type(again["energy"]) is type(scanned["energy"])
    assert again.metrics() == scanned.metrics()
    assert again.to_dict() == scanned.to_dict()


def test_a_report_of_a_probe_that_is_not_installed_is_kept_as_it_is(scanned):
    data = scanned.to_dict()
    with pytest.MonkeyPatch.context() as without:
        without.setattr(registry, "_points", lambda kind: ())
        again = Report.from_dict(data)
    assert isinstance(again["energy"], UnreadResult)
    assert again.to_dict() == data
    (shown,) = [section for section in again.sections() if section.title == "energy"]
    assert "not installed" in shown.line


def test_an_outside_probe_of_several_layers_is_joined_or_named(imported, monkeypatch):
    layers = nn.ModuleDict({"one": nn.GRU(1, 2), "two": nn.GRU(1, 3)})
    asked = {"horizon": 16, "level": "quick", "queries": ["impulse"], "probes": ["energy"]}
    report = memaudit.scan(layers, **asked)
    alone = [memaudit.scan(layer, **asked)["energy"].energy for layer in layers.values()]
    assert report["energy"].energy == pytest.approx(sum(alone), rel=1e-5)
    monkeypatch.delattr(imported("energy", "EnergyResult"), "joined")
    unjoined = memaudit.scan(layers, **asked)
    assert set(unjoined.layers) == {"one", "two"}
    (error,) = unjoined.errors
    assert error["code"] == "E_PLUGIN"
    assert "memaudit-acme" in error["message"]
    assert "joined is not written" in error["message"]
    one = memaudit.scan(nn.ModuleDict({"one": layers["one"]}), **asked)
    assert one["energy"].energy == pytest.approx(alone[0], rel=1e-5)


def test_an_outside_number_is_a_gate_and_an_outside_rule_a_finding(imported, model, capsys):
    words = ["scan", str(model), "--query", "impulse", "--probe", "energy", "--horizon", "16"]
    words += ["-q", "--set", "energy.size=2"]
    gates = ["--fail-on", "energy>20", "--fail-on", "loud-answer", "--fail-on", "energy>22"]
    assert main([*words, *gates]) == 1
    assert capsys.readouterr().err.splitlines() == [
        "memaudit: gate --fail-on energy>20 was hit by energy = 21.25",
        "memaudit: gate --fail-on loud-answer was hit by AC001 loud-answer",
    ]
    assert main(["explain", "AC001"]) == 0
    assert "Acme's amplifiers clip" in " ".join(capsys.readouterr().out.split())


def test_the_difference_of_two_reports_shows_an_outside_number(imported, scanned, tmp_path, capsys):
    louder = tmp_path / "louder.acme.json"
    louder.write_text(json.dumps({"taps": [2 * tap for tap in TAPS]}))
    after = memaudit.scan(louder, horizon=16, queries=["impulse"], probes=["energy"])
    files = [scanned.save(tmp_path / "before.json"), after.save(tmp_path / "after.json")]
    assert main(["diff", *map(str, files), "--fail-on", "energy>+100%", "--verbose"]) == 1
    out, err = capsys.readouterr()
    assert "gate --fail-on energy>+100% was hit by energy +300 % (5.312 -> 21.25)" in err
    words = " ".join(out.split())
    assert "energy 5.312 21.25 +300 worse" in words
    assert "first energy of the half 5.312 21.25" in words
    assert "AC001 loud-answer" in words


# Memaudit does without any one of its own capabilities

#: The program in a house without one room: nothing of the package can be imported, nothing of it is
#: registered. Every probe that is left is asked for, the long ones with little work.
WITHOUT = """
import sys
from pathlib import Path
import memaudit
from memaudit import registry
from memaudit.cli import main

lost, whole = sys.argv[1:]
sys.modules[f"memaudit.{lost}"] = None
for known in registry.BUILT_IN.values():
    for name in [name for name, target in known.items() if f".{lost}." in target]:
        del known[name]
probes = list(registry.BUILT_IN["probes"])
little = ["stability.draws=1", "stability.ascent=0", "stability.steps=8", "precision.formats=bf16"]
words = [word for name in probes for word in ("--probe", name)]
words += [word for one in little if one.split(".")[0] in probes for word in ("--set", one)]
files = {name: f"made.{name}" for name in registry.available("reports")}
words += [word for name, file in files.items() for word in ("--report", f"{name}={file}")]
assert main(["scan", "demo:lru", "--quick", "--horizon", "16", *words]) == 0
assert all(Path(file).stat().st_size for file in files.values())
report = memaudit.Report.load("made.json")
assert report.complete and set(report.results) == set(probes), report.results.keys()
assert main(["list"]) == 0
assert main(["explain", "MA208"]) == 0
assert main(["diff", whole, "made.json"]) == 0
assert memaudit.retrofit(memaudit.load("demo:lru")).layers
assert not [name for name in sys.modules if name.startswith(f"memaudit.{lost}.")]
"""
CAPABILITIES = sorted({target.split(".")[1] for target in BUILT_IN["probes"].values()})


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report with the results of every probe that runs by default."""
    report = memaudit.scan("demo:lru", horizon=16, level="quick")
    return report.save(tmp_path_factory.mktemp("whole") / "whole.json")


@pytest.mark.parametrize("lost", CAPABILITIES)
def test_without_any_one_capability_everything_else_still_works(lost, whole, tmp_path):
    done = run(lost, whole, installed=[], folder=tmp_path, program=WITHOUT)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("content", [{"taps": TAPS}, {"decay": 0.9}], ids=["taps", "decay"])
def test_the_adapter_keeps_the_laws(imported, content, tmp_path):
    path = tmp_path / "model.acme.json"
    path.write_text(json.dumps(content))
    adapter = imported("adapter", "AcmeAdapter")()
    assert "acme" in registry.available("adapters")
    check_adapter(adapter, path)
    check_adapter(adapter, tmp_path, options={"gain": 2.0})


def test_the_query_the_probe_and_the_report_format_keep_the_laws(imported, model):
    check_query(imported("double_pulse", "DoublePulse")())
    check_probe(imported("energy", "Energy")(), memaudit.load(model))
    check_report_format(imported("csv_table", "CsvTable")())


def test_a_name_that_looks_like_a_formula_stays_a_text(imported):
    cell = importlib.import_module("memaudit_acme.csv_table")._cell
    assert cell("=HYPERLINK(1)") == "'=HYPERLINK(1)"


def test_the_probe_of_contributing_runs_as_it_stands():
    text = (PROJECT.parent.parent / "CONTRIBUTING.md").read_text("utf-8")
    (block,) = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    exec(compile(block, "CONTRIBUTING.md", "exec"), names := {})
    report = memaudit.scan("demo:lstm", queries=["impulse"], probes=[names["Energy"](size=30.0)])
    assert report["energy"].energy > 10.0
