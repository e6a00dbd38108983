"""Ratio of a scan to the bare forward passes over the same tokens, in one run.

python -m tests.benchmarks.scan_cost [--horizon 4096] [--repeat 5]
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass, field

import torch

import memaudit
from memaudit.interfaces import AbstractSubject


@dataclass
class Counted(AbstractSubject):
    """A subject that remembers what it was fed: saturated inputs cost more than zeros."""

    inner: AbstractSubject
    fed: list[torch.Tensor] = field(default_factory=list)

    def __post_init__(self) -> None:
        for name in ("identity", "input_size", "pooled", "device", "dtype"):
            setattr(self, name, getattr(self.inner, name))

    def respond(self, inputs: torch.Tensor) -> torch.Tensor:
        self.fed.append(inputs.clone())
        return self.inner.respond(inputs)


def ratio(source: object, *, horizon: int, repeat: int) -> tuple[float, float, float]:
    """(ratio, scan seconds, forward seconds), each the best of several, interleaved."""
    subject = memaudit.load(source)
    counted = Counted(subject)
    memaudit.scan(counted, horizon=horizon)
    scans, forwards = [], []
    for _ in range(repeat):
        start = time.perf_counter()
        memaudit.scan(subject, horizon=horizon)
        scans.append(time.perf_counter() - start)
        start = time.perf_counter()
        for batch in counted.fed:
            subject.respond(batch)
        forwards.append(time.perf_counter() - start)
    return min(scans) / min(forwards), min(scans), min(forwards)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--horizon", type=int, default=4096)
    parser.add_argument("--repeat", type=int, default=5)
    arguments = parser.parse_args()
    wide = torch.nn.LSTM(8, 128, 2, batch_first=True)
    cases = {name: name for name in ("demo:lstm", "demo:gru", "demo:rnn")}
    print(
        f"{'model':24} {'scan s':>8} {'forward s':>10} {'ratio':>6}   (best of {arguments.repeat})"
    )
    for name, source in (*cases.items(), ("LSTM 8-128-128 float32", wide)):
        value, scan, forward = ratio(source, horizon=arguments.horizon, repeat=arguments.repeat)
        print(f"{name:24} {scan:8.2f} {forward:10.2f} {value:6.2f}")


if __name__ == "__main__":
    main()
