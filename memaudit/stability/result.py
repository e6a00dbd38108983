"""How much the answers of a model change when its weights move."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from memaudit.records import Record, Unbounded, UnboundedFloats
from memaudit.report import Result


@dataclass(frozen=True, slots=True, eq=False)
class Radius(Record):
    """How far the weights may move: the largest beta at which a criterion still holds.

    `criterion` says which, in words. `value` is infinite when no move within reach breaks it,
    `interval` spans what different seeds found: each found a move that breaks the criterion, so
    the true radius is at most the lower end. `closed_form` is the exact one, None when there is
    no formula; `formula` names it.
    """

    criterion: str
    value: Unbounded
    interval: tuple[Unbounded, Unbounded]
    closed_form: Unbounded | None = None
    formula: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class PerturbationCurve(Record):
    """E(beta) of one group of weights: the largest error that was found within beta.

    `errors` is the running maximum over smaller betas of what random draws (`random`) and
    gradient ascent (`ascent`, empty when there was none) found: a lower bound of the supremum.
    Errors that are not finite are infinite.
    """

    group: str
    ball: str
    norm: str
    betas: UnboundedFloats
    errors: UnboundedFloats
    random: UnboundedFloats
    ascent: UnboundedFloats
    #: The largest beta at which no mode reaches the boundary, or no error the size of the answers.
    radius: Radius
    #: The largest beta at which E(beta) <= (1 + tol) E(0) + atol.
    tolerance_radius: Radius
    weights: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        rows = [self.errors, self.random, *([self.ascent] if len(self.ascent) else [])]
        if any(len(row) != len(self.betas) for row in rows):
            raise ValueError("betas and errors differ in count")
        sizes = self.betas
        if not np.isfinite(sizes).all() or (sizes <= 0).any() or (np.diff(sizes) < 0).any():
            raise ValueError("the betas are no rising sizes")


@dataclass(frozen=True, slots=True, eq=False)
class Stability(Result):
    """E(beta) of every group of weights; the first curve is the one that the report is about.

    `reference` says what the error is measured against, `scale` is the norm of that reference,
    `horizon` the steps of the inputs. `others` are the parts of a host that stand farther from
    the edge than this one.
    """

    curves: tuple[PerturbationCurve, ...]
    reference: str
    scale: float
    horizon: int
    draws: int
    seeds: int
    #: How the copies were evaluated: batched cells, vmap, or one after the other.
    execution: str
    note: str = ""
    where: str = ""
    others: tuple[Stability, ...] = ()

    @property
    def first(self) -> PerturbationCurve:
        """The curve that the report is about."""
        return self.curves[0]

    @property
    def betas(self) -> np.ndarray:
        """The sizes of the moves."""
        return self.first.betas

    @property
    def errors(self) -> np.ndarray:
        """E(beta) at every size."""
        return self.first.errors

    @property
    def radius(self) -> float:
        """The stability radius; infinite when no move within reach breaks the model."""
        return self.first.radius.value

    @property
    def interval(self) -> tuple[float, float]:
        """The radii that different seeds found."""
        return self.first.radius.interval

    @property
    def ball(self) -> str:
        """How the size of a move is measured."""
        return self.first.ball

    @property
    def norm(self) -> str:
        """How the size of an error is measured."""
        return self.first.norm

    def __post_init__(self) -> None:
        if not self.curves or not len(self.curves[0].betas):
            raise ValueError("E(beta) has no numbers")
        if self.scale < 0:
            raise ValueError("the scale, a norm, is negative")

    @classmethod
    def joined(cls, parts: Mapping[str, Self]) -> Self:
        """The part of a host that stands nearest to the edge, with the other parts behind it."""
        placed = [replace(own, where=part) for part, own in parts.items()]
        near, *rest = sorted(placed, key=lambda part: part.radius)
        return replace(near, others=tuple(rest))
