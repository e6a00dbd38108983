"""One weight behind a form: nothing moves, state dicts stay plain, and it comes back."""

from __future__ import annotations

import copy

import pytest
import torch

from memaudit.numerics.signals import seeded
from memaudit.reparams import Best, Exp, Softplus, forms
from memaudit.retrofitting.weights import eigen_form, swap, unswap, weight_of
from tests.retrofitting.models import Rates, rates, recurrent, whole

#: The form alone, without what it began with, over the largest number of the weight.
ROUNDING = {torch.float32: 1e-6, torch.float64: 1e-13}


def fitting(lam: torch.Tensor, time: str):
    fitted = [form.fitted(lam) for form in forms(time)]
    return [form for form in fitted if form.name != "exp" and bool(form.contains(lam).all())]


def raw_of(owner: torch.nn.Module, name: str) -> tuple[torch.Tensor, ...]:
    return tuple(owner.get_submodule(f"parametrizations.{name}").parameters())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_diagonal_weight_is_bit_equal_in_every_form(dtype):
    lam = -Rates(dtype=dtype).A_log.detach().double().exp().flatten()
    tried = fitting(lam, "continuous")
    assert {form.name for form in tried} >= {"softplus", "best", "heavytail", "direct", "relu"}
    for form in tried:
        model = Rates(dtype=dtype)
        before = model.A_log.detach().clone()
        weight = swap(rates(model), form)
        assert torch.equal(model.A_log, before)
        made = weight.made(*raw_of(model, "A_log")).detach()
        assert float((made - before).abs().max() / before.abs().max()) <= ROUNDING[dtype]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_dense_weight_is_bit_equal_in_every_form(dtype):
    sizes = eigen_form(recurrent(dtype=dtype).weight_hh_l0).sizes
    tried = [*fitting(sizes, "discrete"), Exp("discrete")]
    assert {form.name for form in tried} >= {"exp", "softplus", "best", "tanh", "direct"}
    for form in tried:
        model = recurrent(dtype=dtype)
        before = model.weight_hh_l0.detach().clone()
        weight = swap(whole(model), form)
        assert torch.equal(model.weight_hh_l0, before)
        made = weight.made(*raw_of(model, "weight_hh_l0")).detach()
        assert float((made - before).abs().max() / before.abs().max()) <= ROUNDING[dtype]


def test_the_modes_of_a_dense_weight_are_those_of_its_raw_sizes():
    model = recurrent(dtype=torch.float64)
    swap(whole(model), Exp("discrete"))
    sizes, _, turn, _ = raw_of(model, "weight_hh_l0")
    with torch.no_grad():
        sizes.add_(0.3)
        turn.copy_(torch.randn(turn.shape, generator=seeded(1), dtype=turn.dtype))
    found = torch.linalg.eigvals(model.weight_hh_l0.detach()).abs().sort().values
    pairs = len(sizes) - len(weight_of(model, "weight_hh_l0").signs)
    wanted = torch.cat([torch.exp(-torch.exp(sizes)), torch.exp(-torch.exp(sizes[-pairs:]))])
    torch.testing.assert_close(found, wanted.detach().sort().values, rtol=1e-12, atol=0)


def test_moved_entries_follow_the_form_and_the_others_stay():
    model = Rates(dtype=torch.float64)
    before = model.A_log.detach().clone()
    swap(rates(model), Softplus())
    (raw,) = raw_of(model, "A_log")
    with torch.no_grad():
        raw[0, 0] += 1.0
    wanted = torch.log1p(raw.detach()[0, 0].exp()).log()
    torch.testing.assert_close(model.A_log.detach()[0, 0], wanted, rtol=1e-14, atol=0)
    assert torch.equal(model.A_log.flatten()[1:], before.flatten()[1:])


def test_gradients_are_those_of_the_form_from_the_start():
    model, x = Rates(dtype=torch.float64), torch.ones(4, 3, dtype=torch.float64)
    model(x).sum().backward()
    assert model.A_log.grad is not None
    stored, slope = model.A_log.detach().clone(), model.A_log.grad.clone()
    swap(rates(model), Softplus())
    (raw,) = raw_of(model, "A_log")
    model(x).sum().backward()
    # dA_log/dw of log(softplus(w)) is sigmoid(w) / softplus(w).
    wanted = slope * torch.sigmoid(raw.detach()) / stored.exp()
    torch.testing.assert_close(raw.grad, wanted, rtol=1e-12, atol=0)


def test_the_state_dict_is_that_of_the_plain_model():
    plain, model = Rates(), Rates()
    swap(rates(model), Best())
    state = model.state_dict()
    assert set(state) == set(plain.state_dict())
    assert all(torch.equal(state[name], value) for name, value in plain.state_dict().items())
    assert not state["A_log"].requires_grad
    plain.load_state_dict(state, strict=True)


def test_plain_weights_are_taken_as_raw_ones():
    model, other = Rates(), Rates(seed=5)
    swap(rates(model), Softplus())
    missing = model.load_state_dict(other.state_dict(), strict=True)
    assert (missing.missing_keys, missing.unexpected_keys) == ([], [])
    assert torch.equal(model.A_log, other.A_log)


def test_loading_its_own_state_keeps_the_digits_of_the_raw_weight():
    model = Rates()
    swap(rates(model), Best())
    (raw,) = raw_of(model, "A_log")
    with torch.no_grad():
        raw.mul_(1.1)
    kept = raw.detach().clone()
    model.load_state_dict(model.state_dict())
    assert torch.equal(raw, kept)


def test_a_copy_is_independent():
    model = recurrent()
    swap(whole(model), Exp("discrete"))
    twin = copy.deepcopy(model)
    with torch.no_grad():
        raw_of(twin, "weight_hh_l0")[0].add_(0.5)
    assert not torch.equal(twin.weight_hh_l0, model.weight_hh_l0)
    assert weight_of(twin, "weight_hh_l0") is not weight_of(model, "weight_hh_l0")


def test_a_half_precision_weight_has_single_precision_raw_weights():
    model = Rates(dtype=torch.bfloat16)
    before = model.A_log.detach().clone()
    swap(rates(model), Softplus())
    (raw,) = raw_of(model, "A_log")
    assert raw.dtype == torch.float32
    assert model.A_log.dtype == torch.bfloat16
    assert torch.equal(model.A_log, before)


@pytest.mark.parametrize("trained", [True, False])
def test_what_is_put_back_is_a_parameter_in_its_old_place(trained):
    model, plain = Rates(), Rates()
    model.requires_grad_(trained)
    swap(rates(model), Best())
    unswap(model, "A_log")
    assert type(model) is Rates
    assert list(model.state_dict()) == list(plain.state_dict())
    assert [n for n, _ in model.named_parameters()] == [n for n, _ in plain.named_parameters()]
    assert model.A_log.requires_grad is trained
    assert torch.equal(model.A_log, plain.A_log)
    assert not model._state_dict_hooks
    assert not model._load_state_dict_pre_hooks


def test_a_recurrent_layer_runs_on_what_was_put_back():
    model, x = recurrent(), torch.randn(2, 5, 3, generator=seeded(2))
    swap(whole(model), Exp("discrete"))
    with torch.no_grad():
        raw_of(model, "weight_hh_l0")[0].add_(0.5)
    answer = model(x)[0].detach()
    unswap(model, "weight_hh_l0")
    assert torch.equal(model(x)[0], answer)
    with torch.no_grad():
        model.weight_hh_l0.zero_()
    assert not torch.equal(model(x)[0], answer)


def test_a_gru_is_taken_with_the_biases_that_come_with_it():
    import memaudit

    model, other = (_gru(seed) for seed in (1, 2))
    memaudit.retrofit(model, "exp", radius=False)
    x = torch.randn(2, 5, 3, generator=seeded(3), dtype=torch.float64)
    model.load_state_dict(other.state_dict())
    assert torch.equal(model(x)[0], other(x)[0])
    with torch.no_grad():
        raw_of(model, "weight_hh_l0")[0].add_(1e-9)
    torch.testing.assert_close(model(x)[0], other(x)[0], rtol=1e-6, atol=1e-8)


def _gru(seed: int) -> torch.nn.GRU:
    model = torch.nn.GRU(3, 5, batch_first=True, dtype=torch.float64)
    with torch.no_grad():
        for weight in model.parameters():
            weight.uniform_(-0.4, 0.4, generator=seeded(seed))
    return model
