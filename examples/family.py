"""Do larger models of one family stand smaller moves of their weights?

python examples/family.py [--steps 400] [--draws 10]

Sums of m exponentials are fitted to a kernel by least squares. A kernel that decays exponentially,
0.9^t, leaves room for moves of one size whatever m is; for (t+1)^-1.1 the room shrinks as m grows,
unless the modes are stored behind exp or softplus (after Figures 1 and 4 of IATN). The figures
look at 100 steps; the slowest of these modes last 300, so --steps 100 leaves the second open.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

import memaudit
from memaudit.results.family import FamilyReport

SIZES = (2, 4, 6, 8, 14)
#: raw weight → mode, and back.
FORMS: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]] = {
    "direct": (lambda w: w, lambda mode: mode),
    "exp": (lambda w: torch.exp(-torch.exp(w)), lambda mode: torch.log(-torch.log(mode))),
    "softplus": (lambda w: torch.sigmoid(-w), lambda mode: torch.log(1 / mode - 1)),
}
#: target → its kernel, and the largest mode that a fit may use.
TARGETS: dict[str, tuple[Callable[[Tensor], Tensor], float]] = {
    "exp:0.9": (lambda t: 0.9**t, 0.95),
    "poly:1.1": (lambda t: (t + 1) ** -1.1, 1.0),
}
#: Keeps the weights of the fits small: without it they grow beyond all bounds with m.
RIDGE = 0.01


class Modes(nn.Module):
    """The linear recurrence y_t = sum_i c_i x_i(t) with x_i(t) = mode_i x_i(t-1) + b_i u_t."""

    memaudit_roles = {"raw": "recurrent/diagonal", "b": "input/vector", "c": "readout/vector"}  # noqa: RUF012

    def __init__(self, modes: Tensor, amplitudes: Tensor, form: str) -> None:
        super().__init__()
        self.parameterization = form
        self.raw = nn.Parameter(FORMS[form][1](modes))
        self.b = nn.Parameter(amplitudes.abs().sqrt())
        self.c = nn.Parameter(amplitudes.sign() * amplitudes.abs().sqrt())

    def modes(self) -> Tensor:
        """The eigenvalues of one step."""
        return FORMS[self.parameterization][0](self.raw)

    def forward(self, u: Tensor) -> Tensor:
        """The answers (B,T,1) to (B,T,1), by a convolution with the kernel."""
        steps = u.shape[1]
        lags = torch.arange(steps, dtype=u.dtype)
        kernel = ((self.b * self.c)[:, None] * self.modes()[:, None] ** lags).sum(0)
        spectrum = torch.fft.rfft(u[..., 0], n=2 * steps) * torch.fft.rfft(kernel, n=2 * steps)
        return torch.fft.irfft(spectrum, n=2 * steps)[:, :steps, None]


def fitted(target: str, size: int, *, form: str = "direct", steps: int = 400) -> Modes:
    """The least-squares fit of a target's kernel by `size` modes at Chebyshev nodes."""
    kernel, largest = TARGETS[target]
    angles = (2 * torch.arange(size, dtype=torch.float64) + 1) * torch.pi / (2 * size)
    modes = largest * (1 + torch.cos(angles)) / 2
    t = torch.arange(steps, dtype=torch.float64)
    table = torch.cat([modes ** t[:, None], RIDGE * torch.eye(size, dtype=torch.float64)])
    wanted = torch.cat([kernel(t), torch.zeros(size, dtype=torch.float64)])
    amplitudes = torch.linalg.lstsq(table, wanted[:, None]).solution[:, 0]
    return Modes(modes, amplitudes, form)


def audited(target: str, form: str, *, steps: int, draws: int) -> FamilyReport:
    """The audit of one family with the sizes and moves of the paper's figure."""
    members = [
        memaudit.wrap(fitted(target, size, form=form, steps=steps), input_size=1) for size in SIZES
    ]
    betas = [5e-4 * 2.0**k for k in range(21)]
    return memaudit.family(members, target=target, betas=betas, draws=draws, steps=steps)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the crossings and the verdict of every family."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--draws", type=int, default=10)
    chosen = parser.parse_args(arguments)
    for target, form in (
        ("exp:0.9", "direct"),
        ("poly:1.1", "direct"),
        ("poly:1.1", "exp"),
        ("poly:1.1", "softplus"),
    ):
        report = audited(target, form, steps=chosen.steps, draws=chosen.draws)
        crossings = ", ".join(f"{c.smaller}-{c.larger}: {c.beta:.3g}" for c in report.crossings)
        codes = " ".join(finding.code for finding in report.findings) or "none"
        print(f"{target}, {form}: {report.verdict}: {report.reason}")
        print(f"  crossings by m: {crossings}; findings: {codes}")


if __name__ == "__main__":
    main()
