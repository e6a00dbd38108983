"""`memaudit list`: everything is there, a broken plugin is named, a clash is an error."""

from __future__ import annotations

import re
from dataclasses import fields
from importlib.metadata import EntryPoint

import pytest

from memaudit import registry
from memaudit.cli import main
from memaudit.cli.inventory import options_of, rows
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


def test_every_built_in_has_a_summary_without_being_imported():
    missing = [
        (kind, row.name) for kind in BUILT_IN for row in rows(kind) if not row.summary.strip()
    ]
    assert missing == []


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
def test_every_option_of_a_probe_is_told_in_a_line(name):
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


def test_no_match_is_said(capsys):
    assert main(["list", "queries", "zzz*"]) == 0
    assert "none" in capsys.readouterr().out


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


def test_a_foreign_plugin_is_imported_for_its_summary(capsys, foreign):
    foreign(second="memaudit.memory.queries:Impulse")
    assert main(["list", "queries", "second"]) == 0
    assert "unknown distribution" in capsys.readouterr().out


def test_a_clash_shows_both_and_exits_with_five(capsys, foreign):
    foreign(heaviside="memaudit.memory.queries:Impulse")
    assert main(["list", "queries"]) == 5
    out, err = capsys.readouterr()
    assert out.count("heaviside") == 2
    assert err.startswith("memaudit: error[E_PLUGIN_CLASH] queries/heaviside is registered by ")
    assert "memaudit.memory.queries:Heaviside (memaudit)" in err
    assert "memaudit.memory.queries:Impulse" in err
    assert err.count("\n") == 1


def test_hostile_names_cannot_colour_the_list(capsys, foreign):
    foreign(**{"[red]x\x1b[31m": "no_such_module_at_all:Query"})
    assert main(["list", "queries"]) == 0
    out = capsys.readouterr().out
    assert "[red]x" in out
    assert "\x1b" not in out
