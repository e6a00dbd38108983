"""A table of linear systems, and what numpy makes of the matrices behind each."""

from __future__ import annotations

import numpy as np
import torch

from memaudit.numerics.linear import Bank, Dense, DenseBank, Modal, System

Matrices = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def table() -> dict[str, System]:
    """One system of every kind, all of them stable."""
    return {
        "bank": Bank(-decays(3, 2), draw(3, 2), draw(1, 3, 2)),
        "bank of pairs": Bank(
            pairs(3, 4), draw(3, 4, wide=True), draw(2, 3, 4, wide=True), draw(2, 3)
        ),
        "bank that forgets": Bank(0 * decays(2, 1), draw(2, 1), draw(1, 2, 1)),
        "bank that keeps": Bank(1 + 0 * decays(2, 1), draw(2, 1), draw(1, 2, 1)),
        "dense bank": DenseBank(contraction(3, 4), draw(3, 4), draw(2, 3, 4), draw(2, 3)),
        "modal": Modal(pairs(5), draw(5, 3, wide=True), draw(4, 5, wide=True), draw(4, 3)),
        "real modal": Modal(decays(5), draw(5, 3), draw(3, 5), draw(3)),
        "symmetric": Dense(symmetric(5), draw(5, 3), draw(2, 5), draw(2, 3)),
        "dense": Dense(contraction(5), draw(5, 3), draw(3, 5), draw(3)),
        "one Jordan block": Dense(jordan(4), draw(4, 2), draw(2, 4)),
        "complex dense": Dense(
            contraction(4).to(torch.complex128), draw(4, 2, wide=True), draw(2, 4, wide=True)
        ),
    }


def draw(*shape: int, wide: bool = False) -> torch.Tensor:
    """Numbers that depend on the shape alone."""
    generator = torch.Generator().manual_seed(sum(shape))
    dtype = torch.complex128 if wide else torch.float64
    return torch.randn(*shape, generator=generator, dtype=dtype)


def decays(*shape: int) -> torch.Tensor:
    """Eigenvalues between 0 and 1."""
    return torch.sigmoid(draw(*shape) + 1.0)


def pairs(*shape: int) -> torch.Tensor:
    """One of each conjugate pair inside the unit circle."""
    return torch.polar(decays(*shape), draw(*shape))


def contraction(*shape: int) -> torch.Tensor:
    """Full matrices whose powers die out, from (H,N) or (N,)."""
    full = draw(*shape, shape[-1])
    return 0.9 * full / torch.linalg.matrix_norm(full, ord=2)[..., None, None]


def symmetric(size: int) -> torch.Tensor:
    """A symmetric matrix whose powers die out."""
    half = contraction(size)
    return (half + half.mT) / 2.0


def jordan(size: int) -> torch.Tensor:
    """A matrix with one eigenvector only."""
    above = torch.ones(size - 1, dtype=torch.float64)
    return 0.5 * torch.eye(size, dtype=torch.float64) + torch.diag(above, 1)


def matrices(system: System) -> Matrices:
    """A (N,N), B (N,D), C (M,N) and D (M,D) of the system as one; of a bank M is C·H."""
    if isinstance(system, Bank):
        return _of_bank(torch.diag_embed(system.eigenvalues), system)
    if isinstance(system, DenseBank):
        return _of_bank(system.matrix, system)
    assert isinstance(system, Modal | Dense)
    full = torch.diag(system.eigenvalues) if isinstance(system, Modal) else system.matrix
    direct = (
        torch.zeros(len(system.readout), system.width) if system.direct is None else system.direct
    )
    direct = torch.diag(direct) if direct.ndim == 1 else direct
    return full.numpy(), system.inputs.numpy(), system.readout.numpy(), direct.numpy()


def exact_kernel(system: System, start: int, stop: int) -> torch.Tensor:
    """Re(C A^s B), by powers of matrices, in the shape that the system gives."""
    a, b, c, d = matrices(system)
    found = [
        (c @ np.linalg.matrix_power(a, s) @ b).real + (d if s == 0 else 0.0)
        for s in range(start, stop)
    ]
    kernel = torch.from_numpy(np.stack(found))
    if not system.banked:
        return kernel
    apart = kernel.unflatten(1, (-1, system.width))
    return torch.diagonal(apart, dim1=2, dim2=3)


def exact_answer(system: System, u: torch.Tensor) -> torch.Tensor:
    """The recurrence as it is written, in the shape that the system gives."""
    a, b, c, d = matrices(system)
    state = np.zeros((len(u), len(a)), dtype=np.complex128)
    found = []
    for now in u.double().numpy().swapaxes(0, 1):
        state = state @ a.T + now @ b.T
        found.append((state @ c.T).real + now @ d.T)
    answer = torch.from_numpy(np.stack(found, axis=1))
    return answer.unflatten(2, (-1, system.width)) if system.banked else answer


def _of_bank(full: torch.Tensor, system: Bank | DenseBank) -> Matrices:
    channels, width, size = system.readout.shape
    a = torch.block_diag(*full)
    b = torch.block_diag(*system.inputs.unsqueeze(-1))
    c = torch.cat([torch.block_diag(*rows.unsqueeze(1)) for rows in system.readout])
    d = torch.zeros(channels * width, width, dtype=torch.float64)
    if system.direct is not None:
        d = torch.cat([torch.diag(row) for row in system.direct])
    assert a.shape == (width * size, width * size)
    return a.numpy(), b.numpy(), c.numpy(), d.numpy()
