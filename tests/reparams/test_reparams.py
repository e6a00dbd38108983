"""Every reparameterization keeps its laws, and its gradient scale is that of its derivative."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from memaudit.errors import ArgumentError
from memaudit.interfaces import AbstractReparam
from memaudit.numerics.reparameterization import gradient_scale, has_flat_stretch, modulus
from memaudit.registry import BUILT_IN
from memaudit.reparams import (
    Best,
    Clip,
    Direct,
    Exp,
    Heavytail,
    Inverse,
    Relu,
    Softplus,
    Tanh,
    forms,
)
from memaudit.testing import check_reparam

EVERY = [form for time in ("continuous", "discrete") for form in forms(time)]
NAMED = [pytest.param(form, id=f"{form.name}-{form.time}") for form in EVERY]
#: Logarithms and roots lose a few of the 52 bits: of rates, relatively; of discrete eigenvalues,
#: which are differences from one, absolutely.
ROUNDING = {"continuous": 1e-13, "discrete": 8 * torch.finfo(torch.float64).eps}


def numbers(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


@pytest.mark.parametrize("form", NAMED)
def test_a_reparameterization_keeps_its_laws(form):
    check_reparam(form)


@pytest.mark.parametrize("form", NAMED)
@settings(deadline=None)
@given(share=st.floats(1e-6, 1 - 1e-6), negative=st.booleans())
def test_what_it_contains_comes_back_from_its_raw_weight(form, share, negative):
    lam = share if form.time == "discrete" else share / (1.0 - share)
    lam = numbers(-lam if negative or form.time == "continuous" else lam)
    if form.contains(lam).item():
        back = form.forward(form.inverse(lam))
        size = lam.abs().clamp(min=1e-3) if form.time == "continuous" else numbers(1.0)
        assert float((back - lam).abs() / size) <= ROUNDING[form.time]


ENDS = {
    Relu(): ([0.0, -1e300], [5e-324, -math.inf]),
    Relu("discrete"): ([5e-324, 1.0], [0.0, 1.0 + 2e-16]),
    Clip(): ([-1e-4, -1e300], [math.nextafter(-1e-4, 0), -math.inf]),
    Exp(): ([-5e-324, -1e300], [0.0, -math.inf]),
    Exp("discrete"): ([5e-324, 1.0 - 1e-16], [0.0, 1.0]),
    Softplus(): ([-5e-324, -1e300], [0.0, -math.inf]),
    Softplus("discrete"): ([5e-324, 1.0 - 1e-16], [0.0, 1.0]),
    Inverse(floor=0.5): ([-2.0, -5e-324], [math.nextafter(-2.0, -3), 0.0]),
    Inverse("discrete", floor=1.0): ([0.0, 1.0 - 1e-16], [-5e-324, 1.0]),
    Tanh(): ([-1.0 + 1e-16, 1.0 - 1e-16], [-1.0, 1.0]),
    Best(): ([-2.0, -5e-324], [math.nextafter(-2.0, -3), 0.0]),
    Best(b=0.1): ([-10.0], [math.nextafter(-10.0, -11)]),
    Best("discrete"): ([-1.0, 1.0 - 1e-16], [math.nextafter(-1.0, -2), 1.0]),
    Heavytail(): ([-5e-324, -1e300], [0.0, -math.inf]),
}


@pytest.mark.parametrize("form", [pytest.param(f, id=repr(f)) for f in ENDS])
def test_the_ends_of_its_range_are_exact(form):
    inside, outside = ENDS[form]
    assert form.contains(numbers(*inside)).all()
    assert not form.contains(numbers(*outside)).any()


def test_the_discrete_best_is_minus_one_at_zero_and_nothing_less():
    assert Best("discrete").forward(numbers(0.0)).item() == -1.0
    assert math.isinf(Best("discrete").modulus(0.01))
    assert math.isfinite(Best("discrete", b=0.6).modulus(0.01))


MODULI = {
    Exp(): (0.01005, 0.1052, 1.718),
    Softplus(): (0.01005, 0.1052, 1.718),
    Best(): (0.01424, 0.152, 2.73),
    Heavytail(): (0.01003, 0.1025, 1.25),
    Direct(): (math.inf, math.inf, math.inf),
}


@pytest.mark.parametrize("form", [pytest.param(f, id=f.name) for f in MODULI])
def test_the_moduli_are_those_that_were_measured(form):
    for beta, stated in zip((0.01, 0.1, 1.0), MODULI[form], strict=True):
        digits = len(f"{stated:.10g}".split(".")[-1])
        assert form.modulus(beta) == stated or round(form.modulus(beta), digits) == stated
        searched = modulus(form.forward, beta, time="continuous")
        assert searched == form.modulus(beta) or searched == pytest.approx(
            form.modulus(beta), rel=1e-4
        )


@settings(deadline=None)
@given(beta=st.floats(1e-3, 3.0), a=st.floats(0.1, 5.0), b=st.floats(0.1, 5.0))
def test_the_modulus_of_best_is_below_the_bound_that_holds_for_every_weight(beta, a, b):
    bound = a * beta**2 / b + beta * math.sqrt(a / b)
    assert Best(a=a, b=b).modulus(beta) <= bound * (1 + 1e-12)
    w = torch.linspace(0.0, 20.0, 4001, dtype=torch.float64)
    worst = a * (2 * w * beta + beta**2) / (a * w**2 + b)
    assert float(worst.amax()) <= Best(a=a, b=b).modulus(beta) * (1 + 1e-12)


WEIGHTS = numbers(-2.5, -1.0, -0.3, 0.2, 0.9, 1.7)
SCALES = {
    Exp(): lambda w: (-w).exp(),
    Softplus(): lambda w: w.sigmoid() / w.exp().log1p().square(),
    Best(): lambda w: 2.0 * w.abs(),
    Best(a=3.0, b=0.2): lambda w: 6.0 * w.abs(),
    Heavytail(): lambda w: torch.where(w >= 0, (1 + w.clamp(min=0)).pow(-2), torch.ones_like(w)),
    Relu("discrete"): lambda w: (w > 0) * (-w).exp() / (1 - (-w).exp()).square(),
    Exp("discrete"): lambda w: (w - w.exp()).exp() / (1 - (-w.exp()).exp()).square(),
    Softplus("discrete"): lambda w: (-w).exp(),
    Tanh(): lambda w: (2.0 * w).exp(),
    Best("discrete"): lambda w: 2.0 * w.abs(),
}


@pytest.mark.parametrize("form", [pytest.param(f, id=repr(f)) for f in SCALES])
def test_the_gradient_scale_is_that_of_the_table(form):
    found = gradient_scale(form.forward, WEIGHTS, time=form.time)
    torch.testing.assert_close(found, SCALES[form](WEIGHTS), rtol=1e-12, atol=0.0)


def test_the_gradient_scale_of_heavytail_is_at_most_one():
    w = torch.linspace(-50.0, 50.0, 2001, dtype=torch.float64)
    assert float(gradient_scale(Heavytail().forward, w, time="continuous").amax()) <= 1.0 + 1e-12


def test_weights_lose_their_gradient_where_a_form_is_flat_and_nowhere_else():
    flat = {form.name for form in EVERY if has_flat_stretch(form.forward)}
    assert flat == {"relu", "clip", "inverse"}


def test_a_form_that_does_not_exist_is_refused_with_those_that_do():
    with pytest.raises(ArgumentError, match="no discrete form; it has: continuous"):
        Heavytail("discrete")


@pytest.mark.parametrize(
    "made",
    [lambda: Best(b=0.0), lambda: Clip(ceiling=0.0), lambda: Inverse("discrete", floor=0.5)],
)
def test_options_outside_of_their_range_are_refused(made):
    with pytest.raises(ArgumentError, match="give a number between"):
        made()


def test_every_name_stands_for_one_class():
    assert len(BUILT_IN["reparams"]) == 9
    found = {one.name for time in ("continuous", "discrete") for one in forms(time)}
    assert found == set(BUILT_IN["reparams"])


@dataclass(frozen=True, slots=True)
class Crooked(Exp):
    """Breaks one law at a time."""

    broken: str = "inverse"

    def inverse(self, lam):
        return Exp.inverse(self, lam) + 1e-6 * (self.broken == "inverse")

    def contains(self, lam):
        return (lam < 0.0) & (lam.isfinite() | torch.tensor(self.broken == "finite"))

    def modulus(self, beta):
        return Exp.modulus(self, beta) * (1.001 if self.broken == "modulus" else 1.0)

    def forward(self, w):
        value = Exp.forward(self, w)
        return value.detach() + 0.5 * (value - value.detach()) if self.broken == "slope" else value


@pytest.mark.parametrize(
    ("broken", "told"),
    [
        ("inverse", "is off by"),
        ("finite", "not finite"),
        ("modulus", "where the definition gives"),
        ("slope", "from the slope"),
    ],
)
def test_a_broken_law_is_found(broken, told):
    check_reparam(Crooked(broken="none"))
    with pytest.raises(AssertionError, match=told):
        check_reparam(Crooked(broken=broken))


class Unsteady(Direct):
    """Calls itself stable."""

    stable: ClassVar[bool] = True


def test_a_form_that_is_called_stable_and_is_not_is_found():
    assert issubclass(Unsteady, AbstractReparam)
    with pytest.raises(AssertionError, match="called stable"):
        check_reparam(Unsteady())


WITH_OPTIONS = [form for time in ("continuous", "discrete") for form in forms(time)]
WITH_OPTIONS += [
    Best(a=3.0, b=0.2),
    Best("discrete", a=0.7, b=0.9),
    Clip(ceiling=-0.5),
    Inverse(floor=2),
]
NAMED_WITH_OPTIONS = [pytest.param(form, id=repr(form)) for form in WITH_OPTIONS]


@pytest.mark.parametrize("form", NAMED_WITH_OPTIONS)
@settings(deadline=None, max_examples=40)
@given(hundredths=st.integers(-600, 600))
def test_the_closed_scale_is_the_numeric_one(form, hundredths):
    raw = torch.tensor([hundredths / 100], dtype=torch.float64)
    closed, numeric = form.gradient_scale(raw), gradient_scale(form.forward, raw, time=form.time)
    # Near the boundary 1 - f keeps few digits in the numeric one: tanh(6) leaves eleven.
    torch.testing.assert_close(closed, numeric, rtol=1e-9, atol=1e-280)


@pytest.mark.parametrize("form", NAMED_WITH_OPTIONS)
def test_every_form_of_ours_shows_its_scale(form):
    assert form.scale_formula
    assert form.gradient_scale(torch.tensor([0.3])).dtype == torch.float64


def test_the_scales_are_those_of_the_definitions():
    w = torch.tensor([-2.0, -0.5, 0.5, 2.0], dtype=torch.float64)
    assert Best(a=2.0).gradient_scale(w).tolist() == [8.0, 2.0, 2.0, 8.0]
    assert Heavytail().gradient_scale(w).amax() == 1.0
    assert Exp().gradient_scale(w).tolist() == (-w).exp().tolist()


def test_the_scale_is_infinite_on_the_boundary_unless_nothing_moves_there():
    zero, one = torch.zeros(1), torch.ones(1)
    assert math.isinf(Direct().gradient_scale(zero).item())
    assert math.isinf(Direct("discrete").gradient_scale(one).item())
    assert Relu().gradient_scale(zero).item() == 0.0
    assert Relu("discrete").gradient_scale(zero).item() == 0.0


@pytest.mark.parametrize("form", NAMED_WITH_OPTIONS)
def test_the_closed_scale_of_far_weights_is_never_nan(form):
    w = torch.tensor([-1e4, -700.0, 0.0, 700.0, 1e4], dtype=torch.float64)
    assert not form.gradient_scale(w).isnan().any()
