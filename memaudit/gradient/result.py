"""How large gradients are beside the weights they move, for every reparameterization."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Self

from memaudit.records import Record, Unbounded
from memaudit.report import Result


@dataclass(frozen=True, slots=True, eq=False)
class ReparamGradient(Record):
    """One reparameterization at the eigenvalues that a layer has.

    `largest` and `median` are of |dLoss/dw| / |w| over the modes that it can reach; `bound` is the
    largest |f'| / f² (discrete: |f'| / (1 - f)²), the gradient scale of StableSSM, Theorem 3.4.
    `unreachable` modes lie outside of its range. `learning_rate` is the largest step of plain
    gradient descent that keeps every mode stable and moves no raw weight by more than its own size.
    `barred` says why it is never recommended: "unstable", "flat" (no gradient beyond a limit),
    "reach" (modes outside of its range) or "zero weight"; "" for a candidate.
    """

    name: str
    time: str
    stable: bool
    largest: Unbounded
    median: Unbounded
    bound: Unbounded
    unreachable: int
    learning_rate: Unbounded
    barred: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Gradient(Record):
    """The gradients of one recurrent layer; `current` names the parameterization that it has.

    `weights` are its raw recurrent weights, `own` the largest |dLoss/dw| / |w| among them as they
    are stored. `recommended` is the reparameterization with the smallest largest ratio among the
    stable ones that reach every mode, "" when there is none; `reasoning` says how it was chosen.
    `decay` is the one of `weights` that `reparams` are about: it makes the sizes of the modes.
    """

    layer: str
    cell: str
    current: str
    weights: tuple[str, ...]
    loss: str
    own: float | None
    reparams: tuple[ReparamGradient, ...]
    recommended: str
    reasoning: str
    note: str = ""
    where: str = ""
    decay: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class GradientResult(Result):
    """The gradients of every recurrent layer."""

    attribute: ClassVar[str] = "layers"
    absent: ClassVar[tuple[Gradient, ...]] = ()

    layers: tuple[Gradient, ...]

    @classmethod
    def joined(cls, parts: Mapping[str, Self]) -> Self:
        return cls(
            tuple(replace(item, where=part) for part, own in parts.items() for item in own.layers)
        )
