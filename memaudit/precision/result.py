"""What a number format does to the recurrent weights, and through them to the memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Self

from memaudit.records import Record, Unbounded
from memaudit.report import Result


@dataclass(frozen=True, slots=True, eq=False)
class RoundedLayer(Record):
    """One recurrent layer before and after its weights were rounded.

    Margins are min(1 - |lambda|), None where the layer has no spectrum. `reached` counts modes
    that were stable and are now on the boundary or beyond it.
    """

    layer: str
    margin_before: float | None
    margin_after: float | None
    reached: int
    #: The largest change of an eigenvalue.
    shift: float | None


@dataclass(frozen=True, slots=True, eq=False)
class RoundedMemory(Record):
    """The memory function under one query before and after the recurrent weights were rounded."""

    query: str
    kind_before: str
    kind_after: str
    rate_before: float | None
    rate_after: float | None
    horizon_before: int | None
    horizon_after: int | None
    #: The largest change of the curve, as a share of its maximum.
    change: float


@dataclass(frozen=True, slots=True, eq=False)
class Rounding(Record):
    """One number format as a move of the recurrent weights.

    `betas` is the size of the move by ball, on the axis of E(beta); `error` what it does to the
    answers, in the norm of the stability probe, and `relative` that as a share of the answers.
    `memory` is empty when the rounded model was not measured; `note` says why.
    """

    format: str
    betas: dict[str, Unbounded]
    error: Unbounded | None
    relative: Unbounded | None
    layers: tuple[RoundedLayer, ...] = ()
    memory: tuple[RoundedMemory, ...] = ()
    note: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Precision(Result):
    """What every common number format does; `weights` are those that were rounded."""

    roundings: tuple[Rounding, ...]
    weights: tuple[str, ...]
    norm: str
    note: str = ""
    where: str = ""
    others: tuple[Precision, ...] = ()

    @classmethod
    def joined(cls, parts: Mapping[str, Self]) -> Self:
        """The first part of a host, with the other parts behind it."""
        first, *rest = (replace(own, where=part) for part, own in parts.items())
        return replace(first, others=tuple(rest))
