"""The registry and the catalog: names, files, classes, entry points, neighbours and rivals."""

from __future__ import annotations

import tomllib
from importlib.metadata import EntryPoint
from inspect import isabstract
from pathlib import Path

import pytest

from memaudit import interfaces, registry
from memaudit.errors import ArgumentError, MachineError
from memaudit.interfaces import AbstractReparam, AbstractTarget
from memaudit.registry import BUILT_IN
from memaudit.rules import Rule

ROOT = Path(__file__).parent.parent
CONTRACTS = {
    "adapters": interfaces.AbstractAdapter,
    "queries": (interfaces.AbstractQuery, interfaces.AbstractTrialQuery),
    "probes": interfaces.AbstractProbe,
    "reparams": AbstractReparam,
    "targets": AbstractTarget,
    "findings": Rule,
    "reports": interfaces.AbstractReportFormat,
}
ENTRIES = [(kind, name) for kind, names in BUILT_IN.items() for name in names]


@pytest.fixture
def foreign(monkeypatch):
    """Queries of other distributions, registered for one test."""

    def register(**targets: str) -> None:
        made = tuple(EntryPoint(n, target, "memaudit.queries") for n, target in targets.items())
        monkeypatch.setattr(registry, "_points", lambda kind: made if kind == "queries" else ())

    return register


@pytest.mark.parametrize(("kind", "name"), ENTRIES)
def test_a_built_in_keeps_its_contract_and_knows_its_own_name(kind, name):
    found = registry.load(registry.find(kind, name))
    if kind == "findings":  # a rule is an object
        assert isinstance(found, Rule)
        assert found.code == name
        return
    assert issubclass(found, CONTRACTS[kind])
    assert not isabstract(found)
    assert found.name == name


def test_every_entry_point_of_the_pyproject_is_visible():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    groups = project["entry-points"]
    for kind in registry.KINDS:
        for name, target in groups.get(f"memaudit.{kind}", {}).items():
            seen = [plugin.target for plugin in registry.available(kind).get(name, ())]
            told = "a new entry-point line is invisible until the package is installed again: "
            assert target in seen, f"{kind}/{name}: {told}pip install -e ."
            assert issubclass(registry.load(registry.find(kind, name)), CONTRACTS[kind])


@pytest.mark.parametrize(
    ("kind", "name", "told"),
    [
        ("querys", "impulse", "did you mean queries?"),
        ("queries", "heavyside", "did you mean heaviside?"),
        ("queries", "zzzzz", "known are: context, driven, heaviside, impulse, repeat, reversed"),
        ("findings", "MA20", "did you mean MA20"),
        ("reports", "\x1b[31mjson", "did you mean json?"),
    ],
)
def test_the_neighbours_of_an_unknown_name_are_listed(kind, name, told, foreign):
    foreign()
    with pytest.raises(ArgumentError) as caught:
        registry.build(kind, name)
    assert told in caught.value.hint
    assert "\x1b" not in str(caught.value)


def test_a_plugin_is_not_imported_before_it_is_wanted(foreign):
    foreign(**{"explosive-query": "no_such_module_anywhere:Query"})
    assert registry.find("queries", "explosive-query").target == "no_such_module_anywhere:Query"
    with pytest.raises(MachineError, match="ModuleNotFoundError") as caught:
        registry.build("queries", "explosive-query")
    assert caught.value.code == "E_PLUGIN"
    assert caught.value.exit_code == 5


def test_ctrl_c_while_a_plugin_is_imported_stays_ctrl_c(foreign, tmp_path, monkeypatch):
    (tmp_path / "impatient.py").write_text("raise KeyboardInterrupt\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    foreign(impatient="impatient:Query")
    with pytest.raises(KeyboardInterrupt):
        registry.build("queries", "impatient")


def test_a_name_that_two_want_is_an_error_that_names_both(foreign):
    foreign(impulse="memaudit.memory.queries:Heaviside")
    assert len(registry.available("queries")["impulse"]) == 2
    with pytest.raises(MachineError, match=r"memaudit\.memory\.queries:Impulse") as caught:
        registry.build("queries", "impulse")
    assert caught.value.code == "E_PLUGIN_CLASH"
    assert "memaudit.memory.queries:Heaviside (unknown distribution)" in caught.value.fact
    assert registry.build("queries", "heaviside").name == "heaviside"
