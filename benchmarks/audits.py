"""What scans cost: against bare forward passes, on large models, side by side, and how it grows."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import memaudit
from benchmarks.row import Row, best
from benchmarks.scans import library
from memaudit.interfaces import AbstractSubject
from memaudit.numerics.signals import seeded

#: The most steps for every lag that each group of queries feeds to a large model.
MOST_PER_LAG = 24
#: A default scan of one of the large shapes should end within two minutes on two cores.
MOST_SECONDS = 120.0


def lstm(width: int, *, inputs: int = 8, layers: int = 1) -> nn.Module:
    """An LSTM in float32 with weights of its own generator."""
    module = nn.LSTM(inputs, width, layers, batch_first=True)
    generator = seeded(0)
    with torch.no_grad():
        for weight in module.parameters():
            weight.uniform_(-(width**-0.5), width**-0.5, generator=generator)
    return module


def transformer(name: str, **config: Any) -> nn.Module:
    """A model of transformers with random weights, in float32."""
    library()  # the guard around its import
    import transformers

    with torch.random.fork_rng():
        torch.random.default_generator.manual_seed(0)
        model = getattr(transformers, f"{name}Model")
        return model(getattr(transformers, f"{name}Config")(**config)).eval()


#: The shapes of Mamba-130M, BERT-base and GPT-2, with a small table of tokens.
LARGE: dict[str, tuple[str, dict[str, Any]]] = {
    "Mamba-130M": ("Mamba", {"vocab_size": 1000, "hidden_size": 768, "num_hidden_layers": 24}),
    "BERT-base": ("Bert", {"vocab_size": 1000, "max_position_embeddings": 2048}),
    "GPT-2": ("GPT2", {"vocab_size": 1000, "n_positions": 2048}),
}


@dataclass
class Counted(AbstractSubject):
    """A subject that keeps what it was fed: saturated inputs cost more than zeros."""

    inner: AbstractSubject
    fed: list[Tensor] = field(default_factory=list)

    def __post_init__(self) -> None:
        for name in ("identity", "input_size", "pooled", "device", "dtype"):
            setattr(self, name, getattr(self.inner, name))

    def respond(self, inputs: Tensor) -> Tensor:
        """The answers of the subject inside."""
        self.fed.append(inputs.clone())
        return self.inner.respond(inputs)


def rows(*, full: bool) -> Iterator[Row]:
    """All of them, the quick ones first."""
    yield from forward_ratios(full=full)
    yield from one_input(full=full)
    yield from growth(full=full)
    yield from side_by_side(full=full)
    yield from large_models(full=full)


def forward_ratios(*, full: bool) -> Iterator[Row]:
    """A scan against the forward passes that it makes."""
    horizon = 4096 if full else 1024
    cases: dict[str, Any] = {"demo:lstm": "demo:lstm", "demo:gru": "demo:gru"}
    cases |= {"LSTM 8-128-128, float32": lstm(128, layers=2)}
    for name, source in cases.items():
        subject = memaudit.load(source)
        counted = Counted(subject)
        memaudit.scan(counted, horizon=horizon)

        def scan(subject: Any = subject) -> None:
            memaudit.scan(subject, horizon=horizon)

        def forwards(subject: Any = subject, fed: Sequence[Tensor] = tuple(counted.fed)) -> None:
            for batch in fed:
                subject.respond(batch)

        found = best({"scan": scan, "forward": forwards}, 3 if full else 2)
        value = found["scan"] / found["forward"]
        yield Row("audits", f"{name}, scan / its forward passes", value, note=f"T = {horizon}")


def one_input(*, full: bool) -> Iterator[Row]:
    """A scan of one query against the papers' way, |y_{t+1} - y_t| under one random constant x."""
    horizon, module = 4096 if full else 1024, lstm(128)
    x = torch.randn(1, 1, 8, generator=seeded(0)).expand(1, horizon + 1, 8)

    def script() -> None:
        with torch.no_grad():
            y = module(x)[0]
        (y[:, 1:] - y[:, :-1]).norm(dim=-1)

    def scan() -> None:
        memaudit.scan(module, horizon=horizon, queries=["heaviside"], probes=[])

    probes = memaudit.scan(module, horizon=horizon, queries=["heaviside"], probes=[])
    count = probes.memory["heaviside"].probes
    found = best({"scan": scan, "script": script}, 3)
    yield Row(
        "audits",
        "heaviside / the papers' script with one input",
        found["scan"] / found["script"],
        note=f"{count} probes instead of 1, with floor, noise and verdict",
    )


def growth(*, full: bool) -> Iterator[Row]:
    """The exponent of the cost of a scan in horizon, layers, probes and width.

    In the width it is that of scan / bare forward pass: the pass itself grows with the square.
    """
    asked = {"queries": ["driven", "heaviside", "impulse"], "probes": []}

    def mamba(layers: int) -> nn.Module:
        config = {"vocab_size": 64, "hidden_size": 32, "num_hidden_layers": layers}
        return transformer("Mamba", **config)

    def scan(module: nn.Module, **options: Any) -> Callable[[], Any]:
        return lambda: memaudit.scan(module, **asked, **options)

    small, sizes = lstm(32), [2.0**k for k in range(-4, 4)]
    lengths = (512, 1024, 2048, 4096, 8192)[: 5 if full else 3]
    depths = (2, 4, 8, 16)[: 4 if full else 3]
    works = {
        "horizon": {n: scan(small, horizon=n) for n in lengths},
        "layers": {n: scan(mamba(n), horizon=128, level="quick") for n in depths},
        "probes": {n: scan(small, horizon=512, amplitudes=sizes[:n]) for n in (2, 4, 8)},
    }
    for name, cases in works.items():
        found = best({str(n): work for n, work in cases.items()}, 2)
        value = exponent([*cases], [*found.values()])
        over = ", ".join(f"{n}: {seconds:.2g} s" for n, seconds in found.items())
        yield Row("audits", f"growth in {name}, exponent of the cost", value, "", 1.1, over)
    shares = {}
    for width in (64, 128, 256, 512, 1024)[: 5 if full else 3]:
        module = lstm(width)
        batch = torch.zeros(16, 512, 8)
        both = {"scan": scan(module, horizon=256), "bare": lambda m=module, b=batch: m(b)}
        found = best(both, 2)
        shares[width] = found["scan"] / found["bare"]
    over = ", ".join(f"{n}: {share:.3g}" for n, share in shares.items())
    value = exponent([*shares], [*shares.values()])
    yield Row(
        "audits", "growth in width, exponent of scan / one forward pass", value, "", 0.1, over
    )


def exponent(sizes: Sequence[float], costs: Sequence[float]) -> float:
    """The slope of log cost over log size."""
    return float(np.polyfit(np.log(sizes), np.log(costs), 1)[0])


def side_by_side(*, full: bool) -> Iterator[Row]:
    """Two scans at once against one, in processes of their own."""
    horizon = "2048" if full else "512"
    command = [sys.executable, "-m", "memaudit", "scan", "demo:lstm", "-q", "--horizon", horizon]

    def together(count: int) -> None:
        running = [subprocess.Popen(command, stdout=subprocess.DEVNULL) for _ in range(count)]
        if any([process.wait() for process in running]):
            raise RuntimeError("a scan failed")

    found = best({"one": lambda: together(1), "two": lambda: together(2)}, 2)
    value = found["two"] / found["one"]
    yield Row(
        "audits", "two scans at once / one", value, limit=2.3, note=f"{found['one']:.1f} s one"
    )


def large_models(*, full: bool) -> Iterator[Row]:
    """Default scans of large shapes: steps fed for every lag, and how long one takes."""
    for name, (kind, config) in LARGE.items():
        if not full:
            config = {**config, "num_hidden_layers": 2, "n_layer": 2}
        module = transformer(kind, **config)
        start = time.perf_counter()
        report = memaudit.scan(module, horizon=512 if full else 64)
        seconds = time.perf_counter() - start
        per_lag = max(report["memory"].fed.values()) / (512 if full else 64)
        note = f"{report.subject.parameters:,} parameters"
        name = name if full else f"two layers of {name}"
        yield Row("audits", f"{name}, steps fed for a lag", per_lag, "steps", MOST_PER_LAG, note)
        limit = MOST_SECONDS if full else None
        yield Row("audits", f"{name}, default scan", seconds, "s", limit)
