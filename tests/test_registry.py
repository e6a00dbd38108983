"""The registry and the catalog: names, files, classes, entry points, neighbours and rivals."""

from __future__ import annotations

import builtins
import sys
import tomllib
from importlib.metadata import EntryPoint
from inspect import isabstract
from pathlib import Path

import pytest

from memaudit import contracts, registry
from memaudit.catalog import BUILT_IN, DEFAULT_PROBES, DEFAULT_QUERIES, DEMOS
from memaudit.errors import ArgumentError, MachineError
from memaudit.loading.source import DEMO_FOLDER

ROOT = Path(__file__).parent.parent
CONTRACTS = {
    "adapters": contracts.AbstractAdapter,
    "queries": (contracts.AbstractQuery, contracts.AbstractTokenQuery),
    "probes": contracts.AbstractProbe,
    "reparams": contracts.AbstractReparam,
    "targets": contracts.AbstractTarget,
    "findings": contracts.AbstractRule,
    "reports": contracts.AbstractReportFormat,
}
ENTRIES = [(kind, name) for kind, names in BUILT_IN.items() for name in names]


@pytest.fixture
def foreign(monkeypatch):
    """Queries of other distributions, registered for one test."""

    def register(**targets: str) -> None:
        made = tuple(EntryPoint(n, target, "memaudit.queries") for n, target in targets.items())
        monkeypatch.setattr(registry, "_points", lambda kind: made if kind == "queries" else ())

    return register


def shadows(name: str) -> bool:
    """Whether a file of that name would shadow the standard library."""
    return name in sys.stdlib_module_names or hasattr(builtins, name)


def test_there_is_a_contract_for_every_kind():
    assert set(CONTRACTS) <= set(registry.KINDS)
    unknown = set(registry.KINDS) - set(CONTRACTS)
    assert not unknown, f"write down the contract of {unknown} in this test"


@pytest.mark.parametrize(("kind", "name"), ENTRIES)
def test_a_catalog_name_is_its_file_with_hyphens_and_its_class_in_camel_case(kind, name):
    module, _, attribute = BUILT_IN[kind][name].partition(":")
    if module == f"memaudit.{kind}":  # one file for all of the kind
        assert attribute == "".join(word.capitalize() for word in name.split("-"))
        return
    room, stem = module.split(".")[-2:]
    assert room == kind
    assert attribute == "".join(word.capitalize() for word in stem.split("_"))
    spoken = registry.load(registry.find(kind, name)).name
    if shadows(spoken):  # reversed, json: the file has a second word
        assert stem.startswith(f"{spoken}_")
    else:
        assert stem.replace("_", "-") == spoken


@pytest.mark.parametrize(("kind", "name"), ENTRIES)
def test_a_built_in_is_a_final_class_that_knows_its_own_name(kind, name):
    cls = registry.load(registry.find(kind, name))
    assert issubclass(cls, CONTRACTS[kind])
    assert not isabstract(cls)
    assert name == (cls.code if kind == "findings" else cls.name)


def test_every_file_of_a_room_that_holds_a_plugin_is_in_the_catalog():
    known = {target.partition(":")[0] for names in BUILT_IN.values() for target in names.values()}
    for kind, contract in CONTRACTS.items():
        words = [
            f"({c.__name__})" for c in (contract if isinstance(contract, tuple) else [contract])
        ]
        for file in (ROOT / "memaudit" / kind).glob("*.py"):
            module = f"memaudit.{kind}.{file.stem}"
            if any(word in file.read_text(encoding="utf-8") for word in words):
                assert module in known, f"{module} has no line in memaudit/catalog.py"


def test_defaults_and_demos_exist():
    assert set(DEFAULT_QUERIES) <= set(BUILT_IN["queries"])
    assert set(DEFAULT_PROBES) <= set(BUILT_IN["probes"])
    files = {path.stem if path.is_file() else path.name for path in DEMO_FOLDER.iterdir()}
    missing = sorted(set(DEMOS) - files)
    assert missing == []


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
        ("queries", "zzzzz", "known are: context, heaviside, impulse, repeat, reversed"),
        ("findings", "MA10", "did you mean MA1"),
        ("reports", "\x1b[31mjson", "did you mean json?"),
    ],
)
def test_an_unknown_name_is_told_its_neighbours(kind, name, told, foreign):
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


def test_a_missing_class_is_named(foreign):
    foreign(nobody="memaudit.memory.queries:Nobody")
    with pytest.raises(MachineError, match="no attribute 'Nobody'"):
        registry.build("queries", "nobody")


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


def test_one_target_registered_twice_is_no_clash(foreign):
    foreign(impulse=BUILT_IN["queries"]["impulse"])
    assert registry.build("queries", "impulse").name == "impulse"
