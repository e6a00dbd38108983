"""Gradients over weights against autograd through every form, and the rates that are safe."""

from __future__ import annotations

import math
from typing import ClassVar

import pytest
import torch
from torch import Tensor, nn

import memaudit
from memaudit.errors import ArgumentError
from memaudit.gradient.forms import DENSE, NO_RECURRENCE, learning_rate, synthetic_task
from memaudit.gradient.probe import FIXED, Gradient
from memaudit.interfaces import AbstractPerturbable, Role, Setting
from memaudit.numerics.reparameterization import derivative
from memaudit.reparams import Best, Direct, Exp, Softplus, forms
from tests.stability.diagonal_models import DiagonalCopies, DiagonalSubject, SharedRates

SETTING = Setting(horizon=64)
#: All forms reach these: rates between -1.9 and 0, eigenvalues between 0 and 1.
RATES = torch.tensor([-1.7, -0.8, -0.31, -0.07, -0.012], dtype=torch.float64)
MODES = torch.tensor([0.2, 0.55, 0.83, 0.95, 0.991], dtype=torch.float64)
AT = {"continuous": RATES, "discrete": MODES}
EVERY = [form for time in AT for form in forms(time)]
NAMED = [pytest.param(form, id=f"{form.name}-{form.time}") for form in EVERY]


def measured(form, **options):
    """The record of a layer with that form, at the same eigenvalues as all others."""
    copies = DiagonalCopies(form, AT[form.time], **options)
    (record,) = Gradient().measure(DiagonalSubject(copies, named=form.name), SETTING).layers
    return record


def slopes(form) -> Tensor:
    """dLoss/dw by autograd through the form itself, on the batch of the probe."""
    copies = DiagonalCopies(form, AT[form.time])
    task = synthetic_task(DiagonalSubject(copies), SETTING, steps=100)
    w = copies.weights["w"][None].clone().requires_grad_()
    (slope,) = torch.autograd.grad(task.value(copies.respond(task.inputs, {"w": w})[0]), w)
    return slope[0]


def ratios(form) -> Tensor:
    """|dLoss/dw| / |w|."""
    return (slopes(form) / form.inverse(AT[form.time])).abs()


@pytest.mark.parametrize("form", NAMED)
def test_the_ratios_are_those_of_autograd_through_every_form(form):
    """A layer that has the form measures what every other layer is told, with fitted constants."""
    others = [Direct(form.time), Exp(form.time), Softplus(form.time)]
    fitted = form.fitted(AT[form.time])
    pairs = [(form, form), *((other, fitted) for other in others if other.name != form.name)]
    for layer, tried in pairs:
        exact = ratios(tried)
        told = next(one for one in measured(layer).reparams if one.name == form.name)
        assert told.largest == pytest.approx(float(exact.max()), rel=1e-8)
        assert told.median == pytest.approx(float(exact.median()), rel=1e-8)
        assert told.unreachable == 0


@pytest.mark.parametrize("time", AT)
def test_one_constant_per_mode_is_left_when_the_slope_is_divided_out(time):
    """StableSSM, Theorem 3.4: the gradient is |f'| times what does not depend on f."""
    constants = []
    for form in forms(time):
        w = form.inverse(AT[time])
        constants.append(ratios(form) * w.abs() / derivative(form.forward, w).abs())
    for constant in constants[1:]:
        torch.testing.assert_close(constant, constants[0], rtol=1e-8, atol=0.0)


@pytest.mark.parametrize("form", NAMED)
def test_the_form_of_a_layer_is_found_from_its_modes(form):
    record = measured(form)
    assert record.current == form.name
    assert {one.time for one in record.reparams} == {form.time}
    assert record.own == pytest.approx(float(ratios(form).max()), rel=1e-12)


@pytest.mark.parametrize("phase", [0.0, 0.4])
@pytest.mark.parametrize("form", [Exp(), Softplus(), Direct(), Exp("discrete")])
def test_complex_modes_and_a_spectrum_without_a_name_do_not_hide_the_form(form, phase):
    copies = DiagonalCopies(form, AT[form.time], phase=phase, dt=0.03)
    (record,) = Gradient().measure(DiagonalSubject(copies), SETTING).layers
    assert (record.current, record.reparams[0].time) == (form.name, form.time)


@pytest.mark.parametrize("blocks", [True, False])
def test_rates_that_channels_share_are_found_beside_their_step_sizes(blocks):
    copies = SharedRates(Exp(), RATES, blocks=blocks)
    task = synthetic_task(DiagonalSubject(copies), SETTING, steps=100)
    w = copies.weights["w"][None].clone().requires_grad_()
    (slope,) = torch.autograd.grad(task.value(copies.respond(task.inputs, {"w": w})[0]), w)
    exact = float((slope / w).detach().abs().max())
    (record,) = Gradient().measure(DiagonalSubject(copies), SETTING).layers
    told = next(one for one in record.reparams if one.name == "exp")
    assert (record.current, told.time) == ("exp", "continuous")
    assert told.largest == pytest.approx(exact, rel=1e-9)


def test_the_bound_is_the_largest_gradient_scale():
    bounds = {one.name: one.bound for one in measured(Exp()).reparams}
    assert bounds["exp"] == pytest.approx(1 / 0.012)
    assert bounds["direct"] == pytest.approx(1 / 0.012**2)
    assert bounds["heavytail"] == pytest.approx(1.0)
    best = Best().fitted(RATES)
    assert bounds["best"] == pytest.approx(2 * math.sqrt(best.a * (1 / 0.012 - best.b)))


def test_the_safe_rate_of_direct_weights_is_the_first_that_reaches_the_boundary():
    rate = measured(Direct("discrete")).reparams[0].learning_rate
    slope = slopes(Direct("discrete"))
    assert (slope < 0).any()  # descent raises some mode
    room = torch.where(slope < 0, torch.minimum(1 - MODES, MODES), MODES)
    assert rate == pytest.approx(float((room / slope.abs()).min()), rel=1e-9)
    assert rate < float((MODES / slope.abs()).min())  # the boundary comes first


def test_the_safe_rate_of_stable_weights_moves_one_by_its_own_size():
    record = measured(Softplus())
    told = next(one for one in record.reparams if one.name == "softplus")
    assert told.learning_rate == pytest.approx(1 / told.largest, rel=1e-9)


def test_the_recommended_form_is_stable_complete_and_has_the_smallest_ratio():
    record = measured(Direct())
    eligible = [
        one
        for one in record.reparams
        if one.name in ("exp", "softplus", "best", "heavytail") and not one.unreachable
    ]
    assert record.recommended == min(eligible, key=lambda one: one.largest).name
    assert f"{record.recommended} has the smallest largest ratio" in record.reasoning
    assert "all 5 modes" in record.reasoning
    assert "AdamW" in record.reasoning


def test_best_is_judged_with_the_constants_that_a_retrofit_chooses():
    lam = torch.tensor([-16.0, -4.0, -0.5]).double()
    (record,) = (
        Gradient().measure(DiagonalSubject(DiagonalCopies(Exp(), lam, dt=0.01)), SETTING).layers
    )
    told = {one.name: one for one in record.reparams}
    assert Best().fitted(lam) == Best(a=0.0625, b=0.03125)
    assert (told["best"].unreachable, told["best"].barred) == (0, "")
    assert "constants that a retrofit chooses: best (a = 0.0625, b = 0.03125)" in record.reasoning


def test_a_stored_best_keeps_its_own_constants():
    copies = DiagonalCopies(Best(a=0.5, b=0.25), torch.tensor([-2.0, -0.5]).double())
    (record,) = Gradient().measure(DiagonalSubject(copies), SETTING).layers
    assert "constants that a retrofit chooses" not in record.reasoning


def test_a_form_with_a_weight_of_zero_is_not_recommended():
    lam = torch.tensor([-1.0, -0.02, -0.01], dtype=torch.float64)  # heavytail is 0 at -1
    (record,) = Gradient().measure(DiagonalSubject(DiagonalCopies(Softplus(), lam)), SETTING).layers
    ratios = {one.name: one.largest for one in record.reparams}
    assert ratios["heavytail"] < ratios[record.recommended]
    assert "Less, but a raw weight of zero: exp and heavytail." in record.reasoning
    assert "Less, but no gradient beyond a limit: inverse." in record.reasoning


def test_the_best_of_the_public_code_is_known_by_its_own_offset():
    record = measured(Best(b=0.1))
    best = next(one for one in record.reparams if one.name == "best")
    assert record.current == "best"
    assert best.largest == pytest.approx(record.own, rel=1e-9)


class Sigmoid(Exp):
    """1 / (1 + e^-w)², which is no form of the table."""

    def forward(self, w: Tensor) -> Tensor:
        return w.sigmoid().square()

    def inverse(self, lam: Tensor) -> Tensor:
        return lam.sqrt().logit()


def test_a_form_without_a_name_is_compared_as_it_is_stored():
    copies = DiagonalCopies(Sigmoid("discrete"), MODES)
    (record,) = Gradient().measure(DiagonalSubject(copies, named="sigmoid"), SETTING).layers
    assert record.current == record.reparams[0].name == "sigmoid, as stored"
    assert record.reparams[0].largest == pytest.approx(record.own, rel=1e-9)
    exact = float(ratios(Exp("discrete")).max())
    told = next(one for one in record.reparams if one.name == "exp")
    assert told.largest == pytest.approx(exact, rel=1e-8)


class Dense(AbstractPerturbable):
    """h' = tanh(W h + u): no weight stands for a mode."""

    def __init__(self, *, group: str = "recurrent") -> None:
        draw = torch.Generator().manual_seed(0)
        self.weights = {"W": 0.4 * torch.randn(3, 3, generator=draw, dtype=torch.float64)}
        self.roles = {"W": Role(group, "matrix", "mixer")}

    def respond(self, inputs, moved):
        matrix = moved.get("W", self.weights["W"][None])
        state = inputs.new_zeros(len(matrix), len(inputs), 3)
        answers = []
        for u in inputs.unbind(1):
            state = torch.tanh(state @ matrix.mT + u)
            answers.append(state[..., :1])
        return torch.stack(answers, 2)


def test_a_dense_layer_has_its_own_ratio_and_no_others():
    (record,) = Gradient().measure(DiagonalSubject(Dense()), SETTING).layers
    assert record.own is not None
    assert record.own > 0.0
    assert (record.reparams, record.recommended, record.note) == ((), "", DENSE)


@pytest.mark.parametrize(("copies", "note"), [(None, FIXED), (Dense(group="other"), NO_RECURRENCE)])
def test_a_model_without_movable_recurrences_says_so(copies, note):
    (record,) = Gradient().measure(DiagonalSubject(copies), SETTING).layers
    assert (record.own, record.reparams, record.note) == (None, (), note)


def test_an_audit_with_the_probe_survives_its_report_file(tmp_path):
    subject = DiagonalSubject(DiagonalCopies(Exp(), RATES), named="exp")
    report = memaudit.scan(subject, horizon=32, queries=["impulse"], probes=[Gradient()])
    (record,) = report.gradient
    assert record.cell == "diagonal"
    assert memaudit.Report.load(report.save(tmp_path / "report.json")) == report


def test_the_own_batch_and_loss_take_the_place_of_the_synthetic_ones():
    copies = DiagonalCopies(Exp(), RATES)
    u = torch.ones(2, 7, 1, dtype=torch.float64)
    target = torch.full((2, 7, 1), 3.0, dtype=torch.float64)
    w = copies.weights["w"][None].clone().requires_grad_()
    loss = (copies.respond(u, {"w": w})[0] - target).abs().sum()
    (slope,) = torch.autograd.grad(loss, w)
    exact = float((slope / w).detach().abs().max())
    probe = Gradient(batch=(u, target), loss_fn=lambda y, wanted: (y - wanted).abs().sum())
    (record,) = probe.measure(DiagonalSubject(copies), SETTING).layers
    assert record.own == pytest.approx(exact, rel=1e-12)
    assert record.loss == "the given loss on the given batch"
    (squares,) = Gradient(batch=(u, target)).measure(DiagonalSubject(copies), SETTING).layers
    assert squares.own != pytest.approx(exact)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"loss": "task"}, "given in Python"),
        ({"steps": 1}, "whole number"),
        ({"batch": 3}, "no pair"),
        ({"loss_fn": max}, "nothing to be called with"),
    ],
)
def test_wrong_options_are_refused(options, told):
    with pytest.raises(ArgumentError, match=told):
        Gradient(**options)


@pytest.mark.parametrize(
    ("batch", "loss_fn", "told"),
    [
        ((torch.ones(2, 5, dtype=torch.int64), None), None, "embedding first"),
        ((torch.ones(2, 5, 3), None), None, "floats of shape"),
        ((torch.ones(2, 5, 1), None), None, "not a tensor"),
        ((torch.ones(2, 5, 1), torch.ones(5)), None, "the answers"),
        ((torch.ones(2, 5, 1), None), lambda y, _: y, "one number"),
        ((torch.ones(2, 5, 1), None), lambda y, _: y.detach().sum(), "does not depend"),
    ],
)
def test_a_batch_that_does_not_fit_is_refused(batch, loss_fn, told):
    subject = DiagonalSubject(DiagonalCopies(Exp(), RATES))
    with pytest.raises(ArgumentError, match=told):
        Gradient(batch=batch, loss_fn=loss_fn).measure(subject, SETTING)


def doubles(*values):
    return torch.tensor(values, dtype=torch.float64)


def record_of(copies):
    (record,) = Gradient().measure(DiagonalSubject(copies), SETTING).layers
    return record


def told(record, name):
    return next(one for one in record.reparams if one.name == name)


class Eigenvalues(nn.Module):
    """h' = w h + u, y = c h, whose raw weights are the eigenvalues."""

    memaudit_roles: ClassVar[dict[str, str]] = {"w": "recurrent/diagonal", "c": "readout/vector"}
    parameterization = "direct"

    def __init__(self, w, c):
        super().__init__()
        self.w, self.c = nn.Parameter(doubles(*w)), nn.Parameter(doubles(*c))

    def modes(self):
        return self.w

    def forward(self, u):
        state, answers = torch.zeros(len(u), len(self.w), dtype=u.dtype), []
        for now in u.unbind(1):
            state = state * self.w + now
            answers.append((state * self.c).sum(-1, keepdim=True))
        return torch.stack(answers, 1)


@pytest.mark.parametrize("w", [(0.0, 0.5), (0.0, 0.0)])
def test_one_step_at_the_safe_rate_keeps_the_modes_of_weights_of_zero(w):
    model, draw = Eigenvalues(w, (50.0, 0.01)), torch.Generator().manual_seed(0)
    u, y = torch.randn(2, 3, 40, 1, generator=draw, dtype=torch.float64)
    (slope,) = torch.autograd.grad((model(u) - y).square().mean(), model.w)
    (record,) = Gradient(batch=(u, y)).measure(memaudit.wrap(model, input_size=1), SETTING).layers
    rate = told(record, "direct").learning_rate
    lam = model.w.detach()
    assert float((lam - 0.999 * rate * slope).abs().max()) < 1.0
    assert float((lam - 1.001 * rate * slope).abs().max()) > 1.0


def test_a_weight_of_zero_whose_mode_nothing_drives_out_sets_no_rate():
    def clipped(w):
        return w.clamp(-0.5, 0.5)

    assert learning_rate(clipped, doubles(0.0), doubles(3.0), time="discrete") == math.inf
    rate = learning_rate(clipped, doubles(0.0, 0.4), doubles(3.0, 2.0), time="discrete")
    assert rate == pytest.approx(0.2, rel=1e-12)


def test_the_rate_names_its_weight_and_a_smaller_one_for_all_weights_is_given():
    copies = SharedRates(Exp(), RATES, blocks=True)
    # A step size of e^0.001: moving its raw weight by its own size takes next to nothing.
    copies.weights = {**copies.weights, "log_dt": doubles(-0.001, -1.6)}
    record = record_of(copies)
    assert record.decay == "w"
    assert record.own is not None
    safe = told(record, record.recommended).learning_rate
    assert 1 / record.own < 0.5 * safe
    assert f"Plain gradient descent on w with {record.recommended}" in record.reasoning
    assert f"from a rate of {1 / record.own:.3g} on one of them" in record.reasoning


def test_adamw_comes_first_with_the_smallest_weights_of_both_forms():
    record = record_of(DiagonalCopies(Direct(), RATES))
    assert record.recommended != "direct"
    assert record.reasoning.startswith("AdamW moves every weight by about one learning rate")
    form = next(one for one in forms("continuous") if one.name == record.recommended)
    smallest = float(form.inverse(RATES).abs().min())
    assert f"(0.012 with direct, {smallest:.3g} with {form.name}; w)" in record.reasoning
