"""Recall from a stationary state against Lyapunov's equation, and from numbers of any size."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from examples.reproduce.vandermonde import roots_of_unity, vandermonde
from memaudit.numerics.signals import seeded
from memaudit.recall.decoding import CrossFit, Drift, gaussian
from memaudit.recall.linear import (
    Decomposition,
    earlier_rows,
    free_numbers,
    past_rows,
    unit_rows,
    walked_rows,
)
from tests.numerics.linear_systems import draw, matrices, table
from tests.recall.matrices import decodability

SYSTEMS = table()


def shares(rows, before):
    """R² (H,steps·D) of the rows, in a state that holds what came before them too."""
    apart = Decomposition.even(torch.cat([rows, before], dim=1).mT)
    return apart.decodability()[:, : rows.shape[1]]


def modal(modes, inputs, steps):
    """Rows (1,steps,n) and all earlier ones of x_t = diag(modes) x_{t-1} + inputs u_t."""
    rows = past_rows(vandermonde(modes, steps, inputs=inputs).flip(-1).mT.unsqueeze(-1)[None])
    return rows, earlier_rows(rows, modes[None], steps)


def by_numpy(system, steps):
    """b_kᵀ P^-1 b_k of the real form, P by vec(P) = (I - A ⊗ A)^-1 vec(B Bᵀ)."""
    a, b, _, _ = matrices(system)
    if np.iscomplexobj(a) or np.iscomplexobj(b):
        a = np.block([[a.real, -a.imag], [a.imag, a.real]])
        b = np.vstack([b.real, b.imag])
    size = len(a)
    square = np.linalg.solve(np.eye(size**2) - np.kron(a, a), (b @ b.T).ravel())
    reached = [np.linalg.matrix_power(a, k) @ b for k in range(steps)]
    inverse = np.linalg.inv(square.reshape(size, size))
    return np.array([np.diag(now.T @ inverse @ now) for now in reached])


@pytest.mark.parametrize("steps", [1, 7, 60])
@pytest.mark.parametrize("name", ["modal", "real modal", "dense", "symmetric", "one Jordan block"])
def test_stationary_recall_is_that_of_lyapunovs_equation(name, steps):
    system = SYSTEMS[name]
    rows = past_rows(system.reach(0, steps))[None]
    before = earlier_rows(rows, system.transition()[None], steps)
    found = shares(rows, before)[0].view(steps, -1)
    np.testing.assert_allclose(found.numpy(), by_numpy(system, steps), atol=1e-9)


@pytest.mark.parametrize("seed", range(4))
def test_complex_modes_have_the_covariance_in_closed_form(seed):
    modes = torch.polar(
        0.9 + 0.0999 * torch.rand(6, generator=seeded(seed), dtype=torch.float64),
        3 * torch.rand(6, generator=seeded(seed + 9), dtype=torch.float64),
    )
    b = draw(6, wide=True)
    rows, before = modal(modes, b, 10)
    found = rows.mT @ rows + before.mT @ before
    p = b[:, None] * b.conj() / (1 - modes[:, None] * modes.conj())
    q = b[:, None] * b / (1 - modes[:, None] * modes)
    low, high = (q.imag - p.imag) / 2, (p.real - q.real) / 2
    wanted = torch.cat(
        [torch.cat([(p.real + q.real) / 2, low], 1), torch.cat([low.mT, high], 1)], 0
    )
    torch.testing.assert_close(found[0], wanted, rtol=1e-9, atol=1e-9 * float(wanted.abs().max()))


@pytest.mark.parametrize("lam", [0.5, 0.9, 0.999, 1 - 1e-9])
def test_one_mode_recalls_geometrically_however_slow_it_is(lam):
    modes = torch.tensor([lam], dtype=torch.float64)
    rows, before = modal(modes, torch.ones(1).double(), 20)
    lags = torch.arange(20, dtype=torch.float64)
    wanted = (1 - lam) * (1 + lam) * lam ** (2 * lags)
    torch.testing.assert_close(shares(rows, before)[0], wanted, rtol=1e-6, atol=0)


def test_recall_does_not_depend_on_the_lags_and_sums_up_to_the_numbers():
    modes, b = torch.tensor([0.99, 0.9, -0.7]).double(), torch.tensor([1.0, 2.0, 3.0]).double()
    found = [shares(*modal(modes, b, steps))[0] for steps in (4, 40, 2000)]
    for few in found[:2]:
        torch.testing.assert_close(few, found[2][: len(few)], rtol=1e-9, atol=1e-12)
    assert float(found[2].sum()) == pytest.approx(3.0, abs=1e-9)


@pytest.mark.parametrize("lam", [1.0, -1.0, 1.001, 1j])
def test_what_never_forgets_has_no_stationary_state(lam):
    modes = torch.tensor([0.5, lam]).to(torch.promote_types(torch.float64, torch.tensor(lam).dtype))
    assert modal(modes, torch.ones(2).to(modes.dtype), 8)[1] is None


def test_a_layer_without_a_matrix_is_followed_until_it_has_forgotten():
    system, steps = SYSTEMS["dense"], 5
    rows = past_rows(system.reach(0, steps))[None]

    def further(start, stop):
        return past_rows(system.reach(start, stop))[None]

    before = walked_rows(rows, further, steps, most=4096)
    wanted = earlier_rows(rows, system.transition()[None], steps)
    torch.testing.assert_close(before.mT @ before, wanted.mT @ wanted, rtol=1e-9, atol=1e-12)
    assert walked_rows(rows, further, steps, most=20) is None


@pytest.mark.parametrize("scale", [1e-200, 1.0, 1e200])
def test_the_size_of_a_state_does_not_matter(scale):
    b = scale * torch.tensor([1.0, 1e-60], dtype=torch.float64)
    matrix = vandermonde(torch.tensor([0.9, 0.5]).double(), 200, inputs=b)
    assert float(decodability(matrix, rounding=1e-7).sum()) == pytest.approx(2.0, abs=1e-6)
    torch.testing.assert_close(unit_rows(matrix).norm(dim=1), torch.ones(2).double())
    assert float(Decomposition.of(matrix).decodability().sum()) == pytest.approx(1.0)
    u = gaussian((4, 900, 1), scale=1.0, generator=seeded(0)).inputs
    fit = CrossFit(4, eps=1e-16)
    for half in (0, 1):
        fed = u[2 * half : 2 * half + 2]
        fit.add(half, scale * torch.cat([fed, fed.roll(1, 1)], -1), fed)
    wanted = torch.tensor([1.0, 1.0, 0.0, 0.0]).double()
    torch.testing.assert_close(fit.values()[0], wanted, atol=5e-3, rtol=0)


def test_conjugates_and_real_entries_are_counted_once():
    modes = torch.tensor([0.5 + 0.3j, 0.9, 0.5 - 0.3j, 0.2 - 0.1j], dtype=torch.complex128)
    reach = vandermonde(modes, 9).flip(-1).mT[None, ..., None]
    assert free_numbers(reach).tolist() == [0, 1, 3, 4, 7]
    assert free_numbers(reach.real).tolist() == [0, 1, 2, 3]
    ring = vandermonde(roots_of_unity(16), 40).flip(-1).mT[None, ..., None]
    assert len(free_numbers(ring)) == 16


def test_a_state_that_grows_drifts_and_one_that_does_not_does_not():
    still, growing = Drift(), Drift()
    for number in range(4):
        noise = torch.randn(4, 200, 3, generator=seeded(number), dtype=torch.float64)
        still.add(5 + noise)
        growing.add(noise.cumsum(1))
    assert still.share() == 0
    assert growing.share() > 0.2
    assert growing.copy().share() == growing.share()
    assert Drift().share() == 0
