"""The leading eigenvalues of a matrix that is known by its products only."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

#: A direction shorter than this share of what it came from is rounding: the space is closed.
CLOSED = 1e-13


def leading_eigenvalues(
    product: Callable[[np.ndarray], np.ndarray], start: np.ndarray, *, space: int
) -> tuple[np.ndarray, np.ndarray]:
    """Ritz values by falling modulus, with the residual |A v - theta v| of each.

    The values come from the Krylov space of `start`, of at most `space` dimensions; every direction
    is made orthogonal twice, because once loses digits.
    """
    size = len(start)
    space = min(space, size)
    basis = np.zeros((space + 1, size))
    hessenberg = np.zeros((space + 1, space))
    basis[0] = start / np.linalg.norm(start)
    used = space
    for k in range(space):
        image = product(basis[k])
        length = np.linalg.norm(image)
        for _ in range(2):
            shares = basis[: k + 1] @ image
            hessenberg[: k + 1, k] += shares
            image = image - shares @ basis[: k + 1]
        left = np.linalg.norm(image)
        if left <= CLOSED * length or k + 1 == size:
            used = k + 1
            break
        hessenberg[k + 1, k] = left
        basis[k + 1] = image / left
    values, vectors = np.linalg.eig(hessenberg[:used, :used])
    beyond = hessenberg[used, used - 1] if used < space + 1 else 0.0
    residuals = np.abs(beyond * vectors[-1])
    order = np.argsort(-np.abs(values), kind="stable")
    return values[order], residuals[order]
