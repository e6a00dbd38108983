"""What a number format does to the recurrent weights, and through them to the memory."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

from memaudit.records import Record
from memaudit.results.endless import bounded, unbounded
from memaudit.results.reading import listed


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
    betas: dict[str, float]
    error: float | None
    relative: float | None
    layers: tuple[RoundedLayer, ...] = ()
    memory: tuple[RoundedMemory, ...] = ()
    note: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Plain values; infinity is a word."""
        data = Record.to_dict(self)
        sizes = {ball: bounded(beta) for ball, beta in self.betas.items()}
        numbers = {n: None if data[n] is None else bounded(data[n]) for n in ("error", "relative")}
        return {**data, "betas": sizes, **numbers}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """The inverse of `to_dict`."""
        numbers = {
            n: None if data[n] is None else unbounded(data[n]) for n in ("error", "relative")
        }
        return cls(
            **{
                **data,
                **numbers,
                "betas": {ball: unbounded(beta) for ball, beta in data["betas"].items()},
                "layers": tuple(
                    RoundedLayer.from_dict(item) for item in listed(data.get("layers", ()))
                ),
                "memory": tuple(
                    RoundedMemory.from_dict(item) for item in listed(data.get("memory", ()))
                ),
            }
        )


@dataclass(frozen=True, slots=True, eq=False)
class Precision(Record):
    """What every common number format does; `weights` are those that were rounded."""

    roundings: tuple[Rounding, ...]
    weights: tuple[str, ...]
    norm: str
    note: str = ""
    where: str = ""
    others: tuple[Precision, ...] = ()

    def joined(self, other: Precision) -> Precision:
        """The first part of a host, with the other parts behind it."""
        return replace(self, others=(*self.others, other))

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """The inverse of `to_dict`."""
        roundings = tuple(Rounding.from_dict(item) for item in listed(data["roundings"]))
        others = tuple(cls.from_dict(item) for item in listed(data.get("others", ())))
        names = tuple(listed(data["weights"]))
        return cls(**{**data, "roundings": roundings, "others": others, "weights": names})
