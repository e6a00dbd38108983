"""Kernels of linear systems in closed form: geometric series and powers of matrices."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from memaudit.numerics.linear import (
    Bank,
    Dense,
    DenseBank,
    Modal,
    System,
)
from tests.numerics.linear_systems import exact_kernel, jordan, matrices, table

SYSTEMS = table()
every_system = pytest.mark.parametrize("system", SYSTEMS.values(), ids=list(SYSTEMS))


def one(value: complex) -> torch.Tensor:
    return torch.tensor([[value]], dtype=torch.complex128)


@pytest.mark.parametrize("value", [0.5, -0.9, 1.0, 0.0, 1.01])
def test_the_kernel_of_one_real_mode_is_a_geometric_series(value: float) -> None:
    mode = torch.tensor([[value]], dtype=torch.float64)
    bank = Bank(mode, 3.0 * torch.ones_like(mode), torch.ones(1, 1, 1, dtype=torch.float64))
    series = torch.from_numpy(3.0 * value ** np.arange(300.0))
    torch.testing.assert_close(bank.kernel(0, 300)[:, 0, 0], series, rtol=1e-13, atol=0)


def test_one_of_a_conjugate_pair_read_twice_is_a_damped_wave() -> None:
    mode = one(0.97 * np.exp(0.3j))
    bank = Bank(mode, torch.ones_like(mode), 2.0 * torch.ones_like(mode)[None])
    steps = np.arange(400)
    wave = torch.from_numpy(2.0 * 0.97**steps * np.cos(0.3 * steps))
    torch.testing.assert_close(bank.kernel(0, 400)[:, 0, 0], wave, rtol=0, atol=1e-13)


def test_a_jordan_block_has_a_polynomial_in_its_kernel() -> None:
    last = torch.tensor([[0.0], [1.0]], dtype=torch.float64)
    system = Dense(jordan(2), last, last.mT.flip(1))
    steps = torch.arange(60, dtype=torch.float64)
    torch.testing.assert_close(
        system.kernel(0, 60).flatten(), steps * 0.5 ** (steps - 1), rtol=1e-14, atol=0
    )


@every_system
@pytest.mark.parametrize(
    ("start", "stop"), [(0, 1), (0, 37), (1, 2), (5, 41), (100, 109), (64, 128)]
)
def test_kernels_are_powers_of_the_matrix(system: System, start: int, stop: int) -> None:
    found = system.kernel(start, stop)
    torch.testing.assert_close(found, exact_kernel(system, start, stop), rtol=1e-12, atol=1e-13)


@every_system
def test_a_kernel_may_be_asked_for_in_pieces(system: System) -> None:
    whole = system.kernel(0, 500)
    pieces = torch.cat([system.kernel(a, b) for a, b in [(0, 1), (1, 90), (90, 91), (91, 500)]])
    torch.testing.assert_close(pieces, whole, rtol=1e-12, atol=1e-14)


@every_system
def test_the_modes_are_the_eigenvalues_of_the_matrix_in_their_natural_shape(system: System) -> None:
    expected = np.linalg.eigvals(matrices(system)[0].astype(np.complex128))
    found = system.modes()
    assert found.is_complex()
    natural = {Bank: "eigenvalues", Modal: "eigenvalues", DenseBank: "inputs"}
    if type(system) in natural:
        assert found.shape == getattr(system, natural[type(system)]).shape
    apart = np.abs(found.numpy().ravel()[:, None] - expected[None])
    # A Jordan block of 4 answers a change of 1e-16 by its fourth root.
    limit = 1e-3 if system is SYSTEMS["one Jordan block"] else 1e-12
    assert max(apart.min(0).max(), apart.min(1).max()) < limit
