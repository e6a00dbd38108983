"""Scan, retrofit, fine-tune, fold, and scan again; then what the forms change, in several runs.

python -m examples.retrofit_and_finetune [--quick] [--seeds 3] [--out DIR]

Two models of the package learn something new: a Mamba, with the Trainer of transformers, to keep a
letter over a pause; an nn.RNN inside a module of one's own, in a plain loop, to average over 50
steps instead of 10. Both are put into a stable form first, and out of it in the end. Then the same
is tried in several forms, at a small and at a large learning rate. A learning rate is a size of raw
weights, which means something else in every form; seeds decide the data, the start is always one.
Tasks and rates were chosen where the forms differ: the table shows that they can, not how often.
"""

from __future__ import annotations

import argparse
import copy
import json
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import nn

import memaudit
from examples.finetuning import (
    DEMOS,
    FORMS,
    ROWS,
    STORED,
    Task,
    compare_forms,
    held_out,
    letters,
    mamba_task,
    rnn_task,
    sentences,
    table,
    train,
)
from memaudit.cli import main as command
from memaudit.loading import guard_torchvision

LACKS_ACCELERATE = (
    "The Trainer of transformers needs the package accelerate: pip install 'memaudit[train]'"
)


@dataclass(frozen=True, slots=True)
class Size:
    """How much is done."""

    horizon: int
    steps: int
    runs_of: int
    seeds: int
    forms: tuple[str, ...]

    def scan(self, model: Any) -> memaudit.Report:
        """A quick audit."""
        return memaudit.scan(model, horizon=self.horizon, level="quick")


FULL = Size(horizon=128, steps=100, runs_of=60, seeds=3, forms=FORMS)
QUICK = Size(horizon=16, steps=4, runs_of=4, seeds=1, forms=(STORED, "best", "direct"))


def main(arguments: Sequence[str] | None = None) -> None:
    """Run both fine-tunings and print both tables."""
    parser = argparse.ArgumentParser(description="Scan, retrofit, fine-tune, fold, and scan again.")
    parser.add_argument("--quick", action="store_true", help="a few steps of everything")
    parser.add_argument("--seeds", type=int, default=None, help="runs of every kind")
    parser.add_argument("--out", type=Path, default=None, help="folder for reports and models")
    chosen = parser.parse_args(arguments)
    if find_spec("accelerate") is None:
        raise SystemExit(LACKS_ACCELERATE)
    size = QUICK if chosen.quick else FULL
    seeds = size.seeds if chosen.seeds is None else max(chosen.seeds, 1)
    with printed_warnings():
        guard_torchvision()
    with tempfile.TemporaryDirectory() as temporary:
        out = chosen.out or Path(temporary)
        out.mkdir(parents=True, exist_ok=True)
        tasks = [finetune_mamba(size, out), finetune_rnn(size, out)]
    for task in tasks:
        show_forms(task, size, seeds)


def finetune_mamba(size: Size, out: Path) -> Task:
    """The Mamba, from one folder of transformers to the next."""
    from transformers import MambaForCausalLM

    print("== Mamba: a letter over a pause, with the Trainer")
    source = DEMOS / "mamba"
    vocabulary = json.loads((source / "tokenizer.json").read_text())["model"]["vocab"]
    task = mamba_task(MambaForCausalLM.from_pretrained(source), vocabulary)
    before = size.scan(source).save(out / "mamba-before.json")
    model: Any = copy.deepcopy(task.model)
    show_retrofit(model)
    print(f"loss {held_out(task, model):.4g} before")
    run_trainer(model, vocabulary, size.steps, out / "checkpoints")
    print(f"loss {held_out(task, model):.4g} after {size.steps} steps")
    show_fold(model)
    model.save_pretrained(out / "mamba")
    loaded: Any = MambaForCausalLM.from_pretrained(out / "mamba", output_loading_info=True)
    again, info = loaded
    lost = len(info["missing_keys"]) + len(info["unexpected_keys"])
    print(f"plain from_pretrained: {lost} keys missing or unexpected; {same_weights(model, again)}")
    show_difference(before, size.scan(out / "mamba").save(out / "mamba-after.json"))
    return task


def run_trainer(model: nn.Module, vocabulary: dict[str, int], steps: int, folder: Path) -> None:
    """Fine-tune in place, and print what the callback logged."""
    from transformers import PrinterCallback, Trainer, TrainingArguments

    from memaudit.training import MemauditCallback

    drawn = letters(vocabulary, ROWS * steps, torch.Generator().manual_seed(0))
    rows = [{name: value[k] for name, value in drawn.items()} for k in range(ROWS * steps)]
    args = TrainingArguments(
        output_dir=str(folder),
        max_steps=steps,
        per_device_train_batch_size=ROWS,
        learning_rate=5e-3,
        weight_decay=0.01,
        logging_steps=max(steps // 4, 1),
        save_strategy="no",
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
        dataloader_pin_memory=False,
    )
    trainer = Trainer(model=model, args=args, train_dataset=rows)  # type: ignore[arg-type]
    trainer.remove_callback(PrinterCallback)
    callback = MemauditCallback(horizon_every=None).attach(trainer)
    with printed_warnings():
        trainer.train()
    for line in trainer.state.log_history:
        named = ("loss", "memaudit/margin", "memaudit/gradient_over_weight")
        shown = [f"{name} {line[name]:.4g}" for name in named if name in line]
        if shown:
            print(f"  step {line['step']}: {', '.join(shown)}")
    if callback.stopped:
        print(f"  the callback stopped the run: {callback.stopped}")


def finetune_rnn(size: Size, out: Path) -> Task:
    """The RNN, in a module of one's own, from one file to the next."""
    print("\n== RNN: a longer average, in a plain loop")
    task = rnn_task()
    before = size.scan(DEMOS / "rnn.safetensors").save(out / "rnn-before.json")
    model = copy.deepcopy(task.model)
    show_retrofit(model)
    print(f"loss {held_out(task, model):.4g} before")
    train(task, model, rate=task.rates[0], seed=0, steps=size.steps)
    print(f"loss {held_out(task, model):.4g} after {size.steps} steps")
    show_fold(model)
    file = out / "rnn.safetensors"
    save_file(model.state_dict(), file, metadata={"kind": "rnn", "nonlinearity": "tanh"})
    again = copy.deepcopy(task.model)
    again.load_state_dict(load_file(file))
    print(f"the module as it was before: {same_weights(model, again)}")
    show_difference(before, size.scan(file).save(out / "rnn-after.json"))
    return task


def show_retrofit(model: nn.Module) -> None:
    """Put a model into the form `best` and print what became of it."""
    done = memaudit.retrofit(model, "best")
    print(done)
    if done.difference is not None:
        print(f"its answers moved by {done.difference:.2g}")


def show_fold(model: nn.Module) -> None:
    """Put the weights back and print which."""
    print(f"folded: {', '.join(memaudit.fold(model))}")


def same_weights(model: nn.Module, again: nn.Module) -> str:
    """How many weights are the same in both, bit by bit."""
    one, other = model.state_dict(), again.state_dict()
    same = sum(name in other and torch.equal(value, other[name]) for name, value in one.items())
    return f"{same} of {len(one)} weights are equal bit by bit"


def show_difference(before: Path, after: Path) -> None:
    """What `memaudit diff` says."""
    print(f"\n$ memaudit diff {before.name} {after.name}")
    command(["diff", str(before), str(after)])


def show_forms(task: Task, size: Size, seeds: int) -> None:
    """The table of all forms, and what it says."""
    refused, runs = compare_forms(task, size.forms, seeds=seeds, steps=size.runs_of)
    print(
        f"\n== {task.name}: runs of {size.runs_of} steps, {seeds} of each kind; rate {task.rated}"
    )
    print("diverged: the loss is no number, or above its start")
    print("unstable: a mode of the recurrent weights by themselves does not decay")
    print("\n".join(table(runs)))
    for form, reason in refused.items():
        print(f"{form} was not tried: {reason}")
    print("\n".join(sentences(task.name, runs)))


@contextmanager
def printed_warnings() -> Iterator[None]:
    """Print what memaudit warns of, once each, and pass over the rest."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    for text in dict.fromkeys(str(warning.message) for warning in caught):
        if text.startswith("memaudit:"):
            print(f"  {text}")


if __name__ == "__main__":
    main()
