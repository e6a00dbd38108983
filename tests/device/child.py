"""The process that has the test device: it reads a case a line, and answers with its numbers.

A case runs on one device and gives plain data; whoever asks compares those of two devices.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn

import memaudit
from tests.device import twin

CASES: dict[str, Callable[..., Any]] = {}


def case(function: Callable[..., Any]) -> Callable[..., Any]:
    CASES[function.__name__] = function
    return function


def seeded_gru(width: int = 3, size: int = 6, outputs: int = 2) -> nn.Module:
    """A host in double precision: what is fed, a stack of two layers, and a readout."""

    class Host(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn = nn.GRU(width, size, num_layers=2, batch_first=True, bidirectional=True)
            self.head = nn.Linear(2 * size, outputs)

        def forward(self, u: torch.Tensor) -> torch.Tensor:
            return self.head(self.rnn(u)[0])

    made, draw = Host().double(), torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in made.parameters():
            weight.copy_(torch.rand(weight.shape, generator=draw, dtype=weight.dtype) - 0.5)
    return made


def numbers(module: nn.Module) -> dict[str, torch.Tensor]:
    return {name: value.detach().cpu().clone() for name, value in module.state_dict().items()}


@case
def scan(device: str, source: str, **options: Any) -> Any:
    return memaudit.scan(source, device=device, **options).to_dict()


@case
def scan_module(device: str, **options: Any) -> Any:
    """A module that is on the device already."""
    return memaudit.scan(seeded_gru().to(device), input_size=3, **options).to_dict()


@case
def scan_function(device: str, how: str) -> Any:
    """A function with tensors of its own, which shows by nothing where it wants to be fed."""
    weight = torch.full((2, 2), 0.3, dtype=torch.float64, device=device)

    def recurrent(u: torch.Tensor) -> torch.Tensor:
        state, states = u.new_zeros(len(u), 2), []
        for now in u.unbind(1):
            state = torch.tanh(now + state @ weight)
            states.append(state)
        return torch.stack(states, 1)

    if how == "wrap":
        subject = memaudit.wrap(recurrent, input_size=2, device=device)
        return memaudit.scan(subject, horizon=16, level="quick").to_dict()
    return memaudit.scan(recurrent, input_size=2, device=device, horizon=16).to_dict()


@case
def wrapped_copy(device: str) -> Any:
    """A module of the CPU, wrapped for the device: a copy goes there."""
    module = seeded_gru()
    subject = memaudit.wrap(module, input_size=3, device=device)
    assert {weight.device.type for weight in module.parameters()} == {"cpu"}
    return memaudit.scan(subject, horizon=16, level="quick").to_dict()


@case
def retrofit_and_fold(device: str, source: str, **options: Any) -> Any:
    """In place: what was done, an audit of the forms, and whether folding gives back every bit."""
    subject = memaudit.load(source, device=device)
    modules = subject.live_modules()
    before = {name: numbers(module) for name, module in modules.items()}
    done = memaudit.retrofit(subject, project=True, **options)
    found = memaudit.scan(subject, horizon=16, level="quick", probes=["spectrum"])
    folded = memaudit.fold(subject)
    after = {name: numbers(module) for name, module in modules.items()}
    same = [torch.equal(before[m][n], after[m][n]) for m in before for n in before[m]]
    moved = any(layer.moved for layer in done.layers)
    report = found.to_dict()
    return {"done": done.to_dict(), "report": report, "folded": folded, "same": all(same) or moved}


@case
def retrofit_folder(device: str) -> Any:
    """A folder written by the device, with modes moved inside, opened there and folded."""
    from safetensors.torch import save_file

    from memaudit.retrofitting.folder import fold_folder, retrofit_source

    with tempfile.TemporaryDirectory() as place:
        plain, folder, back = (Path(place, name) for name in ("plain", "folder", "back"))
        plain.mkdir()
        draw = torch.Generator().manual_seed(0)
        shapes = {"weight_ih_l0": (6, 3), "weight_hh_l0": (6, 6), "bias_ih_l0": (6,)}
        cell = {n: 2.0 * torch.rand(s, generator=draw) - 1.0 for n, s in shapes.items()}
        cell["bias_hh_l0"] = torch.zeros(6)
        save_file(cell, plain / "model.safetensors")
        options = {"device": device, "project": True}
        done = retrofit_source(plain / "model.safetensors", folder, **options)
        short = {"device": device, "horizon": 8, "level": "quick"}
        report = memaudit.scan(str(folder), **short)
        folded = fold_folder(folder, back)
        again = memaudit.scan(str(back), **short)
        reports = [json.loads(json.dumps(r.to_dict()["results"])) for r in (report, again)]
        return {"done": done.to_dict(), "reports": reports, "folded": folded}


@case
def family(device: str, sources: list[str], **options: Any) -> Any:
    return memaudit.family(sources, device=device, **options).to_dict()


@case
def random_state(device: str) -> Any:
    """Whether audits, copies and horizons in training leave the dice of every card alone."""
    from memaudit.retrofitting.monitoring import quick_horizon

    class Noisy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn = nn.GRU(3, 4, batch_first=True)

        def forward(self, u: torch.Tensor) -> torch.Tensor:
            torch.rand(2, device=u.device), torch.rand(2), random.random()
            return self.rnn(u)[0]

    def states() -> list[list[int]]:
        found = [torch.get_rng_state()]
        if device != "cpu":
            found += [torch.get_device_module(device).get_rng_state(card) for card in range(2)]
        return [state.tolist() for state in found]

    model = Noisy().to(device)
    before = states()
    torch.rand(1, device=device)
    alive = states() != before
    before = states()
    copies = memaudit.load(model, input_size=3).perturbable()
    assert copies is not None
    weights = {name: weight.detach()[None] for name, weight in copies.weights.items()}
    copies.respond(torch.zeros(1, 4, 3, device=device), weights)
    after_copies = states() == before
    quick_horizon(model, window=16)
    return {"alive": alive, "copies": after_copies, "horizon": states() == before}


@case
def command(device: str, *words: str) -> Any:
    """The exit code of a command line, and what it wrote."""
    del device
    from memaudit.cli.app import main

    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(list(words))
    return {"code": code, "out": out.getvalue(), "err": err.getvalue()}


@case
def mixed(device: str) -> Any:
    """The device refuses what CUDA refuses, and takes the numbers that CUDA takes."""
    here, there = torch.ones(2), torch.ones(2, device=device)
    refused = []
    for operator in (torch.add, torch.dot, torch.maximum, lambda a, b: torch.cat([a, b])):
        try:
            operator(here, there)
        except RuntimeError as error:
            refused.append("same device" in str(error))
        else:
            refused.append(False)
    numbers = [(there * torch.tensor(2.0)).tolist(), (there + 1).tolist()]
    index = there[torch.tensor([0, 1])].tolist()
    return {"refused": refused, "numbers": numbers, "index": index}


@case
def resumed_trainer(device: str) -> Any:
    """A run of the Trainer with the callback, and one that is resumed from its middle."""
    from memaudit.training import MemauditCallback
    from tests.training.models import mamba, raws, retrofitted, trainer

    def run(folder: str, *, seed: int, resume: str | None = None) -> dict[str, Any]:
        model = retrofitted(mamba(seed=seed).double().to(device))
        options = {"save_strategy": "steps", "save_steps": 2, "use_cpu": device == "cpu"}
        made = trainer(model, Path(folder), **options)
        MemauditCallback(horizon_every=2, window=16).attach(made)
        made.train(resume_from_checkpoint=resume)
        dull = ("_runtime", "_per_second", "epoch")  # clocks
        lines = [
            {key: value for key, value in line.items() if not key.endswith(dull)}
            for line in made.state.log_history
        ]
        kept = {name: raw.tolist() for name, raw in raws(model).items()}
        assert {raw.device.type for raw in raws(model).values()} == {device}
        return {"raws": kept, "log": lines}

    with tempfile.TemporaryDirectory() as place, _accelerated(device):
        straight = run(f"{place}/one", seed=0)
        resumed = run(f"{place}/two", seed=9, resume=f"{place}/one/checkpoint-2")
    return {**straight, "same": straight["raws"] == resumed["raws"]}


@contextlib.contextmanager
def _accelerated(device: str) -> Iterator[None]:
    """accelerate chooses among the accelerators it knows by name, unless it is told."""
    os.environ["ACCELERATE_TORCH_DEVICE"] = device
    try:
        yield
    finally:
        del os.environ["ACCELERATE_TORCH_DEVICE"]


def answer(line: str) -> dict[str, Any]:
    asked = json.loads(line)
    try:
        found = CASES[asked["case"]](asked["device"], *asked["words"], **asked["options"])
    except Exception:
        return {"error": traceback.format_exc()}
    return {"found": found}


def serve(library: Path) -> None:
    """Answers go to the first stdout; what cases print goes to stderr."""
    torch.set_num_threads(1)
    twin.register(library)
    warnings.simplefilter("ignore")
    with os.fdopen(os.dup(1), "w") as answers:
        os.dup2(2, 1)
        for line in sys.stdin:
            print(json.dumps(answer(line)), file=answers, flush=True)


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
