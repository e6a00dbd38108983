"""Arguments that contradict themselves or name nothing: refused before any work starts."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from tests.hostile.case import Case, Outcome, Scene

DEMO = ["scan", "demo:lstm"]


def words(*arguments: str) -> Callable[[Scene], list[str]]:
    """A case that is nothing but its arguments."""
    return lambda scene: list(arguments)


def before_work(outcome: Outcome) -> None:
    """One line on stderr and nothing on stdout: no work was done."""
    assert outcome.stdout == ""
    assert outcome.stderr.count("\n") == 1


def refused(name: str, *arguments: str, says: str = "", **options) -> Case:
    """A case that ends with exit code 2."""
    return Case(
        "arguments",
        name,
        words(*arguments),
        exit=2,
        code="E_ARGUMENT",
        says=says,
        check=before_work,
        **options,
    )


def missing(name: str, source: str, **options) -> Case:
    """A source that is not there."""
    return Case("arguments", name, words("scan", source), exit=3, check=before_work, **options)


NAMES = [
    missing(
        "a path that is not there",
        "no/such/dir/model.pt",
        code="E_NOT_FOUND",
        says="for the hub write org/name",
    ),
    missing("a file that is not there", "model.safetensors", code="E_NOT_FOUND"),
    missing("a folder without weights", ".", code="E_NOT_FOUND", says="holds no weights"),
    missing("a name with control characters", "\x1b[31m\u202e\n.pt", code="E_NOT_FOUND"),
    missing("a name of 5000 letters", "x" * 5000, code="E_NOT_FOUND"),
    refused("no source", "scan", says="Missing argument"),
    refused("an empty source", "scan", "", says="the source is empty"),
    refused("a blank source", "scan", " \t\n", says="the source is empty"),
    refused("an unknown command", "scann", "demo:lstm", says="scann"),
    refused("an unknown demo", "scan", "demo:lstn", says="did you mean lstm"),
    refused("an unknown query", *DEMO, "--query", "heavyside", says="did you mean heaviside?"),
    refused("an unknown probe", *DEMO, "--probe", "assumption", says="did you mean assumptions?"),
    refused("an unknown adapter", *DEMO, "--adapter", "rn", says="did you mean rnn?"),
    refused(
        "an unknown report",
        *DEMO,
        "--report",
        "jsn=x",
        says="known are: figure, github, html, json",
    ),
    refused("an unknown device", *DEMO, "--device", "cuda0", says="did you mean cuda"),
    refused("an unknown dtype", *DEMO, "--dtype", "float63", says="did you mean float64"),
    refused("an unknown option", *DEMO, "--horizn", "64", says="--horizon"),
    refused("an unknown setting", *DEMO, "--set", "epsilom=1", says="did you mean epsilon"),
    refused("an unknown gate", *DEMO, "--fail-on", "warnings", says="did you mean warning"),
    refused("an unknown finding", *DEMO, "--fail-on", "MA999", says="MA999"),
    refused("an unknown kind", "list", "adaptors", says="did you mean adapters"),
    refused("an unknown code", "explain", "MA10", says="did you mean MA1"),
    refused("a setting without a value", *DEMO, "--set", "epsilon", says="KEY=VALUE"),
    refused("a setting twice", *DEMO, "--set", "a-b=1", "--set", "a_b=2", says="twice"),
    refused("a setting with an option of its own", *DEMO, "--set", "timeout=3", says="--timeout"),
]

NUMBERS = [
    refused(f"{option} {value[:24]}", *DEMO, option, value, says=option.removeprefix("--"))
    for option, values in {
        "--horizon": ("0", "7", "-1", "1000000000", "1e3", "many", "9" * 5000),
        "--seed": ("-1", str(2**63), str(2**64), "1.5", "x"),
        "--timeout": ("0", "-1", "nan", "inf", "1e9", "soon"),
    }.items()
    for value in values
]
NUMBERS += [
    refused(f"--set {pair[:40]}", *DEMO, "--set", pair, says=pair.partition("=")[0])
    for pair in (
        "epsilon=0",
        "epsilon=1",
        "epsilon=-0.1",
        "epsilon=NaN",
        "epsilon=Infinity",
        "epsilon=1e999",
        "epsilon=true",
        "epsilon=[1]",
        "amplitudes=[]",
        "amplitudes=0",
        "amplitudes=[1,-1]",
        "amplitudes=[1e300]",
        "amplitudes=NaN",
        'level=["quick"]',
        "level=lazy",
        "normalization=[1]",
        "max_header=0",
        "max_header=-5",
        "max_header=1.5",
        "max_tensors=-1",
        "max_tensors=many",
        "max_bytes=0",
        "max_bytes=" + "9" * 5000,
    )
]
NUMBERS += [
    refused(
        "MEMAUDIT_HORIZON=abc",
        *DEMO,
        says="from the environment variable MEMAUDIT_HORIZON",
        env={"MEMAUDIT_HORIZON": "abc"},
    ),
    refused("MEMAUDIT_SEED=-1", *DEMO, says="MEMAUDIT_SEED", env={"MEMAUDIT_SEED": "-1"}),
    refused("MEMAUDIT_DTYPE=x", *DEMO, says="unknown dtype", env={"MEMAUDIT_DTYPE": "x"}),
    refused("MEMAUDIT_QUICK=perhaps", *DEMO, env={"MEMAUDIT_QUICK": "perhaps"}),
]

CONTRADICTIONS = [
    refused("--quick and --thorough", *DEMO, "--quick", "--thorough", says="contradict"),
    refused("two reports on stdout", *DEMO, "--json", "-", "--report", "terminal=-", says="two"),
    refused("two reports in a file", *DEMO, "--json", "a", "--report", "terminal=./a", says="two"),
    refused("a revision of a demo", *DEMO, "--revision", "main", says="revision"),
    refused("a revision of a folder", "scan", ".", "--revision", "main", says="revision"),
    refused("two revisions", "scan", "a/b@main", "--revision", "dev", says="two revisions"),
    refused("a revision with a path in it", "scan", "a/b", "--revision", "../x", says="revision"),
    refused("a report without a name", *DEMO, "--json", "", says="empty file name"),
    refused("a report without a file", *DEMO, "--report", "json=", says="NAME=FILE"),
    refused("a report in no folder", *DEMO, "--json", "no/such/r.json", says="does not exist"),
    refused("a report that is a folder", *DEMO, "--json", ".", says="not a regular file"),
    refused("a report that is a device", *DEMO, "--json", os.devnull, says="not a regular file"),
    refused("a report with a long name", *DEMO, "--json", "a" * 300, says="too long"),
    refused("a report of nobody", *DEMO, "--json", "~nobody-here/r.json", says="whole path"),
]


def model(path: Path) -> Path:
    """A small honest checkpoint at that path."""
    from memaudit.loading.source import DEMO_FOLDER

    path.write_bytes((DEMO_FOLDER / "lstm.safetensors").read_bytes())
    return path


def overwriting(how: str) -> Callable[[Scene], list[str]]:
    """A report that would take the place of the model that is audited."""

    def arrange(scene: Scene) -> list[str]:
        file = model(scene.inputs / "model.safetensors")
        target = {"itself": file, "a file beside it": scene.inputs / "config.json"}.get(how)
        if target is None:
            target = scene.output / "report.json"
            (os.symlink if how == "a link" else os.link)(file, target)
        if how == "a file beside it":
            target.write_text("{}")
        source = scene.inputs if how == "a file beside it" else file
        return ["scan", str(source), "--quick", "--horizon", "64", "--json", str(target)]

    return arrange


def nameless(scene: Scene) -> list[str]:
    """A model whose name does not tell that it is one."""
    file = model(scene.inputs / "weights")
    return ["scan", str(file), "--quick", "--horizon", "64", "--json", str(file)]


def beside(scene: Scene) -> list[str]:
    """A second report beside the model."""
    model(scene.output / "model.safetensors")
    (scene.output / "report.json").write_text("the first report")
    return ["scan", ".", "--quick", "--horizon", "64", "--json", "report.json"]


def written(outcome: Outcome) -> None:
    assert outcome.report()["complete"] is True


def spared(outcome: Outcome) -> None:
    """What leads to the model still does."""
    target = outcome.scene.output / "report.json"
    if target.exists():
        assert target.samefile(outcome.scene.inputs / "model.safetensors")


OVERWRITING = [
    Case(
        "arguments",
        f"a report in place of the model: {name}",
        arrange,
        exit=2,
        code="E_ARGUMENT",
        says="would replace a file of a model",
        check=spared,
    )
    for name, arrange in {
        **{
            how: overwriting(how) for how in ("itself", "a link", "a hard link", "a file beside it")
        },
        "without a suffix": nameless,
    }.items()
]

OVERWRITING += [
    Case(
        "arguments",
        "a second report beside the model",
        beside,
        exit=0,
        check=written,
        writes=("model.safetensors",),
    )
]

CASES = [*NAMES, *NUMBERS, *CONTRADICTIONS, *OVERWRITING]
