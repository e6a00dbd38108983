"""Sizes, draws, projections and steepest moves, against what the balls are."""

from __future__ import annotations

import pytest
import torch

from memaudit.errors import ArgumentError
from memaudit.stability import moves as balls
from tests.stability.moving_systems import seeded

FORMS = {"matrix": (5, 3), "diagonal": (7,), "vector": (4,)}
EVERY = [(form, ball) for form in FORMS for ball in balls.BALLS]
WIDE = {"matrix": (3, 2, 4), "diagonal": (2, 3), "vector": (2, 2)}
#: What a few operations leave: a decomposition is exact to some roundings.
EXACT = {torch.float64: 1e-12, torch.float32: 1e-5}


def gaussian(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=seeded(seed), dtype=torch.float64)


@pytest.mark.parametrize(
    ("form", "ball", "expected"),
    [
        ("matrix", "spectral", 4.0),
        ("matrix", "frobenius", 5.0),
        ("matrix", "max-abs", 4.0),
        ("diagonal", "spectral", 4.0),
        ("diagonal", "frobenius", 5.0),
        ("diagonal", "max-abs", 4.0),
        ("vector", "spectral", 5.0),
        ("vector", "frobenius", 5.0),
        ("vector", "max-abs", 4.0),
    ],
)
def test_the_size_of_three_and_minus_four(form, ball, expected):
    entries = torch.tensor([3.0, -4.0])
    delta = torch.diag(entries)[None] if form == "matrix" else entries[None]
    assert float(balls.size(delta, form, ball)) == pytest.approx(expected, rel=1e-6)


def test_a_kernel_of_three_dimensions_is_a_matrix_of_its_rows():
    delta = gaussian(6, 3, 2, 4)
    flat = torch.linalg.svdvals(delta.reshape(6, 3, 8))[:, 0]
    torch.testing.assert_close(balls.size(delta, "matrix", "spectral"), flat)


def test_a_weight_of_one_dimension_is_a_column_whatever_its_form():
    delta = gaussian(4, 5)
    torch.testing.assert_close(balls.size(delta, "matrix", "spectral"), delta.norm(dim=1))


@pytest.mark.parametrize(("form", "ball"), EVERY)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("shapes", [FORMS, WIDE])
def test_draws_have_size_one(form, ball, dtype, shapes):
    drawn = balls.draw(shapes[form], form, ball, 10, seeded(1), dtype=dtype)
    assert drawn.shape == (10, *shapes[form])
    assert drawn.dtype == dtype
    sizes = balls.size(drawn, form, ball)
    torch.testing.assert_close(sizes, torch.ones_like(sizes), rtol=EXACT[dtype], atol=0)


@pytest.mark.parametrize(("form", "ball"), EVERY)
def test_the_same_generator_draws_the_same_moves_and_another_others(form, ball):
    first, again, other = (
        balls.draw(FORMS[form], form, ball, 5, seeded(seed)) for seed in (3, 3, 4)
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_spectral_draws_are_orthogonal_or_plain_or_of_rank_one():
    values = torch.linalg.svdvals(balls.draw((6, 4), "matrix", "spectral", 9, seeded(0)))
    torch.testing.assert_close(values[0::3], torch.ones_like(values[0::3]))
    assert (values[1::3, -1] < 0.9).all()
    assert (values[1::3, -1] > 1e-6).all()
    assert (values[2::3, 1:] < 1e-12).all()


def test_every_other_draw_of_a_box_is_a_corner():
    drawn = balls.draw((8,), "diagonal", "spectral", 6, seeded(0)).abs()
    assert (drawn[::2] == 1.0).all()
    assert (drawn[1::2].amin(1) < 1.0).all()


def test_draws_have_no_preferred_sign():
    for form, ball in EVERY:
        drawn = balls.draw(FORMS[form], form, ball, 3000, seeded(0))
        # A mean of 3000 numbers of size at most 1 strays by less than 5 / sqrt(3000).
        assert float(drawn.mean(0).abs().max()) < 5 / 3000**0.5


@pytest.mark.parametrize(("form", "ball"), EVERY)
def test_a_projection_is_inside_and_leaves_alone_what_is_inside(form, ball):
    delta = gaussian(6, *FORMS[form])
    beta = balls.size(delta, form, ball).median()
    found = balls.project(delta, form, ball, float(beta))
    assert (balls.size(found, form, ball) <= beta * (1 + 1e-12)).all()
    inside = balls.size(delta, form, ball) <= beta
    assert inside.any()
    torch.testing.assert_close(found[inside], delta[inside])


@pytest.mark.parametrize(("form", "ball"), EVERY)
def test_no_drawn_move_is_nearer_than_the_projection(form, ball):
    delta = 3.0 * gaussian(1, *FORMS[form], seed=2)
    found = balls.project(delta, form, ball, 0.5)
    others = 0.5 * balls.draw(FORMS[form], form, ball, 500, seeded(5))
    # The variational inequality of a projection onto a convex set.
    products = ((others - found) * (delta - found)).flatten(1).sum(1)
    assert (products <= 1e-9).all()


def test_every_copy_has_a_ball_of_its_own():
    delta = gaussian(3, 4, 4)
    beta = torch.tensor([0.1, 1.0, 100.0], dtype=torch.float64)
    for ball in balls.BALLS:
        found = balls.project(delta, "matrix", ball, beta)
        for k in range(3):
            alone = balls.project(delta[k : k + 1], "matrix", ball, float(beta[k]))
            torch.testing.assert_close(found[k : k + 1], alone)


@pytest.mark.parametrize(("form", "ball"), EVERY)
@pytest.mark.parametrize("scale", [1.0, 1e200, 1e-200])
def test_the_steepest_move_beats_every_drawn_one(form, ball, scale):
    gradient = gaussian(1, *FORMS[form], seed=7)
    found = balls.steepest(scale * gradient, form, ball)
    assert float(balls.size(found, form, ball)) == pytest.approx(1.0, rel=1e-12)
    others = balls.draw(FORMS[form], form, ball, 2000, seeded(8))
    assert float((others * gradient).flatten(1).sum(1).max()) <= float((found * gradient).sum())


def test_the_steepest_move_has_the_dual_norm_as_its_product():
    gradient = gaussian(4, 5, 3)
    duals = {
        "spectral": torch.linalg.svdvals(gradient).sum(1),
        "frobenius": gradient.flatten(1).norm(dim=1),
        "max-abs": gradient.abs().flatten(1).sum(1),
    }
    for ball, expected in duals.items():
        found = balls.steepest(gradient, "matrix", ball)
        torch.testing.assert_close((found * gradient).flatten(1).sum(1), expected)


@pytest.mark.parametrize(("form", "ball"), EVERY)
def test_no_gradient_means_no_move(form, ball):
    assert not balls.steepest(torch.zeros(2, *FORMS[form]), form, ball).any()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_measured_in_float32(dtype):
    delta = gaussian(2, 3, 3).to(dtype)
    assert balls.size(delta, "matrix", "spectral").dtype == torch.float32
    assert balls.steepest(delta, "matrix", "spectral").dtype == dtype
    assert balls.project(delta, "matrix", "spectral", 0.1).dtype == dtype


def test_an_unknown_ball_is_named_with_its_neighbours():
    with pytest.raises(ArgumentError, match="did you mean frobenius"):
        balls.size(torch.ones(1, 2), "vector", "frobenus")
