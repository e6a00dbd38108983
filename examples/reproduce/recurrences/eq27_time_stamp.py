"""O-eq27: the time stamp can be read from one entry of the state, as far as precision goes."""

from __future__ import annotations

import cmath
import math
from functools import cache

import torch
from matplotlib.figure import Figure
from torch import Tensor

from examples.reproduce.drawing import lines, panels
from examples.reproduce.row import Effort, Number, Outcome, Row
from memaudit.numerics.linear import Modal

LENGTH = 65_536
REAL = (0.9, 0.99, 0.999, 0.9999)
#: A mode that turns: its logarithm has many values, and eq. 27 takes the principal one.
TURNING = 0.999 * cmath.exp(0.3j)
DTYPES = {"float64": torch.float64, "float32": torch.float32, "bfloat16": torch.bfloat16}
#: The stamp is right while it is off by less than half a step.
HALF = 0.5


@cache
def stepped(mode: float) -> Tensor:
    """x_{k,0} for k = 1 … LENGTH, one step after the other in float64."""
    one = torch.ones(1, 1, dtype=torch.float64)
    system = Modal(torch.tensor([mode], dtype=torch.float64), one, one)
    answer = system.run(torch.ones(1, LENGTH, 1, dtype=torch.float64), "stepping")
    return answer[0, :, 0]


def stamps(mode: float, dtype: torch.dtype) -> Tensor:
    """x_{k,0} for k = 1 … LENGTH, stepped in float64 and stored in a dtype."""
    return stepped(mode).to(dtype).double()


def read(stored: Tensor, mode: float) -> Tensor:
    """Eq. 27: k = log(x (lambda - 1) + 1) / log lambda; what is left of nothing is infinite."""
    return torch.log((stored * (mode - 1) + 1).clamp(min=0.0)) / math.log(mode)


def last_right(found: Tensor) -> int:
    """The last k up to which every stamp is right."""
    k = torch.arange(1, len(found) + 1, dtype=torch.float64)
    wrong = torch.nonzero(~((found - k).abs() < HALF))
    return int(wrong[0]) if len(wrong) else len(found)


def predicted(mode: float, eps: float) -> float:
    """Where rounding x by eps/2 of its size moves lambda^k by half of what one step does.

    x is about 1 / (1 - lambda) there, so (1 - lambda)·x is off by eps/2, and the stamp by
    eps / (2 lambda^k |log lambda|); this is 1/2 at lambda^k = eps / |log lambda|.
    """
    return math.log(eps / -math.log(mode)) / math.log(mode)


def turning_error() -> tuple[int, int]:
    """For how many k <= 64 the principal logarithm of a turning mode is right, and of how many."""
    right = 0
    for k in range(1, 65):
        state = sum(TURNING**i for i in range(k))
        found = cmath.log(state * (TURNING - 1) + 1) / cmath.log(TURNING)
        right += abs(found - k) < HALF
    return right, 64


def run(effort: Effort) -> Outcome:
    """How far stamps can be read, by mode and by precision."""
    reach: dict[str, list[int]] = {}
    expected: dict[str, list[float]] = {}
    for name, dtype in DTYPES.items():
        found = [last_right(read(stamps(mode, dtype), mode)) for mode in REAL]
        reach[name] = found
        eps = torch.finfo(dtype).eps
        expected[name] = [predicted(mode, eps) for mode in REAL]
        effort.tick(len(reach), len(DTYPES))
    right, of = turning_error()
    double = dict(zip(REAL, reach["float64"], strict=True))
    dated = all(value >= 1 for value in reach["float64"]) and double[0.999] >= 2048
    return Outcome(
        # The paper asks for no more than a complex lambda_0 in the disk.
        holds=dated and right == of,
        reason=f"a complex lambda_0 = {TURNING:.3g} in the disk, which is all that the paper asks, "
        f"is dated right only {right} times of {of}: the logarithm has many values. Real "
        f"lambda_0 = 0.999 dates 1 … {double[0.999]} in float64, "
        f"{reach['float32'][2]} in float32, {reach['bfloat16'][2]} in bfloat16; 0.9 ends at "
        f"{double[0.9]}: from lambda^k = eps / |log lambda| on rounding hides the next step",
        numbers=_numbers(reach, right, of),
        settings={"modes": REAL, "turning": str(TURNING), "L": LENGTH, "right": "within 1/2"},
        figure=_figure(reach, expected),
        errata="|lambda_0| <= 1 is not enough: lambda_0 = 1 divides by 0, and a complex one needs "
        "another branch of the logarithm. It must be real, between 0 and 1. Eq. 26 "
        "and 31: at a whole t both weights are 0, and between steps they stand at the wrong "
        "neighbour; meant is (1 + floor t - t) and (t - floor t)",
        # Of a real mode that is not dated the erratum says nothing.
        explained=dated,
    )


def _numbers(reach: dict[str, list[int]], right: int, of: int) -> tuple[Number, ...]:
    numbers = [
        Number(f"lambda_0 = {mode:g}, {name}: right up to k", value)
        for name, values in reach.items()
        for mode, value in zip(REAL, values, strict=True)
    ]
    ahead = predicted(0.99, torch.finfo(torch.float64).eps)
    numbers += [
        Number("lambda_0 = 0.99, float64: right up to k, by rounding alone", ahead),
        Number(f"turning mode, principal logarithm: right for how many of {of}", right),
        # (31) at a whole t: ceil(t) = floor(t) = t
        Number("weights of eq. 31 at a whole t: their sum (meant: 1)", _weights(7.0)),
        Number(
            "weights of eq. 31 at t = 7.25: that of k = 7 (meant: 0.75)", 7.25 - math.floor(7.25)
        ),
    ]
    return tuple(numbers)


def _weights(t: float) -> float:
    """The two weights of eq. 31 as printed."""
    return (math.ceil(t) - t) + (t - math.floor(t))


def _figure(reach: dict[str, list[int]], expected: dict[str, list[float]]) -> Figure:
    figure, (range_of, error) = panels(
        "stamps are right up to k (at most 65536)", "lambda_0 = 0.99"
    )
    slow = [1 - mode for mode in REAL]
    lines(range_of, {n: (slow, v) for n, v in reach.items()}, x="1 - lambda_0", y="k", logs="xy")
    for name in ("float64", "float32"):  # in bfloat16 eps is larger than a step from the start
        range_of.plot(slow, expected[name], "k:", linewidth=1)
    k = torch.arange(1, 6001, dtype=torch.float64)
    curves = {}
    for name, dtype in DTYPES.items():
        off = (read(stamps(0.99, dtype), 0.99)[:6000] - k).abs()
        seen = off.isfinite() & (off > 0)
        curves[name] = (k[seen].tolist(), off[seen].tolist())
    lines(error, curves, x="k", y="error of the stamp", logs="xy")
    error.axhline(HALF, color="#888888", linestyle=":", linewidth=1)
    return figure


ROW = Row(
    id="O-eq27",
    title="The time stamp",
    claim="k = log(x (lambda_0 - 1) + 1) / log lambda_0 is read from one entry of the state",
    run=run,
)
