"""What a retrofit did to a model."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from memaudit.errors import clean
from memaudit.records import Record, Unbounded
from memaudit.sections import Column, Document, Section, Table

if TYPE_CHECKING:
    from collections.abc import Iterator

#: A model whose answers change by more than this share of their size is another one.
ANOTHER = 0.01


@dataclass(frozen=True, slots=True, eq=False)
class RetrofittedLayer(Record):
    """One recurrent weight in its new form.

    `old` and `new` are the forms before and after, `constants` those of the new one. `difference`
    is the largest change of the model's answers, over their largest size; None when the model
    could not be run. `rounding` is the largest change of the stored weight, over its largest size,
    that comes with the first step of training, when it is made by the form. `radius_before` and
    `radius_after` are the largest beta by which the weights behind the modes may move until the
    answers change by more than `radius_criterion` says; None where that was not measured.
    `moved` modes were out of reach and were put inside, by `farthest` at most. `condition` is that
    of the eigenvectors of a matrix, 1 for a diagonal.
    """

    layer: str
    cell: str
    weight: str
    old: str
    new: str
    time: str
    modes: int
    constants: dict[str, Unbounded] = field(default_factory=dict)
    difference: float | None = None
    rounding: float = 0.0
    radius_before: Unbounded | None = None
    radius_after: Unbounded | None = None
    radius_criterion: str = ""
    moved: int = 0
    farthest: float = 0.0
    condition: Unbounded = 1.0
    note: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class RefusedLayer(Record):
    """A recurrent layer that stays as it is, with the reason."""

    layer: str
    cell: str
    reason: str
    #: Whether `project` would move its modes to where the form reaches.
    reachable: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Retrofit(Record):
    """The form that was asked for, and what became of every recurrent layer.

    `difference` is the largest change of the answers of the whole model, over their largest size;
    None when it could not be run, for the reason in `notes`.
    """

    reparam: str
    layers: tuple[RetrofittedLayer, ...]
    refused: tuple[RefusedLayer, ...] = ()
    difference: float | None = None
    notes: tuple[str, ...] = ()

    def document(self) -> Document:
        """The layers with their forms, differences and radii, and what moved or was refused."""
        columns = (
            Column("layer", key=True),
            Column("weight", key=True),
            Column("before"),
            Column("after"),
            Column("constants"),
            Column("difference", help="of the answers, over their largest size"),
            Column("radius before"),
            Column("radius after"),
        )
        rows = tuple(
            (
                clean(one.layer),
                clean(one.weight.rpartition(".")[2]),
                clean(one.old),
                clean(one.new.partition(" (")[0]),
                ", ".join(f"{key}={value:.4g}" for key, value in one.constants.items()) or None,
                one.difference,
                one.radius_before,
                one.radius_after,
            )
            for one in self.layers
        )
        section = Section("Layers", text=tuple(self._remarks()), tables=(Table(columns, rows),))
        return Document(
            f"retrofit {clean(self.reparam)}",
            warnings=(self._changed,) if self._changed else (),
            sections=(section,),
            findings=None,
        )

    @property
    def _changed(self) -> str:
        """What a projection did to the model, where that is a lot."""
        if self.difference is None or self.difference <= ANOTHER:
            return ""
        return (
            f"This is another model: its answers differ by {self.difference:.2g} of their size. "
            "Scan and test it before you use it."
        )

    def _remarks(self) -> Iterator[str]:
        if self.difference is not None:
            yield f"Largest difference of the model's answers: {self.difference:.2g}."
        criterion = next((one.radius_criterion for one in self.layers if one.radius_criterion), "")
        if criterion:
            yield (
                "Radius: how far the weights may move until the answers change: "
                f"{clean(criterion)}."
            )
        for one in self.layers:
            if one.moved:
                yield (
                    f"Moved: {one.moved} of {one.modes} modes of {clean(one.layer)}, by "
                    f"{one.farthest:.3g} at most."
                )
        for layer in self.refused:
            more = "; --project moves them inside" if layer.reachable else ""
            yield f"Refused: {clean(layer.layer)}: {clean(layer.reason, limit=600)}{more}."
        for note in dict.fromkeys((*(one.note for one in self.layers if one.note), *self.notes)):
            yield f"Note: {clean(note)}."

    def __str__(self) -> str:
        """One line for every layer."""
        lines = [
            f"retrofit {clean(self.reparam)}: {len(self.layers)} done, {len(self.refused)} refused"
        ]
        lines += [
            f"  {clean(one.layer)} {clean(one.weight)}: {clean(one.old)} -> {clean(one.new)}"
            for one in self.layers
        ]
        lines += [
            f"  {clean(one.layer)} refused: {clean(one.reason, limit=1200)}"
            + ("; project=True moves them inside" if one.reachable else "")
            for one in self.refused
        ]
        return "\n".join([*lines, *filter(None, [self._changed])])
