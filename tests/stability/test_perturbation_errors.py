"""The four norms of an error, on differences whose norms are known."""

from __future__ import annotations

import math

import pytest
import torch

from memaudit.errors import ArgumentError
from memaudit.stability.moves import error_norm
from memaudit.stability.result import NORMS


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
