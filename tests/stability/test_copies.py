"""Wrapped modules with their weights as an argument."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import memaudit
from memaudit.errors import ArgumentError, SourceError
from memaudit.interfaces import AbstractPerturbable, Role
from memaudit.subjects.copies import Copies
from tests.module_laws import check_perturbable


class Diagonal(nn.Module):
    """h_t = a h_{t-1} + b u_t, read by a linear layer."""

    memaudit_roles = {"a": "recurrent", "b": "input"}  # noqa: RUF012 (as a user writes it)

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Parameter(torch.tensor([0.5, 0.9], dtype=torch.float64))
        self.b = nn.Parameter(torch.tensor([[1.0, 0.0], [1.0, 2.0]], dtype=torch.float64))
        self.out = nn.Linear(2, 1, dtype=torch.float64)
        with torch.no_grad():
            self.out.weight.fill_(1.0)
            self.out.bias.fill_(0.25)

    def modes(self) -> Tensor:
        return self.a

    def forward(self, u: Tensor) -> Tensor:
        state = u.new_zeros(len(u), 2)
        states = []
        for now in u.unbind(1):
            state = self.a * state + now @ self.b.mT
            states.append(state)
        return self.out(torch.stack(states, dim=1))


class Fused(nn.Module):
    def __init__(self, kind: Any, dtype: torch.dtype) -> None:
        super().__init__()
        self.rnn = kind(3, 4, batch_first=True)
        self.head = nn.Linear(4, 2)
        generator = torch.Generator().manual_seed(0)
        with torch.no_grad():
            for weight in self.parameters():
                weight.uniform_(-0.5, 0.5, generator=generator)
        self.to(dtype)

    def forward(self, u: Tensor) -> Tensor:
        return self.head(self.rnn(u)[0])


class Counting(nn.Module):
    """Writes into a buffer and onto itself at every call, and branches on a number."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.tensor([2.0], dtype=torch.float64))
        self.register_buffer("calls", torch.zeros(()))
        self.last: Any = None

    def forward(self, u: Tensor) -> Tensor:
        self.get_buffer("calls").add_(1)
        self.last = u
        return self.w * u if float(self.w.detach()) > 0 else u


def perturbable(module: nn.Module, size: int) -> AbstractPerturbable:
    found = memaudit.wrap(module, input_size=size).perturbable()
    assert found is not None
    return found


def test_a_diagonal_module_obeys_the_laws() -> None:
    check_perturbable(memaudit.wrap(Diagonal(), input_size=2))


@pytest.mark.parametrize("kind", [nn.RNN, nn.GRU, nn.LSTM])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_fused_kernels_obey_the_laws_one_after_the_other(kind: Any, dtype: torch.dtype) -> None:
    subject = memaudit.wrap(Fused(kind, dtype), input_size=3)
    check_perturbable(subject)
    model: Any = subject.perturbable()
    moved = {name: torch.stack([w, w]) for name, w in model.weights.items()}
    model.respond(torch.ones(1, 3, 3), moved)
    assert model.execution == "one after the other"


def test_a_pooled_module_obeys_the_laws() -> None:
    class Last(Diagonal):
        def forward(self, u: Tensor) -> Tensor:
            return super().forward(u)[:, -1]

    check_perturbable(memaudit.wrap(Last(), input_size=2, pooled=True))


def test_the_answer_to_an_impulse_has_the_moved_power() -> None:
    model = perturbable(Diagonal(), 2)
    u = torch.zeros(1, 6, 2, dtype=torch.float64)
    u[0, 0, 0] = 1.0
    a = torch.tensor([[0.5, 0.9], [0.7, 0.3], [1.1, 0.0]], dtype=torch.float64)
    answers = model.respond(u, {"a": a})[:, 0, :, 0]
    lags = torch.arange(6)
    wanted = (a[:, None, :] ** lags[:, None]).sum(2) + 0.25
    torch.testing.assert_close(answers, wanted, rtol=1e-14, atol=0)


def test_roles_come_from_the_module_its_cells_and_its_last_linear_layer() -> None:
    own = perturbable(Diagonal(), 2).roles
    assert {name: (role.group, role.form) for name, role in own.items()} == {
        "a": ("recurrent", "diagonal"),
        "b": ("input", "matrix"),
        "out.weight": ("readout", "matrix"),
        "out.bias": ("readout", "vector"),
    }
    fused = perturbable(Fused(nn.LSTM, torch.float64), 3).roles
    assert fused["rnn.weight_hh_l0"].group == "recurrent"
    assert fused["rnn.weight_ih_l0"].group == fused["rnn.bias_hh_l0"].group == "input"
    assert fused["rnn.weight_hh_l0"].layer == "rnn"
    assert fused["head.weight"].group == "readout"


def test_a_form_may_be_stated_and_nonsense_is_refused() -> None:
    module = Diagonal()
    module.memaudit_roles = {"b": "recurrent/diagonal"}  # type: ignore[misc]
    assert perturbable(module, 2).roles["b"].form == "diagonal"
    for wrong in ({"b": "memory"}, {"b": "input/thing"}, {"nothing": "input"}):
        module.memaudit_roles = wrong  # type: ignore[misc]
        with pytest.raises(SourceError, match="memaudit_roles of Diagonal"):
            memaudit.wrap(module, input_size=2).perturbable()


def test_given_modes_are_the_spectrum_and_follow_the_weights() -> None:
    subject = memaudit.wrap(Diagonal(), input_size=2)
    (spectrum,) = subject.spectra()
    assert sorted(abs(spectrum.eigenvalues)) == [0.5, 0.9]
    model = subject.perturbable()
    assert model is not None
    a = torch.tensor([[0.1, 0.2], [1.5, -0.5]], dtype=torch.float64)
    assert torch.equal(model.modes({"a": a})["Diagonal"], a.to(torch.complex128))


def test_modes_by_layer_keep_the_names_of_the_layers() -> None:
    class Two(Diagonal):
        def modes(self) -> Any:
            return {"slow": self.a[1:], "fast": self.a[:1]}

    model = perturbable(Two(), 2)
    assert {layer: values.tolist() for layer, values in model.modes({}).items()} == {
        "slow": [[0.9 + 0j]],
        "fast": [[0.5 + 0j]],
    }


def test_single_precision_modes_are_given_in_double_precision() -> None:
    model = memaudit.wrap(Diagonal(), input_size=2, dtype="float32").perturbable()
    assert model is not None
    near = torch.tensor([[0.5, 1.0 - 1e-12]], dtype=torch.float64)
    found = model.modes({"a": near})["Diagonal"].abs()
    assert float(found.max()) < 1.0


def test_a_module_that_writes_and_branches_is_left_as_it_was() -> None:
    module = Counting().train()
    model: Any = perturbable(module, 1)
    u = torch.ones(1, 2, 1, dtype=torch.float64)
    answers = model.respond(u, {"w": torch.tensor([[3.0], [-1.0]], dtype=torch.float64)})
    assert answers[:, 0, 0, 0].tolist() == [3.0, 1.0]
    assert model.execution == "one after the other"
    assert module.training
    assert module.last is None
    assert float(module.get_buffer("calls")) == 0.0
    assert float(module.w.detach()) == 2.0


def test_gradients_reach_the_moved_weights_and_no_others() -> None:
    module = Diagonal()
    model = perturbable(module, 2)
    a = module.a.detach().expand(2, -1).clone().requires_grad_()
    model.respond(torch.ones(1, 4, 2, dtype=torch.float64), {"a": a}).sum().backward()
    assert a.grad is not None
    assert bool((a.grad != 0).all())
    assert all(weight.grad is None for weight in module.parameters())


def test_the_random_state_stays_where_it_was() -> None:
    class Noisy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(torch.ones(1, dtype=torch.float64))

        def forward(self, u: Tensor) -> Tensor:
            return self.w * u + 0.0 * torch.rand(u.shape)

    model: Any = perturbable(Noisy(), 1)
    before = torch.get_rng_state()
    moved = {"w": torch.ones(2, 1, dtype=torch.float64)}
    model.respond(torch.ones(1, 2, 1, dtype=torch.float64), moved)
    assert torch.equal(torch.get_rng_state(), before)
    assert model.execution == "one after the other"


def test_batches_that_mix_their_copies_are_not_trusted() -> None:
    module = nn.Linear(1, 1, bias=False, dtype=torch.float64)
    seen: list[int] = []

    def call(layer: nn.Module, u: Tensor) -> Tensor:
        seen.append(1)
        # The third call is the batch of the trial: it answers something else.
        return layer(u) + (1.0 if len(seen) == 3 else 0.0)

    copies = Copies(module, {"weight": Role("other", "matrix")}, call=call)
    weight = torch.tensor([[[1.0]], [[2.0]]], dtype=torch.float64)
    answers = copies.respond(torch.ones(1, 1, 1, dtype=torch.float64), {"weight": weight})
    assert answers.flatten().tolist() == [1.0, 2.0]
    assert copies.execution == "one after the other"


def test_a_weight_with_two_names_is_moved_in_both_places() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(2, 2, bias=False, dtype=torch.float64)
            self.second = nn.Linear(2, 2, bias=False, dtype=torch.float64)
            self.second.weight = self.first.weight

        def forward(self, u: Tensor) -> Tensor:
            return self.second(self.first(u))

    model = perturbable(Tied(), 2)
    assert list(model.weights) == ["first.weight"]
    twice = torch.eye(2, dtype=torch.float64) * torch.tensor([2.0, 3.0])[:, None, None]
    u = torch.ones(1, 1, 2, dtype=torch.float64)
    assert model.respond(u, {"first.weight": twice})[:, 0, 0, 0].tolist() == [4.0, 9.0]


def test_moves_of_the_wrong_shape_are_refused() -> None:
    model = perturbable(Diagonal(), 2)
    u = torch.ones(1, 1, 2, dtype=torch.float64)
    for moved in (
        {"a": torch.zeros(3)},
        {"c": torch.zeros(1, 2)},
        {"a": torch.zeros(0, 2)},
        {"a": torch.zeros(2, 2), "b": torch.zeros(3, 2, 2)},
    ):
        with pytest.raises(ArgumentError):
            model.respond(u, moved)


def test_a_function_has_no_weights_to_move() -> None:
    assert memaudit.wrap(lambda u: u, input_size=1).perturbable() is None
    assert memaudit.wrap(nn.Identity(), input_size=1).perturbable() is None


def test_more_copies_than_one_batch_holds_keep_their_order_and_gradients() -> None:
    model: Any = perturbable(Diagonal(), 2)
    a = torch.linspace(0.1, 0.9, 300, dtype=torch.float64)[:, None].expand(300, 2).clone()
    u = torch.zeros(1, 2, 2, dtype=torch.float64)
    u[0, 0, 0] = 1.0
    answers = model.respond(u, {"a": a.requires_grad_()})[:, 0, 1, 0]
    assert model.execution == "vmap"
    torch.testing.assert_close(answers, 2 * a[:, 0] + 0.25, rtol=1e-14, atol=0)
    answers.sum().backward()
    assert a.grad is not None
    assert torch.equal(a.grad, torch.ones_like(a))
