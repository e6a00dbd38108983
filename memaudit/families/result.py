"""Models of growing size against one target: E_m(beta), where these cross, what to say of it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from memaudit.errors import SourceError, clean
from memaudit.records import Record, Unbounded, UnboundedFloats, decode
from memaudit.report import Finding, Identity
from memaudit.rules import FAMILY, rule
from memaudit.sections import (
    Axis,
    Band,
    Column,
    Document,
    Figure,
    Line,
    Mark,
    Section,
    Table,
)

if TYPE_CHECKING:
    from pathlib import Path

#: Rises when a field of the JSON report of a family changes its meaning or goes away.
FAMILY_SCHEMA = 1
#: What a family can be: its crossings stay put, they shift left, or nobody can tell.
VERDICTS = ("stable", "unstable", "undetermined")


@dataclass(frozen=True, slots=True, eq=False)
class FamilyMember(Record):
    """One model of a family: `size` is its m, `start` its E(0), `errors` its E(beta).

    `errors` is the largest error that any draw found within beta, `seeds` the same for every seed
    by itself. `weight` is the largest size of a weight, `margin` the smallest 1 - |lambda|, and
    `radius` the smallest beta at which a draw put a mode on or beyond the boundary, infinite when
    none did; both are None where the weights alone do not decide the modes.
    """

    subject: Identity
    size: int
    start: Unbounded
    errors: UnboundedFloats
    seeds: tuple[UnboundedFloats, ...]
    weight: Unbounded
    margin: float | None = None
    radius: Unbounded | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Crossing(Record):
    """From which beta on the larger of two neighbours is the worse one.

    `beta` is infinite when their curves do not cross, and 0 when the larger one is no better even
    where no weight has moved. `interval` spans what the seeds say. `error` is E of the smaller one
    there, None without a crossing.
    """

    smaller: int
    larger: int
    beta: Unbounded
    interval: tuple[Unbounded, Unbounded]
    error: float | None = None

    @property
    def exists(self) -> bool:
        """Whether the curves cross, by the draws of all seeds together."""
        import numpy as np

        return 0 < self.beta < np.inf


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class FamilyReport(Record):
    """The audit of a family, its members ordered by size.

    `reference` says what H is; `against` is the member that plays it and has no curve of its own,
    None when there is a target. `scale` is the norm of the reference, beyond which no error is
    compared. `counted` says what the sizes count. `verdict` is one of `VERDICTS`, `reason` the
    sentence behind it. `complete` is False when members are missing because it was cut short.
    """

    members: tuple[FamilyMember, ...]
    betas: UnboundedFloats
    reference: str
    scale: Unbounded
    counted: str
    crossings: tuple[Crossing, ...]
    verdict: str
    reason: str
    settings: dict[str, Any]
    against: Identity | None = None
    findings: tuple[Finding, ...] = ()
    complete: bool = True
    timing: dict[str, float] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)

    def __repr__(self) -> str:
        sizes = ", ".join(str(member.size) for member in self.members)
        return f"FamilyReport(m = {sizes}; {clean(self.verdict)}: {clean(self.reason)})"

    # What to show

    @property
    def line(self) -> str:
        """The whole report in one line."""
        return f"{clean(self.verdict)}: {clean(self.reason)}"

    def sections(self) -> list[Section]:
        """The members with their curves, and where these cross."""
        return list(self._sections())

    def _sections(self) -> Iterator[Section]:
        yield Section(
            "Members",
            headline=self.line,
            line=self.line,
            text=()
            if self.against is None
            else (f"{clean(self.against.source)} is the reference, and has no curve.",),
            tables=(self._members(),),
            figures=(self._figure(),) if self.members else (),
        )
        if self.crossings:
            yield Section("Crossings", tables=(self._crossings(),))

    def document(self) -> Document:
        """The report as a writer for people draws it."""
        settings = {key: clean(value) for key, value in self.settings.items()}
        facts = (
            ("reference", f"{clean(self.reference)}, of size {self.scale:.3g}"),
            ("moves", f"{settings.get('group')} weights in the {settings.get('ball')} ball"),
            ("error", f"{settings.get('norm')} norm over {settings.get('steps')} steps"),
            ("size m", f"the number of {clean(self.counted)}"),
        )
        keys = ("draws", "ascent", "seeds", "seed")
        footer = [f"{key} {settings[key]}" for key in keys if key in settings]
        footer += [f"{clean(key)} {value:.1f}" for key, value in self.timing.items()]
        footer += [f"{clean(k)} {clean(v)}" for k, v in self.environment.items() if k != "platform"]
        partial = "The audit is incomplete: what follows was measured."
        return Document(
            title=f"family of {len(self.members)}",
            facts=facts,
            warnings=() if self.complete else (partial,),
            sections=tuple(self.sections()),
            findings=self.findings,
            footer=tuple(footer),
        )

    def _members(self) -> Table:
        columns = (
            Column("m", key=True),
            Column("member"),
            Column("E(0)", format=".3g", better="less", help="error where no weight has moved"),
            Column("largest weight", format=".3g", better="less"),
            Column("margin", format=".3g", better="more", help="smallest 1 - |eigenvalue|"),
            Column(
                "over the boundary at",
                format=".3g",
                better="more",
                help="smallest beta at which a draw put a mode on the boundary or beyond it",
            ),
        )
        rows = tuple(
            (m.size, clean(m.subject.source), m.start, m.weight, m.margin, _never(m.radius))
            for m in self.members
        )
        return Table(columns, rows)

    def _crossings(self) -> Table:
        columns = (
            Column("m", key=True),
            Column("larger is worse from beta", format=".3g", better="more"),
            Column("by seeds", help="what the seeds say by themselves"),
            Column("error", format=".3g", help="E of the smaller one there"),
        )
        rows = tuple(
            (f"{c.smaller} and {c.larger}", self._at(c), _interval(c), c.error)
            for c in self.crossings
        )
        return Table(columns, rows)

    def _at(self, crossing: Crossing) -> str | float:
        first = float(self.betas[0])
        if crossing.beta == 0:
            return "everywhere: no better unmoved"
        if not crossing.exists:
            return "no crossing"
        return f"below {first:.3g}" if crossing.beta <= first else crossing.beta

    def _figure(self) -> Figure:
        import numpy as np

        lines = [Line(f"m = {m.size}", self.betas, m.errors) for m in self.members]
        bands = [
            Band(f"m = {m.size}, by seeds", self.betas, np.min(m.seeds, 0), np.max(m.seeds, 0))
            for m in self.members
            if m.seeds
        ]
        return Figure(
            title="E_m(beta)",
            x=Axis("beta: how far the weights may move", log=True),
            y=Axis("largest error", log=True),
            series=(*lines, *bands),
            marks=(Mark("size of the reference", y=self.scale),),
            caption="Where a larger model crosses a smaller one it is the worse one from there on. "
            "Crossings that shift left as models grow are an unstable approximation.",
        )

    # Files

    def to_dict(self) -> dict[str, Any]:
        """The JSON report: schema number and kind first, then the version, then the fields."""
        from memaudit import __version__

        head = {"schema": FAMILY_SCHEMA, "kind": "family", "memaudit": __version__}
        return {**head, **Record.to_dict(self)}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """The inverse of `to_dict`; refuses a schema that it does not know."""
        from memaudit.report_files import undamaged

        if (data.get("kind"), data.get("schema")) != ("family", FAMILY_SCHEMA):
            named = f"kind {clean(data.get('kind'))}, schema {clean(data.get('schema'))}"
            fact = f"this is no report of a family with schema {FAMILY_SCHEMA} ({named})"
            raise SourceError("E_UNSUPPORTED", fact, hint="write it again with this version")
        head = ("schema", "kind", "memaudit")
        with undamaged():
            return decode(cls, {k: v for k, v in data.items() if k not in head})

    def save(self, path: str | Path) -> Path:
        """Write the JSON report in one atomic step and give back its path."""
        from memaudit.report_files import write_json

        return write_json(self.to_dict(), path)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a report that `save` wrote."""
        from memaudit.report_files import read_json

        return cls.from_dict(read_json(path))


def _never(radius: float | None) -> str | float | None:
    return "never" if radius == math.inf else radius


def _interval(crossing: Crossing) -> str | None:
    low, high = crossing.interval
    if not low < math.inf or high == 0:
        return None
    return "[{}, {}]".format(*("none" if e == math.inf else f"{e:.3g}" for e in (low, high)))


# Rules

#: Growth of the largest weight, or shrinking of the margin, over the family that is a finding.
FACTOR = 4.0


RETROFIT = "`memaudit retrofit SOURCE --reparam softplus --out DIR`"


@rule("MA208", "crossings-shift-left", "warning", needs=(FAMILY,))
def crossings_shift_left(report: FamilyReport) -> Iterable[Finding]:
    """The curves E_m(beta) of a family cross at ever smaller beta as its models grow.

    Larger models of this family fit the target better as long as nothing moves, but a move of the
    weights from which on they are worse than the next smaller model gets smaller and smaller with
    the size. There is then no radius that holds for all sizes: the approximation is not stable, and
    a larger model needs smaller learning rates and finer number formats for no gain. Recurrent
    weights that are stored as eigenvalues do this when the target forgets slower than
    exponentially. A stable reparameterization of the recurrent weights (exp, softplus) lets the
    crossings stay put; otherwise prefer the smaller model.
    """
    if report.verdict != "unstable":
        return
    first = float(report.betas[0])
    places = ", ".join(
        f"{'below ' if c.beta <= first else ''}{c.beta:.3g} (m = {c.smaller} and {c.larger})"
        for c in report.crossings
        if c.exists
    )
    yield crossings_shift_left.finding(
        f"the curves E_m(beta) cross at ever smaller beta: {places}",
        f"store the recurrent weights behind exp or softplus ({RETROFIT}), or stay with a smaller "
        "model",
    )


@rule("MA209", "weight-growth", "warning", needs=(FAMILY,))
def weight_growth(report: FamilyReport) -> Iterable[Finding]:
    """The weights of a family grow with m, or the slowest mode creeps towards the boundary.

    A stable approximation has weights that stay bounded as the model grows. In this family the
    largest weight grows by more than a factor of four from the smallest member to the largest, or
    the slowest mode comes four times closer to the boundary while moves of the recurrent weights
    can still push it over. StableSSM (Remarks B.1 and B.2) shows that one of the two is the price
    for a memory that decays slower than exponentially. Large weights amplify rounding, and a thin
    margin makes training fragile: regularize the fit, or store the recurrent weights behind a
    stable reparameterization.
    """
    if len(report.members) < 2:
        return
    first, last = report.members[0], report.members[-1]
    sizes = f"from m = {first.size} to m = {last.size}"
    if last.weight > FACTOR * first.weight:
        yield weight_growth.finding(
            f"the largest weight grows from {first.weight:.3g} to {last.weight:.3g} {sizes}",
            "regularize the fit (`weight_decay` of the optimizer), or stay with a smaller model",
            where="weights",
        )
    if first.margin is None or last.margin is None:
        return
    room, left = (0.0 if m.radius is None else m.radius for m in (first, last))
    # Behind a reparameterization the room for moves stays, however thin the margin gets.
    if first.margin > FACTOR * max(last.margin, 0.0) and room > FACTOR * left:
        yield weight_growth.finding(
            f"the slowest mode's distance to the boundary falls from {first.margin:.3g} to "
            f"{last.margin:.3g} {sizes}, and moves of {left:.3g} take it over, not of {room:.3g}",
            f"store the recurrent weights behind exp or softplus ({RETROFIT})",
            where="modes",
        )
