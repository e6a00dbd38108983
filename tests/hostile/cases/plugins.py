"""Plugins that raise, or move the weights: they are named, and the other results are kept."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from typing import TYPE_CHECKING

from tests.hostile.case import Case, Outcome, Scene

if TYPE_CHECKING:
    from collections.abc import Callable

ADAPTERS, OTHERS = "tests.hostile.strangers", "tests.hostile.strangers_measuring"
SCAN = ("scan", "demo:rnn", "--quick", "--horizon", "32", "--json", "report.json")
CURVES = {"heaviside", "impulse", "reversed"}


def with_plugin(kind: str, *targets: str) -> Callable[[list[str]], int]:
    """Run memaudit where these plugins are installed, all under the name `stranger`."""

    def command(arguments: list[str]) -> int:
        from memaudit import registry
        from memaudit.cli.app import main

        group = f"memaudit.{kind}"
        name = "XX1" if kind == "findings" else "stranger"
        home = ADAPTERS if kind == "adapters" else OTHERS
        values = [t if ":" in t else f"{home}:{t}" for t in targets]
        known = registry._points
        fakes = tuple(EntryPoint(name, value, group) for value in values)
        registry._points = lambda asked: (*known(asked), *(fakes if asked == kind else ()))  # type: ignore[assignment]
        return main(arguments)

    return command


def words(*arguments: str) -> Callable[[Scene], list[str]]:
    """The arguments of the command, whatever the scene."""
    return lambda scene: list(arguments)


def kept(outcome: Outcome) -> None:
    """All three curves are in the report, which says that something is missing."""
    report = outcome.report()
    assert set(outcome.curves()) == CURVES
    assert not report["complete"]
    assert report["errors"][0]["code"] == outcome.code
    assert "stranger" in outcome.stderr


def whole(outcome: Outcome) -> None:
    """The report is as if the plugin were not there."""
    report = outcome.report()
    assert report["complete"]
    assert set(outcome.curves()) == CURVES
    assert report["errors"] == []


def untouched(outcome: Outcome) -> None:
    """The curves are those of the model before the plugin laid hands on it."""
    import memaudit

    kept(outcome)
    alone = memaudit.scan("demo:rnn", level="quick", horizon=32).to_dict()
    assert outcome.curves() == alone["results"]["memory"]["curves"]
    assert "stranger" not in outcome.report()["results"]


def judged(outcome: Outcome) -> None:
    """The other rules have judged, and the broken one is named."""
    findings = outcome.report()["findings"]
    assert any(f["code"] == "E_PLUGIN" and "strangers" in f["message"] for f in findings)
    assert any(f["code"].startswith("MA") for f in findings)


def listed(outcome: Outcome) -> None:
    assert "stranger" in outcome.stdout


def adapter(name: str, target: str, **expected) -> Case:
    """A broken adapter beside the good one."""
    options = {"exit": 0, "check": whole, **expected}
    more = options.pop("more", ())
    return Case(
        "plugins", name, words(*SCAN, *more), command=with_plugin("adapters", target), **options
    )


def chosen(name: str, target: str, **expected) -> Case:
    """A broken adapter that opens the source."""
    more = ("--adapter", "stranger")
    return adapter(name, target, more=more, **{"check": None, **expected})


def query(name: str, target: str) -> Case:
    asked = [w for n in (*sorted(CURVES), "stranger") for w in ("--query", n)]
    command = with_plugin("queries", target)
    arguments = words(*SCAN, *asked)
    return Case("plugins", name, arguments, exit=4, code="E_PLUGIN", command=command, check=kept)


def probe(name: str, target: str, *, code: str = "E_PLUGIN", check=kept) -> Case:
    asked = ("--probe", "assumptions", "--probe", "stranger")
    command = with_plugin("probes", target)
    arguments = words(*SCAN, *asked)
    return Case("plugins", name, arguments, exit=4, code=code, command=command, check=check)


def rule(name: str, target: str) -> Case:
    command = with_plugin("findings", target)
    return Case("plugins", name, words(*SCAN), exit=0, command=command, check=judged)


def form(name: str, target: str) -> Case:
    return Case(
        "plugins",
        name,
        words(*SCAN, "--report", "stranger=page.txt"),
        exit=5,
        code="E_PLUGIN",
        says="stranger",
        command=with_plugin("reports", target),
        check=whole,
    )


def late(outcome: Outcome) -> None:
    assert "the kernel is gone" in outcome.stderr


def diverged(outcome: Outcome) -> None:
    assert all(curve["status"] == "diverged" for curve in outcome.curves().values())


def halved(outcome: Outcome) -> None:
    report = outcome.report()
    assert report["complete"]
    assert "MA004" in {f["code"] for f in report["findings"]}
    values = outcome.curves()["impulse"]["values"]
    assert all(abs(v - 0.5**lag) < 1e-12 for lag, v in enumerate(values))


def fine_query(outcome: Outcome) -> None:
    assert outcome.report()["complete"]
    assert outcome.curves()["stranger"]["values"][0] > 0


CASES = [
    adapter("an adapter that raises at import", "tests.hostile.raising_module:X"),
    adapter("an adapter that is not there", "tests.hostile.nowhere:X"),
    adapter("an adapter whose claim raises", "ClaimRaises"),
    adapter("an adapter that complains", "ClaimComplains"),
    adapter("an adapter that cannot be built", "BuildRaises"),
    adapter("an adapter from the future", "FromTheFuture"),
    adapter("an adapter of no known kind", "NotAnAdapter"),
    chosen(
        "a chosen adapter that raises at import",
        "tests.hostile.raising_module:X",
        exit=5,
        code="E_PLUGIN",
    ),
    chosen(
        "a chosen adapter from the future",
        "FromTheFuture",
        exit=5,
        code="E_PLUGIN",
        says="contract 99",
    ),
    chosen("a chosen adapter of no known kind", "NotAnAdapter", exit=5, code="E_PLUGIN"),
    chosen("a load that raises", "LoadRaises", exit=5, code="E_PLUGIN"),
    chosen("a model that raises", "AnswerRaises", exit=5, code="E_PLUGIN", check=late),
    chosen(
        "a model that raises in the middle", "AnswerRaisesLate", exit=5, code="E_PLUGIN", check=late
    ),
    chosen("a model that answers NaN", "AnswerIsNan", exit=0, check=diverged),
    chosen("a model that answers by another shape", "AnswerIsFlat", exit=3, code="E_UNSUPPORTED"),
    chosen("a model with room for three sequences", "AnswerRunsOut", exit=0, check=halved),
    chosen("a model with no room at all", "NoMemoryAtAll", exit=5, code="E_MEMORY"),
    chosen("an honest adapter", "Adapter", exit=0, check=whole),
    query("a query that raises", "QueryRaises"),
    query("a query that raises in the middle", "QueryRaisesLate"),
    Case(
        "plugins",
        "an honest query",
        words(*SCAN, "--query", "impulse", "--query", "stranger"),
        exit=0,
        command=with_plugin("queries", "Query"),
        check=fine_query,
    ),
    probe("a probe that raises", "ProbeRaises"),
    probe("a probe that runs out of memory", "ProbeRunsOut", code="E_MEMORY"),
    probe("a probe that moves the weights", "ProbeMovesTheWeights", check=untouched),
    probe(
        "a probe that moves the weights and raises",
        "ProbeMovesTheWeightsAndRaises",
        check=untouched,
    ),
    rule("a rule that raises", "rule_raises"),
    rule("a rule that raises in the middle", "rule_raises_late"),
    form("a report that raises", "FormRaises"),
    Case(
        "plugins",
        "two adapters of one name",
        words(*SCAN),
        exit=5,
        code="E_PLUGIN_CLASH",
        command=with_plugin("adapters", "Adapter", "LoadRaises"),
    ),
    Case(
        "plugins",
        "a broken adapter in the list",
        words("list", "adapters"),
        exit=0,
        command=with_plugin("adapters", "tests.hostile.raising_module:X"),
        check=listed,
    ),
]
