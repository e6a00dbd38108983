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


def overwriting(scene: Scene) -> list[str]:
    """A report that would take the place of the model that is audited."""
    model = write(scene.inputs / "model.safetensors")
    (scene.output / "report.json").symlink_to(model)
    return ["scan", str(model), "--quick", "--json", "report.json"]


def existing_folder(scene: Scene) -> list[str]:
    write(scene.inputs / "model.safetensors")
    (scene.output / "made").mkdir()
    (scene.output / "made" / "mine").touch()
    return ["retrofit", str(scene.inputs), "--reparam", "exp", "--out", "made"]


def still_there(outcome: Outcome) -> None:
    assert os.listdir(outcome.scene.output / "made") == ["mine"]


ARGUMENTS = [
    missing("a path that is not there", "no/such/dir/model.pt", "org/name"),
    wrong("an empty source", "scan", ""),
    wrong("an unknown demo", "scan", "demo:lstn", says="lstm"),
    wrong("an unknown query", *DEMO, "--query", "heavyside", says="heaviside"),
    *(
        wrong(f"{option} {value}", *DEMO, option, value, says=option[2:])
        for option, value in (
            ("--horizon", "7"),
            ("--timeout", "nan"),
        )
    ),
    wrong("--set max_bytes=0", *DEMO, "--set", "max_bytes=0", says="max_bytes"),
    wrong("a bad variable", *DEMO, env={"MEMAUDIT_HORIZON": "abc"}, says="MEMAUDIT_HORIZON"),
    wrong("--quick and --thorough", *DEMO, "--quick", "--thorough"),
    wrong("a revision of a demo", *DEMO, "--revision", "main", says="revision"),
    Row("a report through a link to the model", overwriting, 2, "E_ARGUMENT"),
    Row(
        "a folder for the result that exists",
        existing_folder,
        2,
        "E_ARGUMENT",
        check=still_there,
        writes=("made",),
    ),
]


def every(change: Callable[[Tensor], Tensor]) -> Any:
    """A file whose tensors were all changed alike."""
    return saved("m.safetensors", lambda: {k: change(v) for k, v in weights().items()})


def spoilt() -> dict[str, Tensor]:
    """Weights of which two are no numbers."""
    found = weights()
    found["rnn.weight_hh_l0"].view(-1)[:2] = torch.nan
    return found


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


RELU = ("--set", "nonlinearity=relu", "--dtype", "float32", "--horizon", "256")
NUMBERS = [
    refused("NaN weights", saved("model.pt", spoilt), "E_NONFINITE", "2 NaN"),
    refused(
        "weights too large for the dtype",
        every(lambda tensor: tensor.double() * 1e300),
        "E_NONFINITE",
        "",
        "--dtype",
        "float32",
    ),
    refused("a layer of width 0", every(lambda tensor: tensor[:0]), "E_WEIGHTS"),
    Row("overflow in the middle", scan(saved("m.safetensors", doubling), *RELU), 0, check=grown),
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
