"""Time a Mamba of the 130M shape with the library's scan, memaudit's scan, and none.

python examples/benchmark_scan.py [--steps 4096] [--layers 24] [--repeat 3] [--quick]

All times come from one run, interleaved, the best of several; only their ratios mean something.
"""

from __future__ import annotations

import argparse
import math
import resource
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from memaudit.loading import guard_torchvision
from memaudit.numerics.scans import selective_scan

Scan = Callable[..., Any]
NAMES = ("reference", "memaudit", "identity")
#: Differences show after this many steps; the library's scan is slow.
STEPS_COMPARED = 512


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


def identity(hidden: torch.Tensor, *tensors: torch.Tensor, **options: Any) -> torch.Tensor:
    """No scan at all: what the rest of the model costs."""
    del tensors, options
    return hidden


def scans() -> dict[str, Scan]:
    """The three scans by name."""
    return dict(zip(NAMES, (library().mamba_selective_scan, ours, identity), strict=True))


@contextmanager
def scanning(scan: Scan) -> Iterator[None]:
    """The library with another scan; its own comes back afterwards."""
    module = library()
    own = module.mamba_selective_scan
    module.mamba_selective_scan = scan
    try:
        yield
    finally:
        module.mamba_selective_scan = own


def build(layers: int, *, spread: float = 0.1) -> Any:
    """The shape of mamba-130m, random weights, few tokens; 0.1 is the library's own spread."""
    module = library()
    shape = {"vocab_size": 1000, "hidden_size": 768, "state_size": 16}
    config = module.MambaConfig(**shape, num_hidden_layers=layers, initializer_range=spread)
    return module.MambaModel(config).eval()


@torch.no_grad()
def answer(model: Any, scan: Scan, **inputs: torch.Tensor) -> torch.Tensor:
    """The last hidden state."""
    with scanning(scan):
        return model(**inputs, use_cache=False).last_hidden_state


def tokens_of(batch: int, steps: int) -> torch.Tensor:
    """Random tokens, the same in every process."""
    return torch.randint(1000, (batch, steps), generator=torch.Generator().manual_seed(batch))


def race(model: Any, tokens: torch.Tensor, names: Sequence[str], repeat: int) -> dict[str, float]:
    """Best seconds with every scan; they take turns, so that noise hits all of them."""
    known, best = scans(), dict.fromkeys(names, math.inf)
    answer(model, ours, input_ids=tokens[:, :64])
    for _ in range(repeat):
        for name in names:
            start = time.perf_counter()
            answer(model, known[name], input_ids=tokens)
            best[name] = min(best[name], time.perf_counter() - start)
    return best


def differences(model: Any, tokens: torch.Tensor) -> tuple[float, float, float]:
    """Largest differences: in a scan, relative; in the model's answer; and that of one rounding.

    The last is the library against itself, its embeddings moved to the next number: what the
    weights make of rounding, whoever rounds.
    """
    own, shares = library().mamba_selective_scan, []

    def both(*tensors: torch.Tensor, **options: Any) -> torch.Tensor:
        theirs, mine = own(*tensors, **options), ours(*tensors, **options)
        shares.append(((theirs - mine).abs().max() / theirs.abs().max()).item())
        return theirs

    reference = answer(model, both, input_ids=tokens)
    whole = answer(model, ours, input_ids=tokens) - reference
    embeddings = model.embeddings(tokens).detach()
    moved = torch.nextafter(embeddings, torch.full_like(embeddings, math.inf))
    rounding = answer(model, own, inputs_embeds=moved) - reference
    return max(shares), whole.abs().max().item(), rounding.abs().max().item()


def peak(name: str, steps: int) -> float:
    """Megabytes that a process of its own reached."""
    command = [sys.executable, __file__, "--peak", name, "--steps", str(steps), "--layers", "2"]
    run = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return float(run.stdout)


def own_peak() -> float:
    """Megabytes that this process has reached.

    Linux lets a child start with the peak of its parent in getrusage, but not in its own status.
    """
    status = Path("/proc/self/status")
    if status.exists():
        lines = status.read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 2**10
    unit = 2**20 if sys.platform == "darwin" else 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


def show_times(model: Any, batch: int, names: Sequence[str], options: argparse.Namespace) -> None:
    best = race(model, tokens_of(batch, options.steps), names, options.repeat)
    for name in names:
        print(f"{batch:>5}  {name:10} {best[name]:9.2f} s")
    if "reference" in names:
        print(f"{'':7}reference / memaudit = {best['reference'] / best['memaudit']:.2f}")
    print(f"{'':7}memaudit / identity  = {best['memaudit'] / best['identity']:.2f}\n", flush=True)


def show_differences(options: argparse.Namespace) -> None:
    tokens = tokens_of(1, min(options.steps, STEPS_COMPARED))
    print("largest difference of memaudit from the reference")
    print(f"{'weights':>9}{'one scan':>12}{'whole model':>14}{'one rounding of the input':>29}")
    for spread in (0.1, 0.02):
        scan, whole, rounding = differences(build(options.layers, spread=spread), tokens)
        print(f"{spread:9}{scan:12.1e}{whole:14.1e}{rounding:29.1e}", flush=True)


def show_peaks(steps: int) -> None:
    print("\npeak memory of a process with two layers, batch 1, MB")
    print(f"{'steps':>9}" + "".join(f"{name:>12}" for name in NAMES))
    for length in (steps, 2 * steps):
        row = "".join(f"{peak(name, length):12.0f}" for name in NAMES)
        print(f"{length:>9}{row}", flush=True)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=4096)
    parser.add_argument("--layers", type=int, default=24)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="2 layers, 512 steps, batch 1 and 2")
    parser.add_argument("--peak", choices=NAMES, help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.quick:
        options.steps, options.layers = 512, 2
    model = build(options.layers)
    if options.peak:
        answer(model, scans()[options.peak], input_ids=tokens_of(1, options.steps))
        print(own_peak())
        return
    print(f"Mamba of {options.layers} layers, hidden 768, state 16, {options.steps} steps, float32")
    print(f"{torch.get_num_threads()} threads, best of {options.repeat}\n")
    show_times(model, 1, NAMES, options)
    show_times(model, 2 if options.quick else 8, NAMES[1:], options)
    show_differences(options)
    show_peaks(options.steps)


if __name__ == "__main__":
    main()
