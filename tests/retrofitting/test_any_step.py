"""No step of training, however large, takes a stable form out of the stable set."""

from __future__ import annotations

import copy
from functools import cache
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from memaudit.interfaces import AbstractReparam
from memaudit.numerics.signals import seeded
from memaudit.reparams import Direct, forms
from memaudit.retrofitting.weights import eigen_form, swap
from tests.retrofitting.models import Rates, rates, recurrent, whole

DTYPES = (torch.float32, torch.float64)
OPTIMIZERS = (torch.optim.SGD, torch.optim.Adam)
#: Steps of up to 1e37 are the largest that three of single precision can take without overflow.
LARGEST_GRADIENT = 1e25


@st.composite
def runs(draw: st.DrawFn) -> tuple[type[torch.optim.Optimizer], float, list[float], int]:
    """An optimizer, a learning rate, the sizes of three gradients, and a seed for the rest."""
    exponents = st.floats(-10.0, 25.0)
    return (
        draw(st.sampled_from(OPTIMIZERS)),
        10.0 ** draw(st.floats(-6.0, 12.0)),
        [
            min(10.0**power, LARGEST_GRADIENT)
            for power in draw(st.lists(exponents, min_size=3, max_size=3))
        ],
        draw(st.integers(0, 999)),
    )


def trained(model: nn.Module, run: tuple) -> None:
    """Three steps with drawn gradients."""
    kind, lr, sizes, seed = run
    raw = [p for name, p in model.named_parameters() if "parametrizations" in name]
    optimizer, generator = kind(raw, lr=lr), seeded(seed)
    for size in sizes:
        for weight in raw:
            drawn = torch.randn(weight.shape, generator=generator, dtype=torch.float64)
            weight.grad = (drawn * size).clamp(-LARGEST_GRADIENT, LARGEST_GRADIENT).to(weight)
        optimizer.step()


def continuous(dtype: torch.dtype) -> list[AbstractReparam]:
    lam = -Rates(dtype=dtype).A_log.detach().double().exp().flatten()
    fitted = [form.fitted(lam) for form in forms("continuous")]
    return [form for form in fitted if form.stable and bool(form.contains(lam).all())]


def discrete(dtype: torch.dtype) -> list[AbstractReparam]:
    sizes = eigen_form(recurrent(dtype=dtype).weight_hh_l0).sizes
    fitted = [form.fitted(sizes) for form in forms("discrete")]
    return [form for form in fitted if form.stable and bool(form.contains(sizes).all())]


def each(make) -> list:
    return [
        pytest.param(dtype, form, id=f"{form.name}-{str(dtype).removeprefix('torch.')}")
        for dtype in DTYPES
        for form in make(dtype)
    ]


@cache
def swapped(dtype: torch.dtype, form: AbstractReparam) -> Any:
    """A model behind a form of its time; the examples take copies of it."""
    model = Rates(dtype=dtype) if form.time == "continuous" else recurrent(dtype=dtype)
    swap(rates(model) if isinstance(model, Rates) else whole(model), form)
    return model


def rates_of(model: Rates) -> Tensor:
    return -model.A_log.detach().double().exp()


def sizes_of(model: nn.RNN) -> Tensor:
    return torch.linalg.eigvals(model.weight_hh_l0.detach().double()).abs()


@pytest.mark.parametrize(("dtype", "form"), each(continuous))
@settings(max_examples=30, deadline=None)
@given(run=runs())
def test_rates_stay_negative_and_finite(dtype, form, run):
    model = copy.deepcopy(swapped(dtype, form))
    trained(model, run)
    found = rates_of(model)
    assert bool((found < 0.0).all())
    assert bool(found.isfinite().all())


@pytest.mark.parametrize(("dtype", "form"), each(discrete))
@settings(max_examples=30, deadline=None)
@given(run=runs())
def test_the_modes_of_a_matrix_stay_inside(dtype, form, run):
    model = copy.deepcopy(swapped(dtype, form))
    trained(model, run)
    found = sizes_of(model)
    assert bool((found < 1.0).all())


@pytest.mark.parametrize(("dtype", "form"), each(continuous))
def test_an_overflown_raw_weight_stands_at_the_end_of_its_range(dtype, form):
    for far in (torch.inf, -torch.inf, 1e30, -1e30):
        model = copy.deepcopy(swapped(dtype, form))
        with torch.no_grad():
            model.get_parameter("parametrizations.A_log.original0")[0, 0] = far
        found = rates_of(model)
        assert bool((found < 0.0).all())
        assert bool(found.isfinite().all())


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_the_direct_form_leaves_at_large_steps(kind):
    run = (kind, 1e3, [1.0, 1.0, 1.0], 0)
    model = Rates()
    swap(rates(model), Direct())
    trained(model, run)
    # The logarithm of a positive rate is no number: the mode has left.
    assert not bool(model.A_log.isfinite().all())
    matrix = recurrent()
    swap(whole(matrix), Direct("discrete"))
    trained(matrix, run)
    assert bool((sizes_of(matrix) > 1.0).any())
