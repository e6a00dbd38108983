"""Scans of a Mamba of the 130M shape: memaudit's, the library's, and none at all."""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from benchmarks.row import Row, best
from memaudit.loading import guard_torchvision
from memaudit.numerics.scans import selective_scan

STEPS = 4096
#: The most that a whole model may cost with memaudit's scan, where it costs 1 with none.
MOST_OVER_NONE = 1.15
#: Answers are compared after this many steps; the library's scan is slow.
COMPARED = 512


def library() -> Any:
    """The module whose global name is the scan; transformers is slow to import."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        guard_torchvision()
        import_module("transformers").logging.set_verbosity_error()
    return import_module("transformers.models.mamba.modeling_mamba")


def ours(*tensors: torch.Tensor, **options: Any) -> Any:
    """The scan of memaudit, under the call of the library."""
    known = {k: v for k, v in options.items() if k not in ("use_mambapy", "use_associative_scan")}
    return selective_scan(*tensors, **known)


def none(hidden: torch.Tensor, *tensors: torch.Tensor, **options: Any) -> torch.Tensor:
    """No scan: what the rest of the model costs."""
    del tensors, options
    return hidden


def theirs(*tensors: torch.Tensor, **options: Any) -> Any:
    """The scan of the library, step by step."""
    return library().mamba_selective_scan(*tensors, **options)


@contextmanager
def scanning(scan: Any) -> Iterator[None]:
    """The library with another scan; its own comes back afterwards."""
    module = library()
    own = module.mamba_selective_scan
    module.mamba_selective_scan = own if scan is theirs else scan
    try:
        yield
    finally:
        module.mamba_selective_scan = own


def build(layers: int) -> Any:
    """The shape of mamba-130m, random weights, few tokens."""
    module = library()
    shape = {"vocab_size": 1000, "hidden_size": 768, "state_size": 16}
    return module.MambaModel(module.MambaConfig(**shape, num_hidden_layers=layers)).eval()


def tokens_of(batch: int, steps: int) -> torch.Tensor:
    """Random tokens, the same in every process."""
    return torch.randint(1000, (batch, steps), generator=torch.Generator().manual_seed(batch))


@torch.no_grad()
def answer(model: Any, scan: Any, tokens: torch.Tensor) -> torch.Tensor:
    """The last hidden state."""
    with scanning(scan):
        return model(input_ids=tokens, use_cache=False).last_hidden_state


def rows(*, full: bool) -> Iterator[Row]:
    """Times at two batches, the difference of the answers, and the memory of a process."""
    layers = 24 if full else 2
    model, note = build(layers), f"{layers} layers, T = {STEPS}"
    answer(model, ours, tokens_of(1, 64))
    for batch in (1, 8):
        fed, ways = tokens_of(batch, STEPS), {"ours": ours, "none": none}
        if batch == 1:
            ways["theirs"] = theirs
        found = best(
            {k: lambda w=w, t=fed: answer(model, w, t) for k, w in ways.items()}, 8 // batch + 2
        )
        about = f"batch {batch}, {note}"
        name = "Mamba-130M: memaudit's scan / no scan at all"
        yield Row("scans", name, found["ours"] / found["none"], limit=MOST_OVER_NONE, note=about)
        if batch == 1:
            value = found["theirs"] / found["ours"]
            yield Row("scans", "Mamba-130M: transformers' scan / memaudit's", value, note=about)
    fed = tokens_of(1, COMPARED)
    reference = answer(model, theirs, fed)
    apart = float((answer(model, ours, fed) - reference).abs().max() / reference.abs().max())
    yield Row("scans", "largest difference of the answers, relative", apart, "", 1e-4)
    for steps in (STEPS, 2 * STEPS):
        peaks = [peak(name, steps) for name in ("ours", "theirs")]
        about = f"T = {steps}; {peaks[1]:.0f} MB with the library's"
        yield Row("scans", "peak of a process with two layers", peaks[0], "MB", note=about)


def peak(name: str, steps: int) -> float:
    """Megabytes that a process of its own reached."""
    command = [sys.executable, "-m", "benchmarks.scans", name, str(steps)]
    return float(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


if __name__ == "__main__":
    answer(build(2), {"ours": ours, "theirs": theirs}[sys.argv[1]], tokens_of(1, int(sys.argv[2])))
    lines = Path("/proc/self/status").read_text("ascii").splitlines()
    print(next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 2**10)
