"""I-eq4/120/127: for linear functionals the three memory functions are |rho(t)|_1."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

import memaudit
from examples.reproduce.drawing import COLOURS, lines, panels
from examples.reproduce.row import Effort, Number, Outcome, Row
from memaudit.numerics.convolution import filtered

INPUTS, LAGS = 4, 128
#: The claim is an equality; rounding over so many additions stays below this share of the maximum.
TOLERANCE = 1e-12
#: The discrete derivative y_{t+1} - y_t holds rho(t+1); an impulse at 0 is answered by rho(t).
SHIFT = {"heaviside": 1, "impulse": 0, "reversed": 1}


def kernels(generator: torch.Generator) -> dict[str, Tensor]:
    """Kernels rho (T, d): a random linear RNN, a power law, an oscillation, an ended memory."""
    made = {"generator": generator, "dtype": torch.float64}
    lags = torch.arange(8 * LAGS, dtype=torch.float64)
    turn = torch.linalg.qr(torch.randn(16, 16, **made))[0]
    step = 0.97 * turn
    state, rows = torch.randn(16, INPUTS, **made), []
    readout = torch.randn(16, **made)
    for _ in lags:
        rows.append(readout @ state)
        state = step @ state
    signs = torch.randn(INPUTS, **made)
    rates, pitch = 0.02 + 0.05 * torch.rand(INPUTS, **made), torch.rand(INPUTS, **made)
    waves = torch.exp(-rates * lags[:, None]) * torch.cos(pitch * lags[:, None])
    ended = torch.randn(len(lags), INPUTS, **made) * (lags[:, None] < 40)
    return {
        "linear RNN, m = 16": torch.stack(rows),
        "(t+1)^-1.1": signs * (lags[:, None] + 1) ** -1.1,
        "oscillating": waves,
        "over after 40 steps": ended,
    }


def measured(rho: Tensor) -> dict[str, np.ndarray]:
    """The three memory functions of the convolution with rho, by the audit."""

    def functional(u: Tensor) -> Tensor:
        return filtered(u, rho[: u.shape[1], None, :])

    subject = memaudit.wrap(functional, input_size=INPUTS, dtype="float64")
    report = memaudit.scan(subject, queries=list(SHIFT), horizon=LAGS)
    return {name: report.memory[name].values[: LAGS - 1] for name in SHIFT}


def run(effort: Effort) -> Outcome:
    """Every memory function against the sum of |rho_i(t)|."""
    found = kernels(torch.Generator().manual_seed(effort.seed))
    figure, axes = panels(*found)
    worst: dict[str, float] = dict.fromkeys(SHIFT, 0.0)
    numbers = []
    for done, ((name, rho), at) in enumerate(zip(found.items(), axes, strict=True)):
        norms, curves = rho.abs().sum(1).numpy(), measured(rho)
        offs = {}
        for query, values in curves.items():
            first = SHIFT[query]
            exact = norms[first : first + len(values)]
            # An impulse at lag 0 is the present, not memory: the audit begins at lag 1 there.
            begin = 1 - first
            offs[query] = float(np.abs(values - exact)[begin:].max() / norms.max())
            worst[query] = max(worst[query], offs[query])
        numbers += [Number(f"{name}: {query}, error", off, 0.0) for query, off in offs.items()]
        _draw(at, norms, curves)
        effort.tick(done + 1, len(found))
    largest = max(worst.values())
    told = ", ".join(f"{query} {off:.1e}" for query, off in worst.items())
    return Outcome(
        holds=math.isfinite(largest) and largest <= TOLERANCE,
        reason=f"largest deviation from |rho(t)|_1 as a share of its maximum: {told} "
        f"(at most {TOLERANCE:g} asked)",
        numbers=tuple(numbers),
        settings={"inputs": INPUTS, "lags": LAGS, "dtype": "float64", "kernels": list(found)},
        figure=figure,
    )


def _draw(at, norms: np.ndarray, curves: dict[str, np.ndarray]) -> None:
    shown = np.maximum(norms[: LAGS - 1], 1e-18)
    lines(
        at,
        {"|rho(t)|_1": (np.arange(LAGS - 1), shown)},
        x="t",
        y="memory",
        logs="y",
        color="#bbbbbb",
        marker="o",
        markersize=4,
    )
    for k, (query, values) in enumerate(curves.items()):
        lags = np.arange(len(values)) + SHIFT[query]
        marked = {"color": COLOURS[k], "linestyle": ("-", "--", ":")[k]}
        keep = slice(1 - SHIFT[query], None)
        lines(
            at,
            {query: (lags[keep], np.maximum(values[keep], 1e-18))},
            x="t",
            y="memory",
            logs="y",
            **marked,
        )
    at.set_ylim(3e-4 * norms.max(), 3 * norms.max())


ROW = Row(
    id="I-eq4/120/127",
    title="Three memory functions of linear functionals",
    claim="Heaviside, impulse and reversed memory all equal |rho(t)|_1",
    run=run,
)
