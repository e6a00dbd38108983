"""Targets by name against closed forms, and numbers that fit none."""

from __future__ import annotations

import math

import pytest
import torch

from memaudit import registry
from memaudit.errors import ArgumentError
from memaudit.targets import target
from memaudit.testing import check_target

T = torch.arange(50, dtype=torch.float64)


def to_impulse(name):
    impulse = torch.zeros(1, 50, 1)
    impulse[0, 0] = 1
    return target(name).answer(impulse)[0, :, 0]


@pytest.mark.parametrize(
    ("name", "kernel"),
    [
        ("poly:1.1", (T + 1) ** -1.1),
        ("poly:1.5,0.1", 0.1 * (0.1 * T + 1) ** -1.5),
        ("shift:10", (T == 10).double()),
        ("shift:0", (T == 0).double()),
    ],
)
def test_the_answer_to_an_impulse_is_the_kernel(name, kernel):
    torch.testing.assert_close(to_impulse(name), kernel, rtol=0, atol=1e-15)


def test_airy_solves_its_equation():
    """Ai'' = z Ai, by differences of fourth order at the step 0.05."""
    h, delay = 0.05, 20.0
    rho = target(f"airy:{delay:g},{h}").kernel(50)
    second = (-rho[4:] + 16 * rho[3:-1] - 30 * rho[2:-2] + 16 * rho[1:-3] - rho[:-4]) / (12 * h**2)
    torch.testing.assert_close(second, (h * (T - delay))[2:-2] * rho[2:-2], rtol=0, atol=1e-6)
    assert float(rho[20]) == pytest.approx(3 ** (-2 / 3) / math.gamma(2 / 3), rel=1e-12)


def test_volterra_is_its_double_sum():
    draw = torch.Generator().manual_seed(0)
    u = torch.randn(1, 12, 1, generator=draw, dtype=torch.float64)
    wanted = torch.zeros(12, dtype=torch.float64)
    for t in range(12):
        back = u[0, : t + 1, 0].flip(0)
        lags = torch.arange(t + 1, dtype=torch.float64)
        wanted[t] = (0.9**lags * back).sum()
        second = 0.8 ** (lags[:, None] + lags)
        wanted[t] += 2.0 * (second * back[:, None] * back).sum()
    answer = target("volterra:0.9,0.8,2").answer(u)[0, :, 0]
    torch.testing.assert_close(answer, wanted, rtol=0, atol=1e-12)


def test_lotka_volterra_keeps_its_invariant_in_small_steps():
    """Without input d z1 - c log z1 + b z2 - a log z2 stays as it was, to the order of the step."""
    drift = []
    for step in (0.01, 0.005):
        z = target(f"lotka-volterra:{step}").answer(torch.zeros(1, int(5 / step), 1))[0]
        kept = 0.3 * z[:, 0] - z[:, 0].log() + 0.6 * z[:, 1] - z[:, 1].log()
        drift.append(float((kept[-1] - kept[0]).abs()))
    assert drift[1] == pytest.approx(drift[0] / 2, rel=0.1)


@pytest.mark.parametrize(
    "text", ["exp:1.1", "exp:-1", "exp:x", "exp:0.9,2", "poly:-1", "poly:0", "poly:101",
             "shift:1.5", "shift:-1", "shift:1e300", "airy:nan", "volterra:2", "lotka-volterra:0"]
)  # fmt: skip
def test_a_number_that_fits_no_target_is_refused(text):
    with pytest.raises(ArgumentError, match="has no number that fits"):
        target(text)


def test_an_unknown_name_gets_its_neighbours():
    with pytest.raises(ArgumentError, match="unknown target 'polly'") as caught:
        target("polly:1")
    assert "poly" in caught.value.hint


class Ahead:
    """What each law is there to catch."""

    breaks = (
        ("causal", lambda u: u.flip(1), "changes answers that were given before"),
        ("rows", lambda u: u - u.mean(0), "depends on the other rows"),
        ("shape", lambda u: u[:, 0], "it answers"),
        ("dtype", lambda u: u.float(), "not in float64"),
        ("linear", lambda u: u.abs(), "linear, and is not"),
    )


@pytest.mark.parametrize(("_", "function", "sentence"), Ahead.breaks, ids=lambda v: str(v)[:8])
def test_a_broken_law_is_found(_, function, sentence):
    from dataclasses import dataclass

    from memaudit.interfaces import AbstractTarget

    @dataclass(frozen=True, slots=True)
    class Broken(AbstractTarget):
        name = "exp"
        summary = "broken"
        linear = True

        def answer(self, inputs):
            return function(inputs)

    with pytest.raises(AssertionError, match=sentence):
        check_target(Broken())


@pytest.mark.parametrize("name", registry.available("targets"))
def test_the_target_keeps_the_laws(name):
    target = registry.build("targets", name)
    assert target.name == name
    check_target(target)
