"""Weights that are no numbers, too large, too small, or all the same."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from tests.hostile.case import Case, Outcome, Scene

QUICK = ["--quick", "--horizon", "256", "--json", "report.json"]
NAN, INF = float("nan"), float("inf")


def layer(kind: type[nn.RNNBase] = nn.LSTM) -> dict[str, Tensor]:
    """The weights of a recurrent layer, the same every time."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return {f"rnn.{k}": v.detach().clone() for k, v in kind(2, 4).state_dict().items()}


def every(change: Callable[[Tensor], Tensor], kind: type[nn.RNNBase] = nn.LSTM):
    """A file whose tensors were all changed alike."""
    return saved(lambda: {name: change(tensor) for name, tensor in layer(kind).items()})


def filled(value: float, dtype: torch.dtype, kind: type[nn.RNNBase] = nn.LSTM):
    """A file in which one number stands everywhere."""
    return every(lambda tensor: torch.full_like(tensor, value, dtype=dtype), kind)


def saved(make: Callable[[], dict[str, Tensor]], *options: str):
    """Tensors in a safetensors file, audited with these options."""

    def arrange(scene: Scene) -> list[str]:
        path = scene.inputs / "model.safetensors"
        save_file(make(), path)
        return ["scan", str(path), *QUICK, *options]

    return arrange


def spoilt(**numbers: list[float]):
    """A file with some bad numbers in some tensors, as a torch file."""

    def arrange(scene: Scene) -> list[str]:
        tensors = layer()
        for name, values in numbers.items():
            tensors[f"rnn.{name}"].view(-1)[: len(values)] = torch.tensor(values)
        torch.save(tensors, scene.inputs / "model.pt")
        return ["scan", str(scene.inputs / "model.pt"), *QUICK]

    return arrange


def doubling() -> dict[str, Tensor]:
    """A vanilla RNN whose state doubles at every step."""
    tensors = {name: tensor.abs() for name, tensor in layer(nn.RNN).items()}
    return {**tensors, "rnn.weight_hh_l0": 2 * torch.eye(4)}


def refuse(word: str) -> None:
    raise AssertionError(f"{word} stands in the report")


def curves(outcome: Outcome) -> list[dict[str, Any]]:
    """The curves of a whole report in strict JSON, which has no NaN and no infinity."""
    report = json.loads((outcome.scene.output / "report.json").read_text(), parse_constant=refuse)
    assert report["complete"] is True
    found = report["results"]["memory"]["curves"]
    assert len(found) == 3
    return list(found.values())


def whole(outcome: Outcome) -> None:
    """Something was said about every query."""
    curves(outcome)


def found(outcome: Outcome, code: str) -> None:
    """A finding of that code is in the report and on the terminal."""
    assert code in {finding["code"] for finding in outcome.report()["findings"]}
    assert code in outcome.stdout


def overflown(outcome: Outcome) -> None:
    """The curve ends where it overflows, and that is told."""
    seen = {curve["query"]: curve for curve in curves(outcome)}
    impulse = seen["impulse"]
    assert impulse["status"] == "diverged"
    assert impulse["decay"]["kind"] == "growing"
    assert 0 < len(impulse["values"]) < outcome.report()["settings"]["horizon"]
    found(outcome, "MA102")
    found(outcome, "MA109")


def diverged(outcome: Outcome) -> None:
    """Not one lag is finite."""
    assert {curve["status"] for curve in curves(outcome)} == {"diverged"}
    found(outcome, "MA109")


def constant(outcome: Outcome) -> None:
    """A model that ignores its input has no memory."""
    assert {curve["decay"]["kind"] for curve in curves(outcome)} == {"memoryless"}
    found(outcome, "MA108")


REFUSED = [
    ("NaN weights", spoilt(weight_hh_l0=[NAN, NAN]), "E_NONFINITE", "weight_hh_l0 (2 NaN)"),
    ("infinite weights", spoilt(bias_ih_l0=[INF, -INF]), "E_NONFINITE", "2 infinite numbers"),
    (
        "NaN and infinite weights",
        spoilt(bias_ih_l0=[NAN, INF], weight_hh_l0=[NAN]),
        "E_NONFINITE",
        "2 tensors hold 2 NaN and 1 infinite number",
    ),
    ("an empty state dict", saved(dict), "E_WEIGHTS", "holds no weights"),
    (
        "no recurrent layer",
        saved(lambda: {"fc.weight": torch.ones(3, 3)}),
        "E_UNSUPPORTED",
        "no recurrent layer",
    ),
    ("a layer of width 0", every(lambda tensor: tensor[:0]), "E_WEIGHTS", "contradict"),
    ("integers", every(lambda tensor: (10 * tensor).long()), "E_WEIGHTS", "int64, not floats"),
    ("bytes", every(lambda tensor: (100 * tensor).to(torch.int8)), "E_WEIGHTS", "not floats"),
    ("truth values", every(lambda tensor: tensor > 0), "E_WEIGHTS", "bool, not floats"),
    ("complex numbers", every(lambda tensor: tensor + 0j), "E_WEIGHTS", "not floats"),
    (
        "weights too large for the dtype",
        saved(lambda: {k: v.double() * 1e300 for k, v in layer().items()}, "--dtype", "float32"),
        "E_NONFINITE",
        "too large for float32",
    ),
]

AUDITED = [
    (
        "overflow in the middle",
        saved(doubling, "--set", "nonlinearity=relu", "--dtype", "float32"),
        overflown,
    ),
    ("overflow at once", filled(1e308, torch.float64, nn.RNN), diverged),
    ("zero weights", filled(0.0, torch.float32), constant),
    ("weights of denormal size", filled(1e-40, torch.float32), whole),
    ("the smallest numbers there are", filled(5e-324, torch.float64, nn.GRU), whole),
    ("the largest float16", filled(65504.0, torch.float16), whole),
    ("the largest bfloat16", filled(3.38e38, torch.bfloat16, nn.RNN), whole),
    ("eight-bit floats", every(lambda tensor: tensor.to(torch.float8_e4m3fn)), whole),
    (
        "every tensor of another dtype",
        saved(lambda: {k: v.half() if "hh" in k else v.double() for k, v in layer().items()}),
        whole,
    ),
]


def twice(*options: str):
    """Two runs one after another; the second one writes report.json."""

    def command(arguments: list[str]) -> int:
        from memaudit.cli.app import main

        first = main([*arguments, *options])
        Path("report.json").rename("first.json")
        return first or main(arguments)

    return command


def both(outcome: Outcome) -> list[dict[str, Any]]:
    """The two reports, without their timing."""
    texts = [(outcome.scene.output / name).read_text() for name in ("first.json", "report.json")]
    return [{k: v for k, v in json.loads(text).items() if k != "timing"} for text in texts]


def alike(outcome: Outcome) -> None:
    first, second = both(outcome)
    assert first == second


def another(outcome: Outcome) -> None:
    first, second = both(outcome)
    assert (first["settings"]["seed"], second["settings"]["seed"]) == (7, 0)
    assert first["results"]["memory"] != second["results"]["memory"]


def repeated(name: str, check: Callable[[Outcome], None], *options: str) -> Case:
    return Case(
        "numbers",
        name,
        saved(layer),
        exit=0,
        command=twice(*options),
        check=check,
        writes=("first.json",),
    )


CASES = [
    *(
        Case("numbers", name, arrange, exit=3, code=code, says=says)
        for name, arrange, code, says in REFUSED
    ),
    *(Case("numbers", name, arrange, exit=0, check=check) for name, arrange, check in AUDITED),
    repeated("the same seed twice", alike),
    repeated("two seeds", another, "--seed", "7"),
]
