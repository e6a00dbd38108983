"""Modules of one's own, which say what their recurrent weights are, and what makes their modes."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import pytest
import torch
from torch import Tensor, nn

from memaudit.errors import SourceError
from memaudit.interfaces import AbstractReparam, DenseDecay, DiagonalDecay, NoDecay
from memaudit.reparams import Best, Direct, Exp, Softplus, Tanh
from memaudit.retrofitting.finding import own_decays

KNOWN = (
    Direct(time="discrete"),
    Exp(time="discrete"),
    Softplus(time="discrete"),
    Tanh(time="discrete"),
    Best(time="discrete", b=0.5),
)
RATES = (Exp(), Softplus(), Best(b=0.5), Best(b=0.1))


class Modes(nn.Module):
    """h' = f(w) h + u with one number for every mode."""

    memaudit_roles: ClassVar[dict[str, str]] = {"w": "recurrent/diagonal"}

    def __init__(self, w: Tensor, f: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.w, self.f = nn.Parameter(w), f

    def modes(self) -> Tensor:
        return self.f(self.w)


class Matrix(nn.Module):
    """h' = W h + u, or W with something done to it."""

    memaudit_roles: ClassVar[dict[str, str]] = {"W": "recurrent", "B": "input"}

    def __init__(self, f: Callable[[Tensor], Tensor] = lambda weight: weight, n: int = 4) -> None:
        super().__init__()
        weight = torch.randn(n, n, generator=torch.Generator().manual_seed(2)) / 3
        self.W, self.B, self.f = nn.Parameter(weight), nn.Parameter(torch.ones(n, 2)), f

    def modes(self) -> Tensor:
        return torch.linalg.eigvals(self.f(self.W))


def raw(*shape: int) -> Tensor:
    """Different raw weights that every form turns into stable modes."""
    count = int(torch.Size(shape or (5,)).numel())
    return torch.linspace(0.15, 0.9, count, dtype=torch.float64).reshape(shape or (5,))


@pytest.mark.parametrize("form", KNOWN, ids=lambda form: form.name)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_the_form_of_a_discrete_mode_is_found(form: AbstractReparam, dtype: torch.dtype) -> None:
    module = Modes(raw().to(dtype), form.forward)
    (decay,) = own_decays(module)
    assert isinstance(decay, DiagonalDecay)
    assert (decay.owner, decay.name, decay.part) == (module, "w", "all")
    assert decay.law == form
    assert (decay.layer, decay.cell) == ("Modes", "Modes")


@pytest.mark.parametrize("form", RATES, ids=lambda form: f"{form.name} {form}")
def test_the_form_of_a_rate_is_found_behind_any_step(form: AbstractReparam) -> None:
    steps = torch.tensor([0.1, 0.3, 0.2, 0.05, 0.4], dtype=torch.float64)
    (decay,) = own_decays(Modes(raw(), lambda w: (steps * form.forward(w)).exp()))
    assert isinstance(decay, DiagonalDecay)
    assert decay.law == form


def test_of_complex_rates_the_real_part_decays() -> None:
    weight = torch.complex(-raw(), 3 * raw())
    (decay,) = own_decays(Modes(weight, lambda w: (0.2 * w).exp()))
    assert isinstance(decay, DiagonalDecay)
    assert decay.part == "real"
    assert decay.law == Direct()


def test_what_the_layer_calls_its_form_comes_first() -> None:
    module = Modes(-raw(), lambda w: w.clamp(max=-1e-4).exp())
    module.parameterization = "clip"  # type: ignore[assignment]
    (decay,) = own_decays(module)
    assert isinstance(decay, DiagonalDecay)
    assert decay.law.name == "clip"


def test_a_form_that_nobody_knows_is_refused_by_the_name_of_its_weight() -> None:
    (decay,) = own_decays(nn.Sequential(Modes(raw(), lambda w: 1 / (1 + w**4))))
    assert isinstance(decay, NoDecay)
    assert decay.layer == "0"
    assert "0.w by a form that is none of the reparameterizations" in decay.reason


def test_a_matrix_with_the_modes_as_eigenvalues_is_dense() -> None:
    outer = nn.Sequential(nn.Linear(2, 2), Matrix())
    (decay,) = own_decays(outer)
    assert isinstance(decay, DenseDecay)
    assert (decay.layer, decay.owner, decay.name) == ("1", outer[1], "W")
    stored = outer[1].W.detach()  # type: ignore[union-attr]
    matrix, rest = decay.matrix(decay.owner, stored), decay.rest(stored)
    assert torch.equal(matrix, stored)
    assert not rest.numel()
    assert torch.equal(decay.joined(decay.owner, matrix, rest), stored)


@pytest.mark.parametrize("f", [torch.matrix_exp, lambda weight: weight / 2])
def test_a_matrix_whose_eigenvalues_are_not_the_modes_is_refused(
    f: Callable[[Tensor], Tensor],
) -> None:
    (decay,) = own_decays(Matrix(f))
    assert isinstance(decay, NoDecay)
    assert "the modes as eigenvalues" in decay.reason


def test_a_recurrent_weight_without_modes_is_refused() -> None:
    class Silent(nn.Module):
        memaudit_roles: ClassVar[dict[str, str]] = {"w": "recurrent"}

        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(raw())

    (decay,) = own_decays(Silent())
    assert decay == NoDecay(decay.reason, "Silent", "Silent")  # type: ignore[union-attr]
    assert "has no method modes()" in decay.reason  # type: ignore[union-attr]


def test_modes_without_a_recurrent_weight_are_refused() -> None:
    class Untold(Modes):
        memaudit_roles: ClassVar[dict[str, str]] = {}

    (decay,) = own_decays(Untold(raw(), torch.tanh))
    assert isinstance(decay, NoDecay)
    assert "memaudit_roles" in decay.reason


def test_a_role_that_is_none_is_an_error() -> None:
    class Wrong(Modes):
        memaudit_roles: ClassVar[dict[str, str]] = {"w": "recurrent/round"}

    with pytest.raises(SourceError, match="no role"):
        list(own_decays(Wrong(raw(), torch.tanh)))
