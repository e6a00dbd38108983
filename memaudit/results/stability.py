"""How much the answers of a model change when its weights move."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from memaudit.records import Record
from memaudit.results.endless import bounded, unbounded
from memaudit.results.reading import alike, endless_floats, listed

#: The rows of numbers of E(beta), which may be infinite.
ARRAYS = ("betas", "errors", "random", "ascent")


@dataclass(frozen=True, slots=True, eq=False)
class Radius(Record):
    """How far the weights may move: the largest beta at which a criterion still holds.

    `criterion` says which, in words. `value` is infinite when no move within reach breaks it,
    `interval` spans what different seeds found: each found a move that breaks the criterion, so
    the true radius is at most the lower end. `closed_form` is the exact one, None when there is
    no formula; `formula` names it.
    """

    criterion: str
    value: float
    interval: tuple[float, float]
    closed_form: float | None = None
    formula: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Plain values; infinity is a word."""
        return {
            "criterion": self.criterion,
            "value": bounded(self.value),
            "interval": [bounded(end) for end in self.interval],
            "closed_form": None if self.closed_form is None else bounded(self.closed_form),
            "formula": self.formula,
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """The inverse of `to_dict`."""
        low, high = (unbounded(end) for end in listed(data["interval"]))
        exact = data["closed_form"]
        return cls(
            data["criterion"],
            unbounded(data["value"]),
            (low, high),
            None if exact is None else unbounded(exact),
            data["formula"],
        )


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
    betas: np.ndarray
    errors: np.ndarray
    random: np.ndarray
    ascent: np.ndarray
    #: The largest beta at which no mode reaches the boundary, or no error the size of the answers.
    radius: Radius
    #: The largest beta at which E(beta) <= (1 + tol) E(0) + atol.
    tolerance_radius: Radius
    weights: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain values; infinity is a word."""
        data = Record.to_dict(self)
        return {**data, **{name: [bounded(v) for v in data[name]] for name in ARRAYS}}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """The inverse of `to_dict`."""
        arrays = {name: endless_floats(data[name]) for name in ARRAYS}
        _check_rows(**arrays)
        radii = {n: Radius.from_dict(data[n]) for n in ("radius", "tolerance_radius")}
        return cls(**{**data, **arrays, **radii, "weights": tuple(listed(data.get("weights", ())))})


def _check_rows(
    betas: np.ndarray, errors: np.ndarray, random: np.ndarray, ascent: np.ndarray
) -> None:
    alike(betas=betas, errors=errors, random=random)
    if len(ascent):  # empty where no gradient was climbed
        alike(betas=betas, ascent=ascent)
    if not np.isfinite(betas).all() or (betas <= 0).any() or (np.diff(betas) < 0).any():
        raise ValueError("the betas are no rising sizes")


@dataclass(frozen=True, slots=True, eq=False)
class Stability(Record):
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

    def joined(self, other: Stability) -> Stability:
        """The part of a host that stands nearest to the edge, with the other parts behind it."""
        parts = [self, *self.others, other, *other.others]
        near, *rest = sorted((replace(p, others=()) for p in parts), key=lambda p: p.radius)
        return replace(near, others=tuple(rest))

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """The inverse of `to_dict`."""
        curves = tuple(PerturbationCurve.from_dict(item) for item in listed(data["curves"]))
        if not curves or not len(curves[0].betas):
            raise ValueError("E(beta) has no numbers")
        if data["scale"] < 0:
            raise ValueError("the scale, a norm, is negative")
        others = tuple(cls.from_dict(item) for item in listed(data.get("others", ())))
        return cls(**{**data, "curves": curves, "others": others})
