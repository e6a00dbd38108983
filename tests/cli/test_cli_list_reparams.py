"""`memaudit list reparams`: the numbers of every form, ours and other people's."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import EntryPoint
from typing import ClassVar

import pytest

from memaudit import registry
from memaudit.cli import main
from memaudit.registry import BUILT_IN
from memaudit.reparams import Exp


@dataclass(frozen=True, slots=True)
class Doubled(Exp):
    """Somebody's own form, twice as careful and without a formula."""

    name: ClassVar[str] = "doubled"
    summary: ClassVar[str] = "an outsider's form"
    times: ClassVar[tuple[str, ...]] = ("continuous",)

    @property
    def scale_formula(self):
        return ""


class Raising(Doubled):
    """Imports, and fails at the first number."""

    def modulus(self, beta):
        raise ZeroDivisionError("no \x1b[31mmodulus")


class Numberless(Doubled):
    """Answers with something else than a number."""

    def modulus(self, beta):
        return None


@pytest.fixture
def foreign(monkeypatch):
    def register(**plugins: str) -> None:
        made = tuple(EntryPoint(n, t, "memaudit.reparams") for n, t in plugins.items())
        monkeypatch.setattr(registry, "_points", lambda kind: made if kind == "reparams" else ())

    return register


def table(out: str, time: str) -> dict[str, list[str]]:
    """The first words of every row of the table of one time."""
    lines = out.split(f"in {time} time")[1].split("\n\n")[0].splitlines()[2:]
    return {line.split()[0]: line.split()[1:] for line in lines if not line.startswith(" ")}


@pytest.fixture
def listed(capsys):
    def listed(*words: str) -> str:
        assert main(["list", "reparams", *words]) == 0
        return capsys.readouterr().out

    return listed


def test_every_form_is_in_the_table_of_each_of_its_times(listed):
    out = listed()
    for name in BUILT_IN["reparams"]:
        form = registry.load(registry.find("reparams", name))
        times = {time for time in ("continuous", "discrete") if name in table(out, time)}
        assert times == set(form.times)


def test_the_numbers_are_those_of_the_definition(listed):
    rows = table(listed(), "continuous")
    assert rows["exp"][:6] == ["yes", "(-inf,", "0)", "0.01005", "0.1052", "1.718"]
    assert rows["best"][:6] == ["yes", "[-2,", "0)", "0.01424", "0.1518", "2.732"]
    assert rows["heavytail"][3:6] == ["0.01003", "0.1025", "1.25"]
    assert rows["direct"][:6] == ["no", "(-inf,", "inf)", *["infinite"] * 3]
    assert rows["best"][6] == "2a|w|"


def test_the_form_of_an_outsider_is_shown_with_its_numbers(listed, foreign):
    foreign(doubled=f"{__name__}:Doubled")
    rows = table(listed(), "continuous")
    assert rows["doubled"][:6] == rows["exp"][:6]
    assert rows["doubled"][6:9] == ["2.72,", "1,", "0.368"]


@pytest.mark.parametrize(
    ("target", "told"),
    [
        (f"{__name__}:Raising", "cannot be shown: ZeroDivisionError: no [31mmodulus"),
        (f"{__name__}:Numberless", "cannot be shown: TypeError"),
        ("no_such_module_at_all:Form", "does not import: ModuleNotFoundError"),
        ("memaudit.errors:clean", "cannot be shown: AttributeError"),
    ],
)
def test_a_broken_form_is_named_and_the_others_are_shown(target, told, listed, foreign):
    foreign(broken=target)
    out = listed()
    assert told in " ".join(out.split())
    assert "reparams/broken" in out
    assert "exp" in table(out, "continuous")
    assert "\x1b" not in out
