"""Plugins that raise, hang, answer nonsense or move the weights: named, and the rest is kept."""

from __future__ import annotations

from typing import Any

import pytest

from tests.hostile.rows import QUICK, Outcome, Row, installed, parametrized, run

SCAN = ("scan", "demo:rnn", *QUICK)
CURVES = {"driven", "heaviside", "impulse", "reversed"}


def plugin(name: str, kind: str, target: str, *options: str, code: str = "", **more: Any) -> Row:
    """A scan with a plugin installed; it is called XX1 where names are codes, else `outside`."""
    called = "XX1" if kind == "findings" else "outside"
    place = target if ":" in target else f"tests.hostile.outside_plugins:{target}"
    more = {"exit": 5 if code else 0, "check": None if code else whole, **more}
    first = installed(kind, f"{called} = {place}")
    return Row(name, lambda scene: [*SCAN, *options], code=code, first=first, **more)


def probe(does: str, target: str, **more: Any) -> Row:
    """A scan with a probe that fails, behind one that does not."""
    more = {"code": "E_PLUGIN", "exit": 4, "check": kept, **more}
    asked = ("--probe", "assumptions", "--probe", "outside")
    return plugin(f"a probe that {does}", "probes", target, *asked, **more)


def whole(outcome: Outcome) -> None:
    """The report is as if the plugin were not there."""
    assert outcome.report()["complete"]
    assert set(outcome.curves()) == CURVES
    assert outcome.report()["errors"] == []


def kept(outcome: Outcome) -> None:
    """All three curves are in the report, which says that something is missing."""
    report = outcome.report()
    assert set(outcome.curves()) == CURVES
    assert not report["complete"]
    assert report["errors"][0]["code"] == outcome.code
    assert {"code", "stage", "message", "hint"} <= set(report["errors"][0])
    assert "outside" in outcome.stderr


def untouched(outcome: Outcome) -> None:
    """The curves are those of the model before the plugin changed its weights."""
    import memaudit

    kept(outcome)
    alone = memaudit.scan("demo:rnn", level="quick", horizon=32).to_dict()
    assert outcome.curves() == alone["results"]["memory"]["curves"]
    assert "outside" not in outcome.report()["results"]


def judged(outcome: Outcome) -> None:
    """The other rules have judged, and the broken one is named."""
    codes = {finding["code"] for finding in outcome.report()["findings"]}
    assert "E_PLUGIN" in codes
    assert any(code.startswith("MA") for code in codes)


def diverged(outcome: Outcome) -> None:
    assert {curve["status"] for curve in outcome.curves().values()} == {"diverged"}


def halved(outcome: Outcome) -> None:
    """The batch was made smaller, that is said, and the numbers are right."""
    assert "MA004" in {finding["code"] for finding in outcome.report()["findings"]}
    assert "memory ran short" in outcome.stderr
    values = outcome.curves()["impulse"]["values"]
    assert all(abs(value - 0.5**lag) < 1e-12 for lag, value in enumerate(values))


BROKEN = "tests.hostile.raising_module:X"
MINE = ("--adapter", "outside")
QUERIES = [word for name in (*sorted(CURVES), "outside") for word in ("--query", name)]
FORM = ("--report", "outside=page.txt")
BOTH = ("Adapter", "LoadRaises")

ROWS = [
    *(
        plugin(f"an adapter that {does}", "adapters", target)
        for does, target in (
            ("ends the program at import", BROKEN),
            ("is for a newer contract", "FromTheFuture"),
        )
    ),
    plugin("an adapter that hangs", "adapters", "ClaimHangs", exit=130, check=None),
    plugin("a chosen adapter that raises", "adapters", "LoadRaises", *MINE, code="E_PLUGIN"),
    plugin("a model that answers NaN", "adapters", "AnswerIsNan", *MINE, check=diverged),
    plugin("another shape", "adapters", "AnswerIsFlat", *MINE, code="E_UNSUPPORTED", exit=3),
    plugin("memory for three sequences", "adapters", "LittleMemory", *MINE, check=halved),
    Row(
        "two adapters of one name",
        lambda scene: list(SCAN),
        5,
        "E_PLUGIN_CLASH",
        first=installed(
            "adapters", *(f"outside = tests.hostile.outside_plugins:{name}" for name in BOTH)
        ),
    ),
    plugin(
        "a query that raises",
        "queries",
        "QueryRaises",
        *QUERIES,
        code="E_PLUGIN",
        exit=4,
        check=kept,
    ),
    probe("raises", "ProbeRaises"),
    probe("answers nonsense", "ProbeAnswersNonsense"),
    probe("moves the weights", "ProbeMovesTheWeights", check=untouched),
    plugin("a rule that raises", "findings", "rule_raises", check=judged),
    plugin("a report that raises", "reports", "Form", *FORM, code="E_PLUGIN", check=whole),
]


@parametrized(ROWS)
def test_a_broken_plugin_is_named_and_the_other_results_are_kept(
    row: Row, capfd: pytest.CaptureFixture[str]
) -> None:
    run(row, __name__, capfd)
