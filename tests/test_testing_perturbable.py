"""The check of perturbable models finds every broken law."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from memaudit.interfaces import AbstractPerturbable, Role
from memaudit.subjects.callables import CallableSubject, wrap
from tests.module_laws import check_perturbable


class Honest(AbstractPerturbable):
    """y = w u for every copy, written out."""

    def __init__(self, module: nn.Module) -> None:
        self.own = module
        self.weights = {"weight": module.get_parameter("weight").detach()}
        self.roles: Any = {"weight": Role("readout", "matrix")}

    def respond(self, inputs: Tensor, moved: Mapping[str, Tensor]) -> Tensor:
        weight = moved.get("weight", self.weights["weight"][None])
        return torch.einsum("kmd,btd->kbtm", weight, inputs)


class Mixing(Honest):
    def respond(self, inputs: Tensor, moved: Mapping[str, Tensor]) -> Tensor:
        return (
            super()
            .respond(inputs, moved)
            .mean(0, keepdim=True)
            .expand(len(moved.get("weight", inputs[:1])), *inputs.shape)
        )


class Deaf(Honest):
    def respond(self, inputs: Tensor, moved: Mapping[str, Tensor]) -> Tensor:
        still = {name: self.weights[name].expand(value.shape) for name, value in moved.items()}
        return super().respond(inputs, still)


class Cut(Honest):
    def respond(self, inputs: Tensor, moved: Mapping[str, Tensor]) -> Tensor:
        weight = moved.get("weight", self.weights["weight"][None])
        return super().respond(inputs, {"weight": weight.detach() + 0.0 * weight})


class Writing(Honest):
    def respond(self, inputs: Tensor, moved: Mapping[str, Tensor]) -> Tensor:
        answer = super().respond(inputs, moved)
        self.weights["weight"].add_(1e-15)
        return answer


class Nameless(Honest):
    def __init__(self, module: nn.Module) -> None:
        super().__init__(module)
        self.roles = {"weight": Role("memory", "matrix")}


class Wrong(Honest):
    def modes(self, moved: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        return {"layer": torch.ones(2)}


def subject_with(kind: type[Honest]) -> Any:
    layer = nn.Linear(2, 2, bias=False, dtype=torch.float64)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[1.0, 0.5], [-0.25, 2.0]]))
    subject: Any = wrap(layer, input_size=2)
    assert isinstance(subject, CallableSubject)

    class Given(CallableSubject):
        def perturbable(self) -> AbstractPerturbable:
            return kind(layer if self.function is layer else self.function)  # type: ignore[arg-type]

    subject.__class__ = Given
    return subject


def test_an_honest_one_passes() -> None:
    check_perturbable(subject_with(Honest))


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        (Mixing, "copy 0, moved in weight, is off"),
        (Deaf, "copy 0, moved in weight, is off"),
        (Cut, "the gradient says"),
        (Writing, "are not what they were"),
        (Nameless, "which is not known"),
        (Wrong, "the modes of layer"),
    ],
)
def test_every_broken_law_is_told(kind: type[Honest], sentence: str) -> None:
    with pytest.raises(AssertionError, match=sentence):
        check_perturbable(subject_with(kind))


def test_a_subject_without_one_is_told() -> None:
    with pytest.raises(AssertionError, match="nothing can be moved"):
        check_perturbable(wrap(lambda u: u, input_size=1))
