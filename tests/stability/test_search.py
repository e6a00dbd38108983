"""The search for the worst move: repeatable, never below random draws, near closed forms."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
import torch

from examples.exact_error import direct_error, driven
from memaudit.interfaces import Role
from memaudit.stability import search
from memaudit.stability.search import Problem, ascent_errors, random_errors
from memaudit.subjects import moves
from tests.stability.moving_systems import (
    BETAS,
    diagonal_problem,
    diagonal_system,
    heaviside,
    impulse,
    mirrored_system,
    rnn_problem,
    seeded,
)

INPUTS = {"impulse": impulse(100), "heaviside": heaviside(100)}
#: As many climbs and steps as the probe takes.
STARTS, STEPS = 8, 24


def linear_problem(ball: str, *, form: str = "matrix", batch: int = 64) -> tuple[Problem, float]:
    """|<G, move>| for a matrix G: E(beta) is beta times the dual norm of G."""
    slope = torch.randn(4, 3, generator=seeded(0), dtype=torch.float64)
    weight = torch.randn(4, 3, generator=seeded(1), dtype=torch.float64)
    dual = float((slope * moves.steepest(slope[None], form, ball)[0]).sum())
    return Problem(
        {"w": weight},
        {"w": Role("recurrent", form)},
        ball,
        lambda moved: ((moved["w"] - weight) * slope).flatten(1).sum(1).abs(),
        batch=batch,
    ), dual


@pytest.mark.parametrize("ball", moves.BALLS)
@pytest.mark.parametrize("form", ["matrix", "diagonal", "vector"])
def test_a_linear_error_is_climbed_to_its_dual_norm(ball, form):
    problem, dual = linear_problem(ball, form=form)
    found = ascent_errors(problem, [0.1, 1.0, 10.0], 2, 3, seeded(0))
    np.testing.assert_allclose(found, dual * np.array([0.1, 1.0, 10.0]), rtol=1e-9)


@pytest.mark.parametrize("ball", moves.BALLS)
def test_random_errors_of_a_linear_error_are_below_the_dual_norm_and_grow_with_beta(ball):
    problem, dual = linear_problem(ball)
    found = random_errors(problem, [0.1, 1.0], 40, seeded(0))
    assert found.shape == (2, 40)
    assert (found[1] <= dual * (1 + 1e-12)).all()
    # One direction for all betas: a linear error is proportional to them, draw by draw.
    np.testing.assert_allclose(found[1], 10.0 * found[0], rtol=1e-9)


@pytest.mark.parametrize("batch", [1, 7, 10_000])
def test_the_batch_changes_nothing(batch):
    problem = diagonal_problem(6, impulse(20))
    other = dataclasses.replace(problem, batch=batch)
    drawn = [random_errors(p, BETAS[:5], 70, seeded(0)) for p in (problem, other)]
    np.testing.assert_allclose(drawn[1], drawn[0], rtol=1e-9)
    climbed = [ascent_errors(p, BETAS[:5], 2, 3, seeded(0)) for p in (problem, other)]
    np.testing.assert_allclose(climbed[1], climbed[0], rtol=1e-9)


def test_the_generator_decides_the_draws():
    problem = diagonal_problem(6, impulse(20))
    first, again, other = (random_errors(problem, BETAS[:5], 9, seeded(s)) for s in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def test_the_first_draws_are_the_same_however_many_follow():
    problem = diagonal_problem(4, impulse(10))
    few, many = (random_errors(problem, [0.1], n, seeded(0)) for n in (32, 96))
    np.testing.assert_array_equal(few, many[:, :32])


@pytest.mark.parametrize("name", INPUTS)
@pytest.mark.parametrize("m", [8, 64])
@pytest.mark.parametrize("norm", ["sobolev", "sup"])
def test_climbs_come_within_a_percent_of_the_closed_form(name, m, norm):
    problem = diagonal_problem(m, INPUTS[name], norm=norm)
    lam, weights = (values.numpy() for values in diagonal_system(m))
    system = driven(lam, weights, INPUTS[name].numpy())
    exact = np.array([direct_error(system, beta, norm=norm) for beta in BETAS])
    found = ascent_errors(problem, BETAS, STARTS, STEPS, seeded(0))
    assert (found <= exact * (1 + 1e-6)).all()
    assert (found >= 0.99 * exact).all()


def test_climbs_come_within_a_percent_where_modes_are_flat_on_the_wrong_side():
    # A negative mode that is pushed beyond zero has no slope there: it must be shaken loose.
    u = 2.0 * torch.rand(100, generator=seeded(9), dtype=torch.float64) - 1.0
    betas = BETAS[[4, 9, 12, 16, 18, 20]]
    lam, weights = (values.numpy() for values in mirrored_system(64))
    system = driven(lam, weights, u.numpy())
    exact = np.array([direct_error(system, beta) for beta in betas])
    found = ascent_errors(diagonal_problem(64, u, mirrored=True), betas, STARTS, STEPS, seeded(0))
    assert (found <= exact * (1 + 1e-6)).all()
    assert (found >= 0.99 * exact).all()


@pytest.mark.parametrize("ball", moves.BALLS)
@pytest.mark.parametrize("m", [8, 16])
def test_climbs_are_never_below_random_draws_on_a_diagonal_system(ball, m):
    problem = diagonal_problem(m, heaviside(40), ball=ball)
    betas = BETAS[::4]
    drawn = random_errors(problem, betas, 2000, seeded(1)).max(1)
    assert (ascent_errors(problem, betas, STARTS, STEPS, seeded(0)) >= drawn).all()


@pytest.mark.parametrize("ball", moves.BALLS)
@pytest.mark.parametrize("hidden", [4, 8])
def test_climbs_are_never_below_random_draws_on_a_tiny_rnn(ball, hidden):
    problem = rnn_problem(hidden, ball=ball)
    betas = BETAS[::5]
    drawn = random_errors(problem, betas, 2000, seeded(1)).max(1)
    assert (ascent_errors(problem, betas, STARTS, STEPS, seeded(0)) >= drawn).all()


def test_no_climb_leaves_its_ball():
    problem = rnn_problem(4, ball="spectral")
    largest = {name: 0.0 for name in problem.weights}
    own = problem.error

    def watched(moved):
        for name, value in moved.items():
            sizes = moves.size(
                value.detach() - problem.weights[name], problem.roles[name].form, "spectral"
            )
            largest[name] = max(largest[name], float(sizes.max()))
        return own(moved)

    ascent_errors(dataclasses.replace(problem, error=watched), [0.05, 0.2], 4, 12, seeded(0))
    assert all(0.19 < size <= 0.2 * (1 + 1e-9) for size in largest.values())


def test_more_steps_never_find_less_and_a_larger_ball_holds_the_smaller():
    problem = rnn_problem(4, ball="frobenius")
    few, many = (ascent_errors(problem, BETAS, 3, steps, seeded(0)) for steps in (0, 16))
    assert (many >= few).all()
    assert (np.diff(many) >= 0).all()


def test_climbs_that_do_not_fit_together_go_one_after_the_other(monkeypatch):
    problem = diagonal_problem(8, heaviside(30))
    together = ascent_errors(problem, BETAS[::4], 3, 9, seeded(0))
    monkeypatch.setattr(search, "MOST_NUMBERS", 8 * 20)
    told = []
    apart = ascent_errors(problem, BETAS[::4], 3, 9, seeded(0), lambda *count: told.append(count))
    assert told[-1] == (6 * 9, 6 * 9)
    np.testing.assert_allclose(apart, together, rtol=1e-3)


def test_betas_may_come_in_any_order():
    problem = diagonal_problem(5, impulse(20))
    up = ascent_errors(problem, [0.01, 0.1, 0.5], 3, 6, seeded(0))
    down = ascent_errors(problem, [0.5, 0.01, 0.1], 3, 6, seeded(0))
    np.testing.assert_allclose(down, up[[2, 0, 1]], rtol=1e-12)


def test_an_error_that_explodes_is_infinite_and_spoils_no_other_beta():
    weight = torch.tensor([0.9])
    own = weight ** torch.arange(100.0)

    def error(moved):
        d = moved["lam"] ** torch.arange(100.0) - own
        return torch.where(moved["lam"][:, 0].abs() < 1.0, d.abs().amax(1), math.nan)

    problem = Problem({"lam": weight}, {"lam": Role("recurrent", "diagonal")}, "spectral", error)
    for found in (
        ascent_errors(problem, [0.01, 0.05, 0.2], 2, 5, seeded(0)),
        random_errors(problem, [0.01, 0.05, 0.2], 8, seeded(0)).max(1),
    ):
        assert np.isfinite(found[:2]).all()
        assert found[2] == math.inf


def with_shortcut(problem: Problem, seen: list[tuple[int, int]]) -> Problem:
    """The same problem with a shortcut, which notes how many sizes and directions it gets."""

    def along(directions, sizes):
        counts = len(sizes), len(next(iter(directions.values())))
        seen.append(counts)
        spread = {
            name: problem.weights[name] + torch.einsum("s,k...->sk...", sizes, way)
            for name, way in directions.items()
        }
        found = problem.error({name: value.flatten(0, 1) for name, value in spread.items()})
        return found.unflatten(0, counts)

    return dataclasses.replace(problem, along=along)


@pytest.mark.parametrize("batch", [1, 7, 64, 10_000])
def test_a_shortcut_gives_the_same_errors_of_the_same_draws(batch):
    plain = dataclasses.replace(rnn_problem(4, ball="spectral"), batch=batch)
    quick = with_shortcut(plain, [])
    first, again = seeded(0), seeded(0)
    for _ in range(2):
        drawn = random_errors(plain, BETAS[:5], 70, first)
        np.testing.assert_allclose(random_errors(quick, BETAS[:5], 70, again), drawn, rtol=1e-9)
    assert torch.equal(first.get_state(), again.get_state())
    climbed = [ascent_errors(p, BETAS[:5], 2, 3, seeded(0)) for p in (plain, quick)]
    np.testing.assert_allclose(climbed[1], climbed[0], rtol=1e-9)


@pytest.mark.parametrize(
    ("batch", "asked"),
    [(100, {(5, 20), (5, 12)}), (11, {(5, 2)}), (5, {(5, 1)}), (2, {(2, 1), (1, 1)})],
)
def test_a_shortcut_is_split_so_that_it_stays_within_the_batch(batch, asked):
    seen = []
    problem = with_shortcut(diagonal_problem(3, impulse(5)), seen)
    random_errors(dataclasses.replace(problem, batch=batch), BETAS[:5], 32, seeded(0))
    assert set(seen) == asked
    assert sum(sizes * directions for sizes, directions in seen) == 5 * 32


def test_a_shortcut_that_is_not_finite_is_infinite():
    problem = diagonal_problem(3, impulse(5))
    lost = dataclasses.replace(
        problem, along=lambda ways, sizes: torch.full((len(sizes), len(ways["lam"])), math.nan)
    )
    found = random_errors(lost, [0.1, 0.2], 3, seeded(0))
    assert (found == math.inf).all()


def test_without_gradients_there_is_no_climb():
    problem = dataclasses.replace(linear_problem("spectral")[0], differentiable=False)
    assert ascent_errors(problem, [0.1], 2, 3, seeded(0)).shape == (0,)


def test_an_error_that_depends_on_no_weight_is_climbed_in_vain():
    problem = Problem(
        {"w": torch.ones(2)},
        {"w": Role("readout", "vector")},
        "spectral",
        lambda moved: torch.full((len(moved["w"]),), 0.25),
    )
    assert ascent_errors(problem, [0.1, 1.0], 2, 3, seeded(0)).tolist() == [0.25, 0.25]


def test_the_weights_are_as_they_were():
    problem = rnn_problem(4, ball="max-abs")
    before = {name: weight.clone() for name, weight in problem.weights.items()}
    random_errors(problem, [0.1], 5, seeded(0))
    ascent_errors(problem, [0.1], 2, 2, seeded(0))
    assert all(torch.equal(before[name], weight) for name, weight in problem.weights.items())
    assert not any(weight.requires_grad for weight in problem.weights.values())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_moved_weights_have_the_precision_of_the_model(dtype):
    seen = []
    problem = Problem(
        {"w": torch.ones(3, 3, dtype=dtype)},
        {"w": Role("recurrent", "matrix")},
        "spectral",
        lambda moved: seen.append(moved["w"].dtype) or moved["w"].float().flatten(1).norm(dim=1),
    )
    random_errors(problem, [0.1], 3, seeded(0))
    ascent_errors(problem, [0.1], 1, 1, seeded(0))
    assert set(seen) == {dtype}


def test_progress_is_reported_up_to_the_end():
    told = []
    problem = dataclasses.replace(diagonal_problem(3, impulse(5)), batch=32)
    random_errors(problem, [0.1, 0.2], 70, seeded(0), lambda *count: told.append(count))
    assert [done for done, _ in told] == sorted(done for done, _ in told)
    assert told[-1] == (140, 140)
    told.clear()
    ascent_errors(problem, [0.1], 2, 3, seeded(0), lambda *count: told.append(count))
    assert told == [(1, 3), (2, 3), (3, 3)]
