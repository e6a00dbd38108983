"""Each assumption holds where it must and fails where it must."""

from __future__ import annotations

import pytest
import torch

import memaudit
from memaudit.interfaces import Setting
from memaudit.memory.probe import Assumptions


def leaky(u: torch.Tensor) -> torch.Tensor:
    state, answers = torch.zeros_like(u[:, 0]), []
    for step in u.unbind(1):
        state = 0.8 * state + step
        answers.append(state)
    return torch.stack(answers, 1)


def ramp(u: torch.Tensor) -> torch.Tensor:
    return torch.arange(1.0, u.shape[1] + 1, dtype=u.dtype)[None, :, None]


MODELS = {
    "leaky": leaky,
    "squared": lambda u: u**2,
    "step": lambda u: (u > 0).to(u.dtype),
    "root": lambda u: u.sign() * u.abs().sqrt(),
    "position": lambda u: u * ramp(u),
    "look-ahead": lambda u: u + u.flip(1).cumsum(1).flip(1),
    "biased": lambda u: leaky(u) + 5.0,
}
BROKEN = {
    "leaky": set(),
    "squared": {"linear", "bounded"},
    "step": {"linear", "continuous", "regular", "bounded"},
    "root": {"linear", "bounded"},
    "position": {"time-homogeneous"},
    "look-ahead": {"causal"},
    "biased": set(),
}


@pytest.mark.parametrize("name", MODELS)
def test_exactly_the_broken_assumptions_fail(name: str) -> None:
    subject = memaudit.wrap(MODELS[name], input_size=2)
    found = Assumptions().measure(subject, Setting())
    failed = {item.name for item in found.items if item.holds is False}
    # A sum over the future also depends on where the sequence ends.
    assert failed - {"time-homogeneous"} == BROKEN[name] - {"time-homogeneous"}
    if name != "look-ahead":
        assert ("time-homogeneous" in failed) == ("time-homogeneous" in BROKEN[name])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rounding_breaks_no_assumption(dtype: torch.dtype) -> None:
    subject = memaudit.wrap(leaky, input_size=3, dtype=dtype)
    assert all(item.holds for item in Assumptions().measure(subject, Setting()).items)


def test_pooled_models_leave_time_open() -> None:
    subject = memaudit.wrap(lambda u: leaky(u)[:, -1], input_size=1, pooled=True)
    found = {item.name: item for item in Assumptions().measure(subject, Setting()).items}
    assert found["causal"].holds is None
    assert found["time-homogeneous"].holds is None
    assert found["linear"].holds


def test_every_assumption_says_what_was_compared() -> None:
    for item in Assumptions().measure(memaudit.wrap(leaky, input_size=1), Setting()).items:
        assert item.note
        assert item.residual is not None
