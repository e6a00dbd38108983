"""A wrapped module that can be stepped by hand is a recurrence."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import memaudit
from memaudit.errors import ArgumentError
from tests.module_laws import check_dynamics


class Leaky(nn.Module):
    """s' = tanh(w s + u): the smallest module of that kind."""

    def __init__(self, dtype: torch.dtype = torch.float64) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([0.9, 0.3], dtype=dtype))
        self.dropout = nn.Dropout(0.5)

    def initial_state(self) -> torch.Tensor:
        return torch.zeros(2)

    def step(self, state: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.weight * self.dropout(state) + u.sum(1, keepdim=True))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        state, answers = inputs.new_zeros(len(inputs), 2), []
        for u in inputs.unbind(1):
            state = self.step(state, u)
            answers.append(state)
        return torch.stack(answers, 1)


def only(module: nn.Module, width: int = 3):
    (found,) = memaudit.wrap(module, input_size=width).dynamics().values()
    return found


def test_the_recurrence_keeps_the_laws_and_takes_the_name_of_its_class() -> None:
    found = only(Leaky())
    check_dynamics(found)
    assert list(found.blocks) == ["Leaky"]
    block = found.blocks["Leaky"]
    assert (block.start, block.stop, block.cell, block.parameterization) == (
        0,
        2,
        "Leaky",
        "unknown",
    )


def test_an_attribute_names_the_parameterization() -> None:
    found = only(changed(parameterization="exp"))
    assert found.blocks["Other"].parameterization == "exp"


def test_a_module_in_float32_is_stepped_in_float64_by_a_copy() -> None:
    module = Leaky(torch.float32)
    found = only(module)
    assert found.initial().dtype == torch.float64
    after = found.step(torch.ones(1, 2).double(), torch.zeros(1, 3).double())
    assert torch.equal(after, torch.tanh(module.weight.detach().double())[None])
    assert module.weight.dtype == torch.float32


def test_steps_are_done_in_evaluation_mode_and_leave_the_module_as_it_was() -> None:
    module = Leaky().train()
    found = only(module)
    state, u = torch.ones(2, 2).double(), torch.zeros(2, 3).double()
    assert torch.equal(found.step(state, u), found.step(state, u))
    assert module.training
    assert module.dropout.training


def without(name: str) -> nn.Module:
    kept = {"step": Leaky.step, "initial_state": Leaky.initial_state, "forward": Leaky.forward}
    del kept[name]
    return type("Other", (nn.Module,), kept)()


def changed(**members) -> nn.Module:
    return type("Other", (Leaky,), members)()


@pytest.mark.parametrize(
    "module",
    [
        without("step"),
        without("initial_state"),
        changed(initial_state=lambda self, batch: torch.zeros(batch, 2)),
        changed(initial_state=lambda self: (torch.zeros(2), torch.zeros(2))),
        changed(initial_state=lambda self: torch.zeros(1, 2)),
        changed(initial_state=lambda self: torch.zeros(2, dtype=torch.int64)),
        changed(step=lambda self, state: state),
        changed(step=3),
    ],
    ids=lambda module: "",
)
def test_methods_of_another_meaning_make_no_recurrence(module: nn.Module) -> None:
    assert memaudit.wrap(module, input_size=3).dynamics() == {}


def test_a_function_is_no_recurrence() -> None:
    assert memaudit.wrap(lambda u: u, input_size=1).dynamics() == {}


@pytest.mark.parametrize(
    ("step", "told"),
    [
        (lambda self, state, u: state[:, :1], r"by \(1, 1\)"),
        (lambda self, state, u: (state, state), "by tuple"),
    ],
)
def test_a_step_that_gives_no_state_is_refused(step, told: str) -> None:
    found = only(changed(step=step))
    with pytest.raises(ArgumentError, match=told):
        found.step(torch.zeros(1, 2).double(), torch.zeros(1, 3).double())
