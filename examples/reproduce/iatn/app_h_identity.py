"""I-AppH: the identity functional has no memory, whatever its input decays like."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

import memaudit
from examples.reproduce.drawing import lines, panels
from examples.reproduce.row import Effort, Number, Outcome, Row

LAGS = 256
QUERIES = ("heaviside", "impulse", "reversed")


def identity(u: Tensor) -> Tensor:
    """H_t(x) = x_t."""
    return u


def delay(u: Tensor) -> Tensor:
    """H_t(x) = x_{t-1}, the control: a memory of one step must be seen."""
    return torch.nn.functional.pad(u, (0, 0, 1, 0))[:, :-1]


def audit(function) -> dict[str, Any]:
    """The three memory functions of a function."""
    subject = memaudit.wrap(function, input_size=1, dtype="float64")
    return dict(memaudit.scan(subject, queries=list(QUERIES), horizon=LAGS).memory)


def changed_start() -> tuple[Tensor, Tensor]:
    """The answer to x_t = 1/t, and how far it moves at t > 0 when the first input is changed."""
    x = (1.0 / torch.arange(1, LAGS + 1, dtype=torch.float64)).reshape(1, -1, 1)
    other = x.clone()
    other[:, 0] += 1.0
    return identity(x)[0, :, 0], (identity(other) - identity(x))[0, 1:, 0].abs()


def run(effort: Effort) -> Outcome:
    """The verdict of the audit, and the paper's own argument."""
    del effort
    still, control = audit(identity), audit(delay)
    answer, moved = changed_start()
    kinds = {name: curve.decay.kind for name, curve in still.items()}
    # At lag 0 the answer is the input itself: no memory, but the present.
    largest = max(float(curve.values[curve.lags >= 1].max()) for curve in still.values())
    seen = {name: curve.decay.kind for name, curve in control.items()}
    lags = torch.arange(1, LAGS + 1)
    slope = float((answer[-1] / answer[0]).log() / (lags[-1] / lags[0]).log())
    figure, (one, two) = panels("identity: answer to x_t = 1/t", "identity: memory")
    lines(one, {"y_t": (lags.tolist(), answer.tolist())}, x="t", y="answer", logs="xy")
    curves = {name: (c.lags.tolist(), c.values.tolist()) for name, c in still.items()}
    moved_at = {"change of y_t by x_0": (lags[1:].tolist(), moved.tolist())}
    lines(two, curves | moved_at, x="t", y="memory")
    two.set_ylim(-0.05, 1.05)
    holds = set(kinds.values()) == {"memoryless"} and float(moved.max()) == 0.0
    holds = holds and "memoryless" not in seen.values()
    return Outcome(
        holds=holds,
        reason=f"the answer to 1/t falls as t^{slope:.2f}, yet the audit says "
        f"{', '.join(f'{q}: {k}' for q, k in kinds.items())}; a delay of one step is seen "
        f"({', '.join(f'{q}: {k}' for q, k in seen.items())})",
        numbers=(
            Number("largest memory of the identity, lags from 1 on", largest, 0.0),
            Number("change of y_t, t > 0, when x_0 changes by 1", float(moved.max()), 0.0),
            Number("exponent of the answer to 1/t", slope, -1.0),
            *(Number(f"verdict, {q}", k, "memoryless") for q, k in kinds.items()),
            *(Number(f"verdict for a delay of one step, {q}", k) for q, k in seen.items()),
        ),
        settings={"lags": LAGS, "queries": QUERIES, "dtype": "float64"},
        figure=figure,
    )


ROW = Row(
    id="I-AppH",
    title="The identity functional",
    claim="the identity maps 1/t to 1/t and still has no memory",
    run=run,
)
