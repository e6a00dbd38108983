"""Curves, kinds, rates and exponents of models that are known in closed form."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import torch

import memaudit
from tests.oracles import CASES, STEPS, Case, convolution, recurrence

BY_NAME = {case.name: case for case in CASES}
LINEAR = [case for case in CASES if case.name != "cube"]
#: Where the answers themselves overflow the resolution, the formula is met relative to them.
TOLERANCE = 1e-9


@cache
def audited(name: str) -> memaudit.Report:
    subject = memaudit.wrap(BY_NAME[name].model, input_size=1)
    return memaudit.scan(subject, horizon=512, queries=["heaviside", "impulse", "reversed"])


def expected(case: Case, query: str) -> np.ndarray:
    start = 0 if query == "impulse" else 1
    return np.abs(case.kernel[start : start + 512])


@pytest.mark.parametrize("query", ["heaviside", "impulse", "reversed"])
@pytest.mark.parametrize("case", LINEAR, ids=lambda case: case.name)
def test_curve_equals_the_formula(case: Case, query: str) -> None:
    curve = audited(case.name).memory[query]
    formula = expected(case, query)
    assert curve.lags.tolist() == list(range(512))
    allowed = TOLERANCE * np.maximum(formula, 1.0) + 10 * curve.floor
    assert (np.abs(curve.values - formula) <= allowed).all()


@pytest.mark.parametrize("case", LINEAR, ids=lambda case: case.name)
def test_the_three_queries_agree_on_linear_models(case: Case) -> None:
    memory = audited(case.name).memory
    heaviside, impulse, reverse = (memory[q] for q in ("heaviside", "impulse", "reversed"))
    scale = max(1.0, float(heaviside.values.max()))
    noise = 10 * (heaviside.floor + impulse.floor + reverse.floor)
    assert np.abs(heaviside.values - reverse.values).max() <= TOLERANCE * scale + noise
    assert np.abs(heaviside.values[:-1] - impulse.values[1:]).max() <= TOLERANCE * scale + noise


@pytest.mark.parametrize("query", ["heaviside", "impulse", "reversed"])
def test_the_kind_is_right_for_98_percent(query: str) -> None:
    wrong = {
        case.name: str(audited(case.name).memory[query].decay)
        for case in CASES
        if audited(case.name).memory[query].decay.kind != case.kind
    }
    assert len(wrong) <= 0.02 * len(CASES), wrong


@pytest.mark.parametrize("query", ["heaviside", "impulse", "reversed"])
def test_rates_and_exponents_are_accurate(query: str) -> None:
    errors = {}
    for case in CASES:
        decay = audited(case.name).memory[query].decay
        found = decay.exponent if decay.kind == "polynomial" else decay.rate
        if case.value is not None and decay.kind == case.kind:
            assert found is not None
            errors[case.name] = abs(found / case.value - 1)
    assert np.median(list(errors.values())) <= 0.01
    assert np.quantile(list(errors.values()), 0.95) <= 0.05, errors


def test_sixty_four_mixed_exponentials_are_reported_with_their_window() -> None:
    lam = np.exp(-1 / np.geomspace(1, 1e4, 64))
    model = recurrence(list(lam), list(1 - lam))
    curve = memaudit.scan(memaudit.wrap(model, input_size=1), queries=["heaviside"])
    decay = curve.memory["heaviside"].decay
    assert decay.window is not None
    assert decay.window[1] <= 511
    assert f"lags {decay.window[0]} to {decay.window[1]}" in str(decay)
    assert decay.kind == "polynomial"
    assert [f for f in curve.findings if f.code == "MA111"]


def test_the_supremum_of_a_linear_model_is_the_one_norm_of_its_kernel() -> None:
    """eq. 4 of IATN: sup over |x|_inf <= 1 of |x·rho(t)| is |rho(t)|_1."""
    lam = torch.tensor([0.9, -0.7, 0.97, 0.5], dtype=torch.float64)
    gain = torch.tensor([1.0, -2.0, 0.5, 3.0], dtype=torch.float64)

    def model(u: torch.Tensor) -> torch.Tensor:
        state, answers = torch.zeros_like(u[:, 0]), []
        for step in u.unbind(1):
            state = lam * state + gain * step
            answers.append(state.sum(-1, keepdim=True))
        return torch.stack(answers, 1)

    report = memaudit.scan(memaudit.wrap(model, input_size=4), horizon=256)
    t = np.arange(256)
    norm = sum(
        abs(g) * abs(x) ** (t + 1.0) for g, x in zip(gain.tolist(), lam.tolist(), strict=True)
    )
    for query in ("heaviside", "reversed"):
        assert report.memory[query].exact
        assert np.abs(report.memory[query].values - norm).max() <= TOLERANCE


@pytest.mark.parametrize("rate", [0.6, 0.9, 0.97])
def test_half_life_and_horizon_follow_the_rate(rate: float) -> None:
    curve = audited(f"real {rate}").memory["heaviside"]
    assert curve.half_life == pytest.approx(np.log(2) / -np.log(rate), rel=1e-3)
    assert curve.horizon == int(np.argmax(rate**STEPS < 1e-3))


def test_reversed_costs_a_fixed_multiple_of_the_horizon() -> None:
    """Tokens fed, counted: linear in T, where the definition taken literally is quadratic."""
    fed: dict[int, int] = {}
    for horizon in (128, 256, 512, 1024):
        kernel = 0.5 ** np.arange(64)
        inner = convolution(kernel)
        count = [0]

        def model(u: torch.Tensor, inner=inner, count=count) -> torch.Tensor:
            count[0] += u.shape[0] * u.shape[1]
            return inner(u)

        memaudit.scan(
            memaudit.wrap(model, input_size=1), horizon=horizon, queries=["reversed"], probes=[]
        )
        fed[horizon] = count[0]
    growth = (fed[1024] - fed[512]) / (fed[512] - fed[256])
    assert growth == pytest.approx(2.0, rel=0.01)
