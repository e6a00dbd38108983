"""Small systems whose weights move: a diagonal recurrence and a tanh RNN, many copies at once."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch

from memaudit.interfaces import Role
from memaudit.stability.search import Problem
from memaudit.subjects.moves import error_norm


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def diagonal_answers(lam: torch.Tensor, weights: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
    """Answers (K,1,T,1) of y(t) = sum_i w_i x_i(t), x_i(t) = lam_i x_i(t-1) + u(t)."""
    state, found = torch.zeros_like(lam), []
    for now in u:
        state = lam * state + now
        found.append((state * weights).sum(-1))
    return torch.stack(found, 1)[:, None, :, None]


def diagonal_system(m: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Eigenvalues between 0.3 and 0.95, and weights of both signs."""
    generator = seeded(0)
    lam = 0.3 + 0.65 * torch.rand(m, generator=generator, dtype=torch.float64)
    return lam, torch.randn(m, generator=generator, dtype=torch.float64) / m**0.5


def mirrored_system(m: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Time scales over three decades, about a third of the eigenvalues negative."""
    generator = seeded(2)
    options = {"generator": generator, "dtype": torch.float64}
    sizes = 1.0 - 10.0 ** (-3.0 * torch.rand(m, **options))
    lam = torch.where(torch.rand(m, **options) < 0.3, -sizes, sizes)
    return lam, torch.randn(m, **options)


def diagonal_problem(
    m: int,
    u: torch.Tensor,
    *,
    norm: str = "sobolev",
    ball: str = "spectral",
    mirrored: bool = False,
) -> Problem:
    """The moved eigenvalues of a diagonal system against the system as it is."""
    lam, weights = mirrored_system(m) if mirrored else diagonal_system(m)
    own = diagonal_answers(lam[None], weights, u)

    def error(moved: Mapping[str, torch.Tensor]) -> torch.Tensor:
        return error_norm(diagonal_answers(moved["lam"], weights, u) - own, norm, pooled=False)

    return Problem({"lam": lam}, {"lam": Role("recurrent", "diagonal")}, ball, error, batch=4096)


def rnn_problem(hidden: int, *, ball: str, steps: int = 20, seed: int = 0) -> Problem:
    """The moved recurrent matrix and input vector of a tanh RNN, against the RNN as it is."""
    generator = seeded(seed)
    options = {"generator": generator, "dtype": torch.float64}
    w = 0.8 * torch.randn(hidden, hidden, **options) / hidden**0.5
    b, c = torch.randn(hidden, **options), torch.randn(2, hidden, **options)
    u = 2.0 * torch.rand(3, steps, **options) - 1.0

    def answers(moved: Mapping[str, torch.Tensor]) -> torch.Tensor:
        w, b = moved["w"], moved["b"]
        state, found = torch.zeros(len(w), len(u), hidden, dtype=torch.float64), []
        for now in u.T:
            state = torch.tanh(state @ w.mT + now[None, :, None] * b[:, None])
            found.append(state @ c.T)
        return torch.stack(found, 2)

    own = answers({"w": w[None], "b": b[None]})

    def error(moved: Mapping[str, torch.Tensor]) -> torch.Tensor:
        return error_norm(answers(moved) - own, "sobolev", pooled=False)

    roles = {"w": Role("recurrent", "matrix"), "b": Role("input", "vector")}
    return Problem({"w": w, "b": b}, roles, ball, error, batch=2500)


def impulse(steps: int) -> torch.Tensor:
    return torch.eye(1, steps, dtype=torch.float64)[0]


def heaviside(steps: int) -> torch.Tensor:
    return torch.ones(steps, dtype=torch.float64)


BETAS = 1e-3 * 2.0 ** (np.arange(21) / 2.0)
