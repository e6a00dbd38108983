"""O-F5: with the roots of unity the condition is one, and 784 of them hold an image."""

from __future__ import annotations

import torch
from matplotlib.figure import Figure
from torch import Tensor

from examples.reproduce.drawing import lines, panels
from examples.reproduce.recurrences.reading import TOKENS, Reader, images, portion, relative
from examples.reproduce.row import Effort, Number, Outcome, Row
from examples.reproduce.vandermonde import roots_of_unity, vandermonde

SIZES = (128, 256, 512, 784)
IMAGES = 200
#: Rounding of 784 products in float64, with room for the phases.
ROUNDING = 1e-11


def folded(u: Tensor, count: int) -> Tensor:
    """What N roots of unity must give back: tokens N apart share one entry, in equal parts.

    lambda^N = 1, so the state is that of the sum of all tokens whose distance N divides.
    """
    sums = torch.zeros(count, u.shape[1], dtype=u.dtype)
    shares = torch.zeros(count, dtype=u.dtype)
    at = (len(u) - 1 - torch.arange(len(u))) % count
    sums.index_add_(0, at, u)
    shares.index_add_(0, at, torch.ones(len(u), dtype=u.dtype))
    return (sums / shares[:, None])[at]


def run(effort: Effort) -> Outcome:
    """The condition of the square matrix, and images read back for every N."""
    u = images(IMAGES)
    errors, foldings, shown = [], [], []
    for count in SIZES:
        matrix = vandermonde(roots_of_unity(count), TOKENS)
        reader = Reader.of(matrix, way="complex")
        found = reader.read(matrix @ u.to(matrix.dtype))
        errors.append(relative(found, u))
        foldings.append(portion(found, folded(u, count), slice(None)))
        shown.append(found[:, :4])
        effort.tick(len(errors), len(SIZES))
    one = 10 ** (reader.log_condition() / 2)  # the last N is the number of tokens
    identity = matrix @ matrix.mH / TOKENS
    unitary = float((identity - torch.eye(TOKENS)).abs().max())
    numbers = [
        Number(f"cond(V), N = L = {TOKENS}", one, 1),
        Number("V Vᴴ / N against the identity", unitary, 0),
        *(
            Number(f"N = {n}: relative error", e, "perfect" if n == TOKENS else "artifacts")
            for n, e in zip(SIZES, errors, strict=True)
        ),
        *(
            Number(f"N = {n}: against tokens folded N apart", e)
            for n, e in zip(SIZES, foldings, strict=True)
        ),
    ]
    artifacts = min(errors[:-1]) > 0.1
    return Outcome(
        holds=abs(one - 1) < ROUNDING and errors[-1] < ROUNDING and artifacts,
        reason=f"cond(V) - 1 = {one - 1:.1e} and relative error {errors[-1]:.1e} at N = {TOKENS}; "
        f"below, errors of {', '.join(f'{e:.2f}' for e in errors[:-1])}: tokens N apart fall "
        f"together, and what is read is their mean (within {max(foldings):.1e})",
        numbers=tuple(numbers),
        settings={"N": SIZES, "images": IMAGES, "tokens": TOKENS},
        figure=_figure(u, shown, errors),
    )


def _figure(u: Tensor, shown: list[Tensor], errors: list[float]) -> Figure:
    names = [f"N = {n}" for n in SIZES] + ["original"]
    figure, (grid, error) = panels("read back from the last state", "relative error")
    rows = [
        torch.cat([found[:, at].reshape(28, 28) for at in range(4)], dim=1)
        for found in [*shown, u[:, :4]]
    ]
    grid.imshow(torch.cat(rows).numpy(), cmap="gray")
    grid.set_yticks([14 + 28 * at for at in range(len(names))], names)
    grid.set_xticks([])
    grid.grid(visible=False)
    lines(error, {"": (SIZES, errors)}, x="N", y="|error| / |image|", logs="y", marker="o")
    return figure


ROW = Row(
    id="O-F5",
    title="Roots of unity",
    claim="with the N-th roots of unity cond(V) is 1 and images are recovered exactly at N = 784; "
    "smaller N leave artifacts",
    run=run,
)
