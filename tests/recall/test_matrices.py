"""Vandermonde matrices, rings, Haar functions and reconstruction against closed forms."""

from __future__ import annotations

import math

import pytest
import torch

from examples.reproduce.vandermonde import condition, ring, roots_of_unity, vandermonde
from memaudit.numerics.signals import seeded
from memaudit.recall.linear import Decomposition, haar_basis, rounded
from tests.numerics.linear_systems import matrices, table
from tests.recall.matrices import decodability, reachability, reconstruct

SYSTEMS = table()


@pytest.mark.parametrize("count", [2, 7, 64, 784])
def test_roots_of_unity_have_condition_one(count):
    assert condition(vandermonde(roots_of_unity(count), count)) == pytest.approx(1.0, abs=1e-9)


def test_real_nodes_are_exponentially_ill_conditioned():
    found = [condition(vandermonde(torch.linspace(0.1, 0.9, n).double(), n)) for n in (4, 8, 12)]
    assert found[1] > 100 * found[0]
    assert found[2] > 100 * found[1]
    assert condition(vandermonde(torch.linspace(0.1, 0.9, 40).double(), 40)) == math.inf


def test_a_ring_is_uniform_in_area_and_in_angle():
    low, high = 0.6, 0.9
    modes = ring(20000, radii=(low, high), generator=seeded(0))
    area = (modes.abs().square() - low**2) / (high**2 - low**2)
    turns = (modes.angle() / math.tau) % 1.0
    even = torch.linspace(0, 1, len(modes), dtype=torch.float64)
    for values in (area, turns):
        # Kolmogorov: beyond 1.95 / sqrt(n) one uniform sample in a thousand.
        assert float((values.sort().values - even).abs().max()) < 1.95 / math.sqrt(len(modes))


def test_a_ring_close_to_the_circle_is_better_conditioned():
    found = [
        condition(vandermonde(ring(128, radii=(low, 1.0), generator=seeded(0)), 64))
        for low in (0.0, 0.9, 0.99)
    ]
    assert found[0] > 1e3 * found[1]
    assert found[1] > found[2]


@pytest.mark.parametrize("length", [1, 2, 5, 13, 64])
def test_haar_functions_are_orthonormal_at_every_length(length):
    for count in {1, max(1, length // 2), length}:
        basis = haar_basis(length, count)
        eye = torch.eye(count, dtype=torch.float64)
        torch.testing.assert_close(basis.mT @ basis, eye, atol=1e-12, rtol=0)


@pytest.mark.parametrize("name", list(SYSTEMS))
def test_reach_is_the_powers_of_the_matrix_times_the_inputs(name):
    system = SYSTEMS[name]
    a, b, _, _ = (torch.from_numpy(m).to(torch.complex128) for m in matrices(system))
    found = system.reach(3, 7).to(torch.complex128)
    for number, s in enumerate(range(3, 7)):
        whole = torch.linalg.matrix_power(a, s) @ b
        if system.banked:
            size = found.shape[1]
            own = [whole[h * size : (h + 1) * size, h] for h in range(system.width)]
            whole = torch.stack(own, dim=1)
        torch.testing.assert_close(found[number], whole, atol=1e-12, rtol=1e-10)
    assert system.reach(0, 0).shape[0] == 0


@pytest.mark.parametrize("name", ["modal", "dense", "symmetric", "one Jordan block"])
def test_the_capacity_is_the_rank_and_the_closed_form_of_jaeger(name):
    matrix = reachability(SYSTEMS[name].reach(0, 300))
    found = decodability(matrix)
    apart = Decomposition.of(matrix)
    assert float(found.sum()) == pytest.approx(int(apart.rank()))
    covariance = matrix @ matrix.mT
    theory = (matrix * torch.linalg.solve(covariance, matrix)).sum(0)
    torch.testing.assert_close(found, theory, atol=1e-9, rtol=0)


def test_a_rounded_state_is_reconstructed_within_its_rounding_times_the_condition():
    matrix = vandermonde(roots_of_unity(64), 64)
    u = torch.randn(64, 3, generator=seeded(1), dtype=torch.float64)
    coarse = rounded(matrix @ u.to(matrix.dtype), torch.bfloat16)
    real = torch.cat([matrix.real, matrix.imag])
    off = reconstruct(coarse, real, rtol=torch.finfo(torch.bfloat16).eps) - u
    assert 1e-4 < float(off.square().mean().sqrt()) < 1e-2
