"""A stable matrix, and starts that it never forgets.

python examples/hurwitz_but_persistent.py [--starts 10] [--horizon 512]

The network dh/dt = tanh(W h) with W = [[1, 1], [-4, -3]] (Fig. 11b of the inverse approximation
paper) has the eigenvalues -1 and -1 at rest. An impulse sets the start, then zeros follow, and
what is read is the velocity dh/dt. Most starts in the unit square come to rest as the spectrum
says; some drift away, the velocity staying next to (1, -1) or (-1, 1).
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import torch
from torch import nn

import memaudit
from memaudit.report import Report

PACE = 0.1


class Drifter(nn.Module):
    """h' = h + 0.1·tanh(W h) + u·start, answering by tanh(W h'); an impulse is a start."""

    def __init__(self, start: Sequence[float]) -> None:
        super().__init__()
        weight = torch.tensor([[1.0, 1.0], [-4.0, -3.0]], dtype=torch.float64)
        self.weight = nn.Parameter(weight, requires_grad=False)
        direction = torch.tensor([list(start)], dtype=torch.float64)
        self.start = nn.Parameter(direction, requires_grad=False)

    def initial_state(self) -> torch.Tensor:
        """At rest."""
        return torch.zeros(2, dtype=torch.float64)

    def step(self, state: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
        """One Euler step, and then the push of the input."""
        return state + PACE * torch.tanh(state @ self.weight.T) + u * self.start

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """The velocities (B,T,2) under the inputs (B,T,1)."""
        state, answers = self.initial_state().expand(len(inputs), -1), []
        for u in inputs.unbind(1):
            state = self.step(state, u)
            answers.append(torch.tanh(state @ self.weight.T))
        return torch.stack(answers, 1)


def audit(start: Sequence[float], *, horizon: int = 512) -> Report:
    """The audit of one start and its mirror image."""
    subject = memaudit.wrap(Drifter(start), input_size=1)
    return memaudit.scan(subject, queries=["impulse"], amplitudes=[1.0], horizon=horizon)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the verdict for random starts in the unit square."""
    parser = argparse.ArgumentParser(description="A stable matrix that does not forget all starts.")
    parser.add_argument("--starts", type=int, default=10)
    parser.add_argument("--horizon", type=int, default=512)
    chosen = parser.parse_args(arguments)
    draw = torch.Generator().manual_seed(0)
    for start in (2 * torch.rand(chosen.starts, 2, generator=draw) - 1).tolist():
        report = audit(start, horizon=chosen.horizon)
        slowest = report.spectrum[0]
        found = [f.message for f in report.findings if f.code == "MA204"] or ["no contradiction"]
        print(f"start ({start[0]:+.2f}, {start[1]:+.2f}): {report.memory['impulse'].decay.kind}")
        print(f"  spectrum: time scale {slowest.time_scale:.3g} steps at {slowest.at}; {found[0]}")


if __name__ == "__main__":
    main()
