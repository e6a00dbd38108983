"""Vandermonde matrices, rings, Haar functions and reconstruction against closed forms."""

from __future__ import annotations

import math

import pytest
import torch

from examples.reproduce.vandermonde import condition, ring, roots_of_unity, vandermonde
from memaudit.numerics.linear import Dense, Modal
from memaudit.numerics.signals import seeded
from memaudit.recall.linear import Decomposition, haar_basis, numbers_of, past_rows, rounded
from tests.numerics.linear_systems import matrices, table
from tests.recall.matrices import decodability, reachability, reconstruct

SYSTEMS = table()
LAM = 0.9


def delay_line(size: int) -> Dense:
    """A state that holds the last inputs as they came."""
    shift = torch.diag(torch.ones(size - 1), -1).double()
    first = torch.eye(size, 1, dtype=torch.float64)
    return Dense(shift, first, torch.eye(size).double())


@pytest.mark.parametrize("count", [2, 7, 64, 784])
def test_roots_of_unity_have_condition_one(count):
    assert condition(vandermonde(roots_of_unity(count), count)) == pytest.approx(1.0, abs=1e-9)


def test_real_nodes_are_exponentially_ill_conditioned():
    found = [condition(vandermonde(torch.linspace(0.1, 0.9, n).double(), n)) for n in (4, 8, 12)]
    assert found[1] > 100 * found[0]
    assert found[2] > 100 * found[1]
    assert condition(vandermonde(torch.linspace(0.1, 0.9, 40).double(), 40)) == math.inf


def test_more_inputs_than_numbers_have_an_infinite_condition():
    assert condition(vandermonde(roots_of_unity(8), 9)) == math.inf


def test_the_columns_of_the_vandermonde_matrix_run_from_the_oldest_input_to_the_newest():
    modes = torch.tensor([0.5, 2.0], dtype=torch.float64)
    wanted = torch.tensor([[0.25, 0.5, 1.0], [4.0, 2.0, 1.0]]).double()
    assert torch.equal(vandermonde(modes, 3), wanted)
    fed = vandermonde(modes, 3, inputs=torch.tensor([3.0, 1.0]).double())
    assert torch.equal(fed[0], 3 * wanted[0])


def test_a_ring_is_uniform_in_area_and_in_angle():
    low, high = 0.6, 0.9
    modes = ring(20000, radii=(low, high), generator=seeded(0))
    area = (modes.abs().square() - low**2) / (high**2 - low**2)
    turns = (modes.angle() / math.tau) % 1.0
    even = torch.linspace(0, 1, len(modes), dtype=torch.float64)
    for values in (area, turns):
        # Kolmogorov: beyond 1.95 / sqrt(n) one uniform sample in a thousand.
        assert float((values.sort().values - even).abs().max()) < 1.95 / math.sqrt(len(modes))


def test_a_ring_of_no_width_is_the_circle_and_a_wrong_one_is_refused():
    modes = ring(50, radii=(1.0, 1.0), generator=seeded(0))
    torch.testing.assert_close(modes.abs(), torch.ones(50).double())
    with pytest.raises(ValueError, match=r"not 0\.9 and 0\.5"):
        ring(3, radii=(0.9, 0.5), generator=seeded(0))


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


def test_haar_functions_come_from_coarse_to_fine():
    half = 0.5**0.5
    wanted = [
        [0.5, 0.5, half, 0],
        [0.5, 0.5, -half, 0],
        [0.5, -0.5, 0, half],
        [0.5, -0.5, 0, -half],
    ]
    torch.testing.assert_close(haar_basis(4, 4), torch.tensor(wanted, dtype=torch.float64))
    assert torch.equal(haar_basis(64, 5), haar_basis(64, 9)[:, :5])


@pytest.mark.parametrize("count", [0, 9])
def test_a_basis_has_no_more_functions_than_steps(count):
    with pytest.raises(ValueError, match="1 to 8 functions"):
        haar_basis(8, count)


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


def test_a_complex_state_tells_two_numbers_for_each_entry():
    reach = Modal(roots_of_unity(3), torch.ones(3, 2).cfloat(), torch.ones(1, 3).cfloat()).reach(
        0, 4
    )
    assert numbers_of(reach) == 6
    rows = past_rows(reach)
    assert rows.shape == (8, 6)
    torch.testing.assert_close(rows[2], torch.cat([reach[1, :, 0].real, reach[1, :, 0].imag]))
    torch.testing.assert_close(reachability(reach)[:, -2], rows[0])


def test_a_delay_line_recalls_its_size_and_nothing_before():
    found = decodability(reachability(delay_line(5).reach(0, 12))).flip(0)
    wanted = torch.tensor([1.0] * 5 + [0.0] * 7).double()
    torch.testing.assert_close(found, wanted, atol=1e-14, rtol=0)


def test_one_mode_recalls_geometrically_and_one_number_in_all():
    found = decodability(vandermonde(torch.tensor([LAM], dtype=torch.float64), 400)).flip(0)
    lags = torch.arange(400, dtype=torch.float64)
    torch.testing.assert_close(found, (1 - LAM**2) * LAM ** (2 * lags), atol=1e-15, rtol=1e-10)
    assert float(found.sum()) == pytest.approx(1.0)


@pytest.mark.parametrize("name", ["modal", "dense", "symmetric", "one Jordan block"])
def test_the_capacity_is_the_rank_and_the_closed_form_of_jaeger(name):
    matrix = reachability(SYSTEMS[name].reach(0, 300))
    found = decodability(matrix)
    apart = Decomposition.of(matrix)
    assert float(found.sum()) == pytest.approx(int(apart.rank()))
    covariance = matrix @ matrix.mT
    theory = (matrix * torch.linalg.solve(covariance, matrix)).sum(0)
    torch.testing.assert_close(found, theory, atol=1e-9, rtol=0)


def test_rounding_hides_what_is_as_small_as_itself():
    faint = 1e-9
    matrix = torch.tensor([[1.0, faint], [1.0, -faint]]).double()  # the second in a difference only
    found = decodability(matrix, rounding=1e-8)
    assert found[0] == pytest.approx(1.0)
    noise = 1e-16 / 12
    assert float(found[1]) == pytest.approx(2 * faint**2 / (2 * faint**2 + noise), rel=1e-3)
    assert float(decodability(torch.diag(found), rounding=1e-8).min()) == pytest.approx(1.0)


@pytest.mark.parametrize("steps", [8, 40])
def test_reconstruction_leaves_out_what_is_not_recalled(steps):
    matrix = vandermonde(ring(8, radii=(0.9, 1.0), generator=seeded(3)), steps)
    u = torch.randn(steps, 4000, generator=seeded(1), dtype=torch.float64)
    state = matrix @ u.to(matrix.dtype)
    off = (reconstruct(state, matrix) - u).square().mean(1)
    torch.testing.assert_close(off, 1 - decodability(matrix), atol=0.06, rtol=0)
    if steps <= 16:  # 8 complex entries tell 16 numbers
        assert float(off.max()) < 1e-12


def test_a_rounded_state_is_reconstructed_within_its_rounding_times_the_condition():
    matrix = vandermonde(roots_of_unity(64), 64)
    u = torch.randn(64, 3, generator=seeded(1), dtype=torch.float64)
    coarse = rounded(matrix @ u.to(matrix.dtype), torch.bfloat16)
    real = torch.cat([matrix.real, matrix.imag])
    off = reconstruct(coarse, real, rtol=torch.finfo(torch.bfloat16).eps) - u
    assert 1e-4 < float(off.square().mean().sqrt()) < 1e-2


def test_sparse_inputs_are_better_conditioned_than_dense_ones():
    matrix = vandermonde(ring(64, radii=(0.99, 1.0), generator=seeded(0)), 512)
    found = [condition(matrix @ haar_basis(512, p).to(matrix.dtype)) for p in (4, 16, 32)]
    assert found == sorted(found)
    assert found[0] < 1e3
    assert condition(matrix) == math.inf
