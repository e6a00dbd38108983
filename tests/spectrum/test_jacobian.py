"""Jacobians of blocks and their eigenvalues, against formulas and against each other."""

from __future__ import annotations

import numpy as np
import torch

from memaudit.interfaces import StateBlock
from memaudit.numerics.signals import seeded
from memaudit.subjects import jacobian
from memaudit.subjects.jacobian import block_jacobian, block_modes, leading_eigenvalues
from tests.recurrences import linear, number, stack_of_two, tanh_network

SIZE = 6


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=seeded(seed), dtype=torch.float64)


def by_modulus(values: np.ndarray) -> np.ndarray:
    return values[np.lexsort((np.imag(values).round(9), -np.abs(values).round(9)))]


def test_the_jacobian_of_a_linear_map_is_its_matrix() -> None:
    matrix = drawn(SIZE, SIZE)
    dynamics = linear(matrix)
    found = block_jacobian(dynamics, drawn(SIZE), drawn(1), dynamics.blocks["cell"])
    np.testing.assert_allclose(found, matrix.numpy(), rtol=1e-14)


def test_blocks_see_the_state_of_those_before_them() -> None:
    lower, over, state, u = drawn(3, 3), drawn(3, 3, seed=1), drawn(6, seed=2), drawn(1, seed=3)
    dynamics = stack_of_two(lower, over)
    first = torch.tanh(lower @ state[:3] + u)
    second = torch.tanh(over @ state[3:] + first + 0.3)
    wanted = {"lower": (first, lower), "upper": (second, over)}
    for layer, (after, weight) in wanted.items():
        found = block_jacobian(dynamics, state, u, dynamics.blocks[layer])
        exact = (1 - after.square())[:, None] * weight
        np.testing.assert_allclose(found, exact.numpy(), atol=1e-15)


def test_the_leading_modes_of_a_large_block_are_those_of_its_jacobian() -> None:
    values = torch.cat([torch.linspace(-0.9, 0.9, 300, dtype=torch.float64), number(0.99)])
    basis = torch.linalg.qr(drawn(301, 301))[0]
    dynamics = linear(basis @ torch.diag(values) @ basis.T)
    block = dynamics.blocks["cell"]
    found = block_modes(dynamics, drawn(301), drawn(1), block, whole=64)
    assert found is not None
    assert len(found.eigenvalues) == jacobian.SPACE // 4
    assert abs(found.eigenvalues[0] - 0.99) < 1e-12
    assert found.note.startswith("the leading 64 of 301 modes, the first to ")


def test_a_pair_of_complex_leading_modes_is_found() -> None:
    dynamics = tanh_network(400, 0.9, seed=3)
    block = dynamics.blocks["cell"]
    zero, u = torch.zeros(400, dtype=torch.float64), number(0.0)
    exact = by_modulus(np.linalg.eigvals(block_jacobian(dynamics, zero, u, block)))
    found = block_modes(dynamics, zero, u, block, whole=64)
    assert found is not None
    np.testing.assert_allclose(np.abs(found.eigenvalues[:4]), np.abs(exact[:4]), rtol=1e-6)


def test_an_unconverged_value_admits_its_residual() -> None:
    matrix = np.diag(np.linspace(0.0, 1.0, 200))
    values, residuals = leading_eigenvalues(lambda v: matrix @ v, np.ones(200), space=5)
    assert 0.9 < values[0].real < 1.0
    assert residuals[0] > 1e-4
    off = np.abs(values[0] - np.diag(matrix)).min()
    assert off <= residuals[0]


def test_the_full_state_has_the_modes_of_its_blocks() -> None:
    dynamics = stack_of_two(0.4 * drawn(3, 3), 0.4 * drawn(3, 3, seed=1))
    state, u = drawn(6, seed=2), drawn(1, seed=3)
    whole = block_modes(dynamics, state, u, StateBlock(0, 6, "all"))
    parts = [block_modes(dynamics, state, u, block) for block in dynamics.blocks.values()]
    assert whole is not None
    found = np.concatenate([part.eigenvalues for part in parts if part is not None])
    np.testing.assert_allclose(by_modulus(whole.eigenvalues), by_modulus(found), atol=1e-12)
