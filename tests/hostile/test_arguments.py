"""Arguments and numbers: contradictions end before any work, and no number is not a number."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.hostile.rows import QUICK, Arrange, Outcome, Row, Scene, parametrized, run
from tests.hostile.small_models import refused, saved, scan, weights, write

DEMO = ("scan", "demo:lstm")


def words(*arguments: str) -> Arrange:
    return lambda scene: list(arguments)


def before_work(outcome: Outcome) -> None:
    """One line on stderr and nothing on stdout."""
    assert outcome.stdout == ""
    assert outcome.stderr.count("\n") == 1


def wrong(name: str, *arguments: str, says: str = "", **more: Any) -> Row:
    return Row(name, words(*arguments), 2, "E_ARGUMENT", says, before_work, **more)


def missing(name: str, source: str, says: str = "") -> Row:
    return Row(name, words("scan", source), 3, "E_NOT_FOUND", says, before_work)


def overwriting(target: Callable[[Path, Scene], Path]) -> Arrange:
    """A report that would take the place of the model that is audited."""

    def arrange(scene: Scene) -> list[str]:
        model = write(scene.inputs / "model.safetensors")
        return ["scan", str(model), "--quick", "--json", str(target(model, scene))]

    return arrange


def link_to(model: Path, scene: Scene) -> Path:
    (scene.output / "report.json").symlink_to(model)
    return scene.output / "report.json"


def existing_folder(scene: Scene) -> list[str]:
    write(scene.inputs / "model.safetensors")
    (scene.output / "made").mkdir()
    (scene.output / "made" / "mine").touch()
    return ["retrofit", str(scene.inputs), "--reparam", "exp", "--out", "made"]


def still_there(outcome: Outcome) -> None:
    assert os.listdir(outcome.scene.output / "made") == ["mine"]


ARGUMENTS = [
    missing("a path that is not there", "no/such/dir/model.pt", "org/name"),
    missing("a folder without weights", "."),
    wrong("an empty source", "scan", ""),
    wrong("an unknown demo", "scan", "demo:lstn", says="lstm"),
    wrong("an unknown query", *DEMO, "--query", "heavyside", says="heaviside"),
    wrong("an unknown option", *DEMO, "--horizn", "64", says="--horizon"),
    wrong("an unknown setting", *DEMO, "--set", "epsilom=1", says="epsilon"),
    wrong("an unknown gate", *DEMO, "--fail-on", "warnings", says="warning"),
    *(
        wrong(f"{option} {value[:20]}", *DEMO, option, value, says=option[2:])
        for option, value in (
            ("--horizon", "7"),
            ("--horizon", "9" * 5000),
            ("--seed", "-1"),
            ("--timeout", "nan"),
        )
    ),
    *(
        wrong(f"--set {pair}", *DEMO, "--set", pair, says=pair.partition("=")[0])
        for pair in ("epsilon=NaN", "amplitudes=[1,-1]", "max_bytes=0")
    ),
    wrong("a bad variable", *DEMO, env={"MEMAUDIT_HORIZON": "abc"}, says="MEMAUDIT_HORIZON"),
    wrong("--quick and --thorough", *DEMO, "--quick", "--thorough"),
    wrong("two reports on stdout", *DEMO, "--json", "-", "--report", "terminal=-"),
    wrong("a revision of a demo", *DEMO, "--revision", "main", says="revision"),
    wrong("a report in no folder", *DEMO, "--json", "no/such/r.json"),
    wrong("a report that is a folder", *DEMO, "--json", "."),
    Row("a report in place of the model", overwriting(lambda m, _: m), 2, "E_ARGUMENT"),
    Row("a report through a link to the model", overwriting(link_to), 2, "E_ARGUMENT"),
    Row(
        "a folder for the result that exists",
        existing_folder,
        2,
        "E_ARGUMENT",
        check=still_there,
        writes=("made",),
    ),
]


def every(change: Callable[[Tensor], Tensor], kind: type[nn.RNNBase] = nn.LSTM) -> Any:
    """A file whose tensors were all changed alike."""
    return saved("m.safetensors", lambda: {k: change(v) for k, v in weights(kind).items()})


def spoilt(**numbers: list[float]) -> Any:
    """A file with some bad numbers in some tensors."""

    def tensors() -> dict[str, Tensor]:
        found = weights()
        for name, values in numbers.items():
            found[f"rnn.{name}"].view(-1)[: len(values)] = torch.tensor(values)
        return found

    return saved("model.pt", tensors)


def doubling() -> dict[str, Tensor]:
    """A vanilla RNN whose state doubles at every step."""
    tensors = {name: tensor.abs() for name, tensor in weights(nn.RNN).items()}
    return {**tensors, "rnn.weight_hh_l0": 2 * torch.eye(4)}


def codes(outcome: Outcome) -> set[str]:
    report = outcome.report()
    assert report["complete"]
    return {finding["code"] for finding in report["findings"]}


def grown(outcome: Outcome) -> None:
    """The curve ends where it overflows, and that is told."""
    impulse = outcome.curves()["impulse"]
    assert (impulse["status"], impulse["decay"]["kind"]) == ("diverged", "growing")
    assert 0 < len(impulse["values"]) < 256
    assert {"MA102", "MA109"} <= codes(outcome)


def never_finite(outcome: Outcome) -> None:
    assert {curve["status"] for curve in outcome.curves().values()} == {"diverged"}
    assert "MA109" in codes(outcome)


def constant(outcome: Outcome) -> None:
    """A model that ignores its input has no memory."""
    assert {c["decay"]["kind"] for c in outcome.curves().values()} == {"memoryless"}
    assert "MA108" in codes(outcome)


def twice(arguments: list[str]) -> int:
    """The same scan before this one."""
    from memaudit.cli.app import main

    first = main(arguments)
    Path("report.json").rename("first.json")
    return first or main(arguments)


def alike(outcome: Outcome) -> None:
    reports = [outcome.report(name) for name in ("first.json", "report.json")]
    first, second = (json.dumps({**report, "timing": None}) for report in reports)
    assert first == second


NAN, INF = float("nan"), float("inf")
RELU = ("--set", "nonlinearity=relu", "--dtype", "float32", "--horizon", "256")
NUMBERS = [
    refused("NaN weights", spoilt(weight_hh_l0=[NAN, NAN]), "E_NONFINITE", "2 NaN"),
    refused("infinite weights", spoilt(bias_ih_l0=[INF, -INF]), "E_NONFINITE", "2 infinite"),
    refused(
        "weights too large for the dtype",
        every(lambda tensor: tensor.double() * 1e300),
        "E_NONFINITE",
        "",
        "--dtype",
        "float32",
    ),
    refused("whole numbers", every(lambda tensor: (10 * tensor).long()), "E_WEIGHTS"),
    refused("a layer of width 0", every(lambda tensor: tensor[:0]), "E_WEIGHTS"),
    Row("overflow in the middle", scan(saved("m.safetensors", doubling), *RELU), 0, check=grown),
    Row(
        "overflow at once",
        # Under tanh infinity is one again, or a difference of infinities, as processors add up.
        scan(
            every(lambda tensor: torch.full_like(tensor, 1e308, dtype=torch.float64), nn.RNN),
            "--set",
            "nonlinearity=relu",
        ),
        0,
        check=never_finite,
    ),
    Row("zero weights", scan(every(torch.zeros_like)), 0, check=constant),
    Row(
        "the same seed twice",
        words(*DEMO, *QUICK),
        0,
        check=alike,
        command=twice,
        writes=("first.json",),
    ),
]

ROWS = [*ARGUMENTS, *NUMBERS]


@parametrized(ROWS)
def test_wrong_arguments_and_wrong_numbers_get_a_sentence(
    row: Row, capfd: pytest.CaptureFixture[str]
) -> None:
    run(row, __name__, capfd)
