"""The check for recurrences passes honest ones and finds what is wrong with others."""

from __future__ import annotations

import pytest
import torch

from memaudit.interfaces import StateBlock
from tests.module_laws import check_dynamics
from tests.recurrences import Map, linear, number, rotation, stack_of_two, tanh_network

PAIR = torch.zeros(2, dtype=torch.float64)


@pytest.mark.parametrize(
    "dynamics",
    [
        linear(rotation(0.9, 0.3)),
        tanh_network(5, 1.2),
        stack_of_two(0.5 * torch.eye(3).double(), 0.7 * torch.eye(3).double()),
        Map(lambda s, u: torch.tanh(0.9 * s + u), torch.zeros(2)),
        Map(lambda s, u: torch.relu(0.9 * s + u), PAIR),
    ],
)
def test_an_honest_recurrence_passes(dynamics: Map) -> None:
    check_dynamics(dynamics)


def scribbling(s: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
    if not torch.is_grad_enabled():
        s += 1
    return 0.5 * s + u


def silent(s: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
    return 0.5 * s.detach() + u


def wrong(s: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
    """Half of the state passes where gradients do not see it."""
    return 0.5 * s + 0.5 * s.detach().sin() + u


def mixing(s: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
    return 0.5 * s - 0.1 * s.mean(0) + u


def blocks(*cuts: tuple[int, int]) -> dict[str, StateBlock]:
    return {f"layer {n}": StateBlock(*cut, "cell") for n, cut in enumerate(cuts)}


BAD = [
    (Map(scribbling, PAIR.clone()), "step changes what it is given"),
    (Map(silent, PAIR), "step cannot be differentiated"),
    (Map(wrong, PAIR), "gradients and differences of the step are apart"),
    (Map(mixing, PAIR), "a row alone and in a batch differ"),
    (Map(lambda s, u: s[:, :1], PAIR), r"step answers \(3, 2\) by \(3, 1\)"),
    (Map(lambda s, u: s.float(), PAIR), "by .* torch.float32"),
    (Map(lambda s, u: 0.5 * s, PAIR[None]), r"the first state has the shape \(1, 2\)"),
    (Map(lambda s, u: s, PAIR * float("nan")), "the first state is not finite"),
    (Map(lambda s, u: s, torch.zeros(2, dtype=torch.int64)), "the first state is of torch.int64"),
    (Map(lambda s, u: s, PAIR, width=0), "width is 0"),
    (Map(lambda s, u: s, PAIR, blocks=blocks((0, 1))), "without gaps"),
    (Map(lambda s, u: s, PAIR, blocks=blocks((0, 1), (0, 2))), "without gaps"),
    (Map(lambda s, u: s, PAIR, blocks=blocks((0, 0), (0, 2))), "a block is empty"),
    (
        Map(lambda s, u: s.flip(1), PAIR, blocks=blocks((0, 1), (1, 2))),
        "layer 0 depends on the old state of a block behind it",
    ),
]


@pytest.mark.parametrize(("dynamics", "told"), BAD, ids=lambda value: value if value is str else "")
def test_what_is_wrong_is_said(dynamics: Map, told: str) -> None:
    with pytest.raises(AssertionError, match=told):
        check_dynamics(dynamics)


def test_random_numbers_inside_a_step_are_found() -> None:
    generator = torch.Generator().manual_seed(0)

    def noisy(s: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
        return 0.5 * s + 1e-16 * torch.rand(1, generator=generator, dtype=s.dtype) + u

    with pytest.raises(AssertionError, match="differ"):
        check_dynamics(Map(noisy, number(0.0)))


def test_something_else_is_no_recurrence() -> None:
    with pytest.raises(AssertionError, match="no AbstractDynamics"):
        check_dynamics(object())  # type: ignore[arg-type]
