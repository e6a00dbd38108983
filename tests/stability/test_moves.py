"""Moves of weights: sizes, draws, steepest ones; norms of errors; the inputs."""

from __future__ import annotations

import math

import pytest
import torch

import memaudit
from memaudit.errors import ArgumentError
from memaudit.interfaces import NORMS, Setting
from memaudit.subjects import moves
from memaudit.subjects.moves import (
    draw,
    error_norm,
    error_norms,
    perturbing_inputs,
    size,
    steepest,
)
from tests.stability.moving_systems import seeded

FORMS = {"matrix": (5, 3), "diagonal": (7,), "vector": (4,)}
EVERY = [(form, ball) for form in FORMS for ball in moves.BALLS]
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
    assert float(moves.size(delta, form, ball)) == pytest.approx(expected, rel=1e-6)


def test_a_kernel_of_three_dimensions_is_a_matrix_of_its_rows():
    delta = gaussian(6, 3, 2, 4)
    flat = torch.linalg.svdvals(delta.reshape(6, 3, 8))[:, 0]
    torch.testing.assert_close(moves.size(delta, "matrix", "spectral"), flat)


def test_a_weight_of_one_dimension_is_a_column_whatever_its_form():
    delta = gaussian(4, 5)
    torch.testing.assert_close(moves.size(delta, "matrix", "spectral"), delta.norm(dim=1))


@pytest.mark.parametrize(("form", "ball"), EVERY)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("shapes", [FORMS, WIDE])
def test_draws_have_size_one(form, ball, dtype, shapes):
    drawn = moves.draw(shapes[form], form, ball, 10, seeded(1), dtype=dtype)
    assert drawn.shape == (10, *shapes[form])
    assert drawn.dtype == dtype
    sizes = moves.size(drawn, form, ball)
    torch.testing.assert_close(sizes, torch.ones_like(sizes), rtol=EXACT[dtype], atol=0)


@pytest.mark.parametrize(("form", "ball"), EVERY)
def test_the_same_generator_draws_the_same_moves_and_another_others(form, ball):
    first, again, other = (
        moves.draw(FORMS[form], form, ball, 5, seeded(seed)) for seed in (3, 3, 4)
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_spectral_draws_are_orthogonal_or_plain_or_of_rank_one():
    values = torch.linalg.svdvals(moves.draw((6, 4), "matrix", "spectral", 9, seeded(0)))
    torch.testing.assert_close(values[0::3], torch.ones_like(values[0::3]))
    assert (values[1::3, -1] < 0.9).all()
    assert (values[1::3, -1] > 1e-6).all()
    assert (values[2::3, 1:] < 1e-12).all()


def test_every_other_draw_of_a_box_is_a_corner():
    drawn = moves.draw((8,), "diagonal", "spectral", 6, seeded(0)).abs()
    assert (drawn[::2] == 1.0).all()
    assert (drawn[1::2].amin(1) < 1.0).all()


def test_draws_have_no_preferred_sign():
    for form, ball in EVERY:
        drawn = moves.draw(FORMS[form], form, ball, 3000, seeded(0))
        # A mean of 3000 numbers of size at most 1 strays by less than 5 / sqrt(3000).
        assert float(drawn.mean(0).abs().max()) < 5 / 3000**0.5


@pytest.mark.parametrize(("form", "ball"), EVERY)
@pytest.mark.parametrize("scale", [1.0, 1e200, 1e-200])
def test_the_steepest_move_beats_every_drawn_one(form, ball, scale):
    gradient = gaussian(1, *FORMS[form], seed=7)
    found = moves.steepest(scale * gradient, form, ball)
    assert float(moves.size(found, form, ball)) == pytest.approx(1.0, rel=1e-12)
    others = moves.draw(FORMS[form], form, ball, 2000, seeded(8))
    assert float((others * gradient).flatten(1).sum(1).max()) <= float((found * gradient).sum())


def test_the_steepest_move_has_the_dual_norm_as_its_product():
    gradient = gaussian(4, 5, 3)
    duals = {
        "spectral": torch.linalg.svdvals(gradient).sum(1),
        "frobenius": gradient.flatten(1).norm(dim=1),
        "max-abs": gradient.abs().flatten(1).sum(1),
    }
    for ball, expected in duals.items():
        found = moves.steepest(gradient, "matrix", ball)
        torch.testing.assert_close((found * gradient).flatten(1).sum(1), expected)


@pytest.mark.parametrize(("form", "ball"), EVERY)
def test_no_gradient_means_no_move(form, ball):
    assert not moves.steepest(torch.zeros(2, *FORMS[form]), form, ball).any()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_measured_in_float32(dtype):
    delta = gaussian(2, 3, 3).to(dtype)
    assert moves.size(delta, "matrix", "spectral").dtype == torch.float32
    assert moves.steepest(delta, "matrix", "spectral").dtype == dtype


def test_an_unknown_ball_is_named_with_its_neighbours():
    with pytest.raises(ArgumentError, match="did you mean frobenius"):
        moves.size(torch.ones(1, 2), "vector", "frobenus")


DOUBLE = torch.float64


def modulus(pairs: torch.Tensor) -> torch.Tensor:
    return torch.view_as_complex(pairs.contiguous()).abs()


@pytest.mark.parametrize("ball", ["spectral", "max-abs"])
def test_the_size_of_a_move_is_its_largest_modulus(ball: str) -> None:
    move = torch.tensor([[[3.0, 4.0], [0.0, 1.0]], [[0.0, 0.0], [0.6, 0.8]]], dtype=DOUBLE)
    assert size(move, "pairs", ball).tolist() == pytest.approx([5.0, 1.0])


def test_the_euclidean_size_is_that_of_all_parts() -> None:
    move = torch.tensor([[[3.0, 4.0], [0.0, 12.0]]], dtype=DOUBLE)
    assert size(move, "pairs", "frobenius").tolist() == pytest.approx([13.0])


def test_draws_touch_the_rim_in_all_directions() -> None:
    generator = torch.Generator().manual_seed(1)
    drawn = draw((5, 2), "pairs", "spectral", 400, generator, dtype=DOUBLE)
    assert modulus(drawn).amax(1).tolist() == pytest.approx([1.0] * 400)
    assert modulus(drawn[::2]).flatten().tolist() == pytest.approx([1.0] * 1000)
    assert drawn.mean((0, 1)).abs().max() < 0.05


def test_the_steepest_move_has_the_largest_inner_product() -> None:
    generator = torch.Generator().manual_seed(2)
    gradient = torch.randn(1, 7, 2, generator=generator, dtype=DOUBLE)
    best = steepest(gradient, "pairs", "spectral")
    assert size(best, "pairs", "spectral").tolist() == pytest.approx([1.0])
    gained = float((best * gradient).sum())
    assert gained == pytest.approx(float(modulus(gradient).sum()))
    others = draw((7, 2), "pairs", "spectral", 200, generator, dtype=DOUBLE)
    assert float((others * gradient).sum((1, 2)).max()) < gained


@pytest.mark.parametrize(
    ("norm", "expected"), [("sobolev", 5.0), ("sup", 3.0), ("l1", 8.0), ("mse", 5.0)]
)
def test_the_norms_of_one_three_minus_one_and_minus_three(norm, expected):
    # |d| + |d - d_before| is 1 + 1, 3 + 2, 1 + 4 and 3 + 2.
    d = torch.tensor([1.0, 3.0, -1.0, -3.0])[None, None, :, None]
    assert float(error_norm(d, norm, pooled=False)) == expected


def test_the_first_step_comes_from_nothing():
    d = torch.tensor([3.0, 3.0, 3.0])[None, None, :, None]
    assert float(error_norm(d, "sobolev", pooled=False)) == 6.0


def test_output_and_derivative_may_be_largest_at_different_outputs():
    # At the second step the largest output is 5 in one, the largest change 3 in the other.
    d = torch.tensor([[0.0, 2.5], [3.0, 5.0]])[None, None]
    assert float(error_norm(d, "sobolev", pooled=False)) == 8.0


@pytest.mark.parametrize("norm", NORMS)
def test_the_worst_row_counts_and_copies_stay_apart(norm):
    d = torch.zeros(3, 2, 4, 2)
    d[1, 1, 2, 0] = 2.0
    sizes = {"sobolev": 4.0, "sup": 2.0, "l1": 2.0, "mse": 4.0 / 16.0}
    assert error_norm(d, norm, pooled=False).tolist() == [0.0, sizes[norm], 0.0]


@pytest.mark.parametrize(
    ("norm", "expected"), [("sobolev", 4.0), ("sup", 4.0), ("l1", 4.0), ("mse", 7.5)]
)
def test_a_pooled_answer_has_no_derivative(norm, expected):
    d = torch.tensor([[[1.0, -2.0], [3.0, -4.0]]])
    assert float(error_norm(d, norm, pooled=True)) == expected


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_infinite_for_that_copy_alone(norm, bad):
    d = torch.ones(2, 1, 3, 1)
    d[0, 0, 1] = bad
    found = error_norm(d, norm, pooled=False)
    assert found[0] == math.inf
    assert torch.isfinite(found[1])


@pytest.mark.parametrize("norm", NORMS)
def test_errors_of_float32_are_summed_in_float64(norm):
    assert error_norm(torch.ones(1, 1, 2, 1), norm, pooled=False).dtype == torch.float64


@pytest.mark.parametrize("norm", NORMS)
def test_the_gradient_is_that_of_finite_differences(norm):
    generator = torch.Generator().manual_seed(0)
    d = torch.randn(2, 2, 5, 3, generator=generator, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: error_norm(x, norm, pooled=False), (d,))


def test_an_infinite_copy_does_not_spoil_the_gradient_of_another():
    d = torch.ones(2, 1, 3, 1, dtype=torch.float64)
    d[0, 0, 1] = math.nan
    d.requires_grad_()
    found = error_norm(d, "sobolev", pooled=False)
    (gradient,) = torch.autograd.grad(found[1], d)
    assert torch.isfinite(gradient[1]).all()
    assert float(gradient[1].sum()) == 2.0


def test_an_unknown_norm_is_named_with_its_neighbours():
    with pytest.raises(ArgumentError, match="did you mean sobolev"):
        error_norm(torch.ones(1, 1, 1), "sobolov", pooled=True)


@pytest.mark.parametrize("at_a_time", [1, 100, 2**20])
@pytest.mark.parametrize("pooled", [True, False])
@pytest.mark.parametrize("norm", NORMS)
def test_every_entry_is_the_norm_of_its_difference(norm, pooled, at_a_time, monkeypatch):
    monkeypatch.setattr(moves, "AT_A_TIME", at_a_time)
    draw = torch.Generator().manual_seed(0)
    shape = (2, 3) if pooled else (2, 7, 3)
    answers = torch.randn(5, 4, *shape, generator=draw)
    answers[1, 2, 0, 0] = torch.nan
    reference = torch.randn(shape, generator=draw, dtype=torch.float64)
    whole = error_norm((answers.double() - reference).flatten(0, 1), norm, pooled=pooled)
    found = error_norms(answers, reference, norm, pooled=pooled)
    assert torch.equal(found, whole.reshape(5, 4))
    assert found.isinf().sum() == 1


def subject(width: int = 3, *, natural: torch.Tensor | None = None, longest: int | None = None):
    made = memaudit.wrap(lambda u: u, input_size=width)
    made.longest = longest
    made.natural_inputs = lambda count, generator: natural  # type: ignore[method-assign]
    return made


def test_constants_an_impulse_signs_and_noise_come_first():
    u = perturbing_inputs(subject(), Setting())
    assert u.shape == (8, 100, 3)
    assert torch.equal(u[0], torch.ones(100, 3, dtype=torch.float64))
    assert torch.equal(u[1], -u[0])
    assert u[2, 0].tolist() == [1.0, 1.0, 1.0]
    assert not u[2, 1:].any()
    assert torch.equal(u[3].abs(), u[0])
    assert 0.3 < u[4].abs().mean() < 0.7


@pytest.mark.parametrize("natural", [None, 7 * torch.randn(5, 3, generator=torch.Generator())])
def test_no_entry_is_larger_than_one(natural):
    assert perturbing_inputs(subject(natural=natural), Setting()).abs().max() <= 1.0


def test_natural_inputs_are_scaled_together_and_stand_at_the_end():
    natural = torch.tensor([[4.0, 0.0, 0.0], [0.0, 2.0, 0.0]])
    u = perturbing_inputs(subject(natural=natural), Setting())
    rows = {tuple(row) for row in u[5:].reshape(-1, 3).tolist()}
    assert rows == {(1.0, 0.0, 0.0), (0.0, 0.5, 0.0)}


def test_small_natural_inputs_keep_their_size():
    u = perturbing_inputs(subject(natural=torch.full((1, 3), 0.25)), Setting())
    assert (u[5:] == 0.25).all()


def test_the_seed_decides_and_the_longest_sequence_limits():
    first, again = (perturbing_inputs(subject(), Setting(seed=3)) for _ in range(2))
    assert torch.equal(first, again)
    assert not torch.equal(first, perturbing_inputs(subject(), Setting(seed=4)))
    assert perturbing_inputs(subject(longest=12), Setting(), steps=50).shape[1] == 12
    assert len(perturbing_inputs(subject(), Setting(), rows=2)) == 2
