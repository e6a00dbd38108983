"""`memaudit list`, `explain` and `doctor`."""

from __future__ import annotations

import inspect
import re
import sys
from dataclasses import fields
from importlib import metadata
from importlib.metadata import EntryPoint

import pytest

import memaudit
from memaudit import doctor, registry
from memaudit.cli import main
from memaudit.cli.inventory import options_of, rows
from memaudit.doctor import Check, environment
from memaudit.errors import MachineError
from memaudit.registry import BUILT_IN, DEMOS
from memaudit.rules import all_rules


@pytest.fixture
def foreign(monkeypatch):
    def register(**plugins: str) -> None:
        def points(kind: str):
            group = f"memaudit.{kind}"
            made = [EntryPoint(name, target, group) for name, target in plugins.items()]
            return tuple(made) if kind == "queries" else ()

        monkeypatch.setattr(registry, "_points", points)

    return register


def test_every_name_is_listed(capsys):
    assert main(["list"]) == 0
    words = capsys.readouterr().out.split()
    assert {*BUILT_IN, "demos"} <= set(words)
    assert {name for names in BUILT_IN.values() for name in names} <= set(words)
    assert set(DEMOS) <= set(words)


@pytest.mark.parametrize("kind", ["queries", "probes", "reports"])
def test_the_summary_that_is_read_is_the_summary_of_the_class(kind):
    for row in rows(kind):
        assert row.summary == registry.load(registry.find(kind, row.name)).summary


def test_findings_are_listed_with_every_severity_that_they_have():
    told = {row.name: row.summary for row in rows("findings")}
    assert told["MA205"].startswith("format-unsafe (error or warning): ")
    known = all_rules()
    assert set(told) == set(known)
    for code, summary in told.items():
        assert summary.startswith(f"{known[code].name} ({known[code].severities}): ")


def test_a_kind_and_a_wildcard_narrow_the_list(capsys):
    assert main(["list", "queries", "h*"]) == 0
    out = capsys.readouterr().out
    assert "heaviside" in out
    assert "impulse" not in out
    assert "findings" not in out


@pytest.mark.parametrize("name", [name for name in BUILT_IN["probes"] if name != "memory"])
def test_every_option_of_a_probe_is_explained_in_a_line(name):
    probe = registry.load(registry.find("probes", name))
    known = [f.name for f in fields(probe) if f.init]
    assert list(getattr(probe, "options", {})) == known
    told = options_of("probes", name)[name]
    assert list(told) == [f"{name}.{option}" for option in known]
    assert all(re.fullmatch(r"\S.* \(default: .+\)", words) for words in told.values())


@pytest.mark.parametrize("command", ["scan", "card"])
def test_the_help_names_every_probe(command, capsys):
    assert main([command, "--help"]) == 0
    words = re.split(r"[\s,;().│|]+", capsys.readouterr().out)
    assert set(BUILT_IN["probes"]) <= set(words)


def test_an_unknown_kind_exits_with_two(capsys):
    assert main(["list", "querys"]) == 2
    assert "did you mean queries?" in capsys.readouterr().err


def test_a_plugin_that_does_not_import_is_named_and_the_others_are_listed(capsys, foreign):
    foreign(strange="no_such_module_at_all:Query")
    assert main(["list", "queries"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert "strange" in out
    assert "does not import: ModuleNotFoundError" in " ".join(out.split())
    assert "heaviside" in out


def test_a_clash_shows_both_and_exits_with_five(capsys, foreign):
    foreign(heaviside="memaudit.memory.queries:Impulse")
    assert main(["list", "queries"]) == 5
    out, err = capsys.readouterr()
    assert out.count("heaviside") == 2
    assert err.startswith("memaudit: error[E_PLUGIN_CLASH] queries/heaviside is registered by ")
    assert "memaudit.memory.queries:Heaviside (memaudit)" in err
    assert "memaudit.memory.queries:Impulse" in err
    assert err.count("\n") == 1


# `memaudit explain`: findings by code or name, words of reports, the nearest ones for a slip.


@pytest.mark.parametrize("word", ["MA102", "ma102", "growing-memory", "Growing-Memory"])
def test_a_code_and_a_name_explain_the_same_rule(word, capsys):
    assert main(["explain", word]) == 0
    out = capsys.readouterr().out
    assert out.startswith("MA102 growing-memory (error)\n\n")
    assert max(len(line) for line in out.splitlines()) <= 80


@pytest.mark.parametrize("code", registry.available("findings"))
def test_every_finding_can_be_explained_in_full(code, capsys):
    assert main(["explain", code]) == 0
    rule = registry.load(registry.find("findings", code))
    assert rule.explanation in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("word", "near"),
    [
        ("MA139", "ma1"),
        ("growing-memry", "growing-memory"),
        ("[x]", "`memaudit list` shows"),
        ("horizn", "horizon"),
    ],
)
def test_an_unknown_code_exits_with_two_and_names_the_nearest(word, near, capsys):
    assert main(["explain", word]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert near in err.lower()


@pytest.mark.parametrize("name", BUILT_IN["queries"])
def test_a_query_is_explained_by_the_docstring_of_its_class(name, capsys):
    assert main(["explain", name]) == 0
    out = capsys.readouterr().out
    told = inspect.getdoc(registry.load(registry.find("queries", name)))
    assert " ".join(told.split()) in " ".join(out.split())
    assert out.endswith(f"\n\nmemaudit scan SOURCE --query {name}\n")


def test_a_query_from_outside_is_explained_as_well(capsys, foreign):
    foreign(shout="memaudit.memory.queries:Impulse")
    assert main(["explain", "shout"]) == 0
    assert "What is left of a single input" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("word", "told"),
    [
        ("horizon", "stays below epsilon"),
        ("Half-Life", "Counted from the largest value"),
        ("half_life", "in use (driven), else the fewest of the queries"),
        ("exponent", "in use (driven), else the largest of the queries"),
        ("time scale", "falls to 1/e"),
        ("margin", "unit circle"),
        ("radius", "one step of the optimizer"),
        ("floor", "numerical noise"),
        ("epsilon", "--set epsilon=VALUE"),
        ("at worst", "The longest memory that any input has"),
        ("conf.", "How clearly the kind of decay stands out"),
        ("settled", "no longer moves under a constant input"),
    ],
)
def test_a_word_of_a_report_is_explained(word, told, capsys):
    assert main(["explain", word]) == 0
    assert told in " ".join(capsys.readouterr().out.split())


def test_a_word_with_two_meanings_has_both(capsys):
    assert main(["explain", "horizon"]) == 0
    out = capsys.readouterr().out
    assert "horizon (number of the probe memory)" in out
    assert "horizon (option --horizon)" in out
    assert out.count('memaudit scan SOURCE --fail-on "horizon<N"') == 1


def test_every_number_and_every_column_of_a_report_is_explained(capsys):
    report = memaudit.scan("demo:lstm", probes=["assumptions", "spectrum"], level="quick")
    table = next(t for s in report.sections() for t in s.tables if t.columns[0].name == "query")
    words = {column.name for column in table.columns[1:] if column.name != "probes"}
    words |= {row[1] for row in table.rows} | {a.name for a in report.assumptions}
    assert {"floor", "horizon", "half-life", "exponential", "causal"} <= words
    for word in words:
        assert main(["explain", word]) == 0, word
    capsys.readouterr()


# `memaudit doctor`: versions, devices and adapters, and an exit code for what is missing.


def test_the_doctor_shows_what_is_installed(capsys, monkeypatch):
    from memaudit.loading import torchvision_guard

    monkeypatch.setattr(torchvision_guard, "guard_torchvision", lambda: "absent")
    code = main(["doctor"])
    out = capsys.readouterr().out
    assert code == 0
    for name in ("torch", "numpy", "rich", "typer", "safetensors"):
        assert f" {name} " in out
        assert metadata.version(name) in out
    assert all(device in out for device in ("cpu", "cuda", "mps", "xpu"))
    assert "absent" in out


def test_a_missing_requirement_exits_with_five(capsys, monkeypatch):
    gone = Check("packages", "torch", "absent", fine=False, needed=True)
    monkeypatch.setattr(doctor, "diagnose", lambda: (gone,))
    assert main(["doctor"]) == 5
    assert capsys.readouterr().err == "memaudit: needs repair: torch\n"


def test_an_adapter_that_does_not_load_says_why(monkeypatch):
    def refuse(plugin):
        raise MachineError("E_PLUGIN", "does not import: because")

    monkeypatch.setattr(registry, "load", refuse)
    checks = list(doctor._adapters())
    assert checks
    assert all(not check.fine and "because" in check.state for check in checks)


def test_the_environment_of_a_report_holds_versions_only():
    found = environment()
    assert found["memaudit"] == memaudit.__version__
    assert found["torch"] == metadata.version("torch")
    assert found["python"] == ".".join(map(str, sys.version_info[:3]))
    assert list(found) == ["memaudit", "python", "torch", "numpy", "platform", "torchvision"]
    assert all(isinstance(value, str) for value in found.values())
