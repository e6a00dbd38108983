"""The tables of a difference: which facts stand in which columns, and what is said below."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.text import Text

from memaudit.errors import clean
from memaudit.reports import wording
from memaudit.reports.diff_table import Column, Facts, changes_table, column, named, value

if TYPE_CHECKING:
    from rich.console import RenderableType

    from memaudit.comparing.difference import Change, Difference

#: So many lines are told below a table.
TOLD = 8
RATIO = (
    "Farthest apart: how many times larger (x) or smaller (/) the later curve is, at the lag where "
    "the two lie farthest apart beyond their numerical floors."
)
#: Of these a curve has the one that belongs to its kind.
STRENGTHS = ("exponent", "rate", "support")
SEARCH = ("norm", "draws", "seeds", "steps")


def _strength(facts: Facts, digits: int) -> str:
    """The number that belongs to the kind, and its interval."""
    number = next((facts[n] for n in STRENGTHS if facts[n] is not None), None)
    span = facts.get("interval")
    told = "" if span is None else f" [{value(span[0])}, {value(span[1])}]"
    return value(number, digits) + told


def _radius(facts: Facts, digits: int) -> str:
    low, high = facts["interval"]
    spread = low != high and facts["radius"] != float("inf")
    told = f" [{value(low, 3)}, {value(high, 3)}]" if spread else ""
    return value(facts["radius"], digits) + told


def _horizon(facts: Facts, digits: int) -> str:
    """A lag, `> 512`, or the signs of the report for what nobody can see and what there is not."""
    del digits
    told = clean(facts["horizon"])
    signs = {"none": wording.NOTHING, "hidden by the floor": wording.UNKNOWN}
    return signs.get(told, told.replace("beyond ", "> "))


@dataclass(frozen=True, slots=True)
class Section:
    """One table: the field of the difference, its title, the word for a row, and its columns."""

    field: str
    title: str
    noun: str
    nouns: str
    columns: tuple[Column, ...]


CURVES = (
    column("decay", "kind"),
    Column("rate or exponent", (*STRENGTHS, "interval"), _strength, moving=STRENGTHS),
    column("half-life", "half_life", moving=("half_life",)),
    Column("horizon", ("horizon",), _horizon, moving=("horizon",)),
)
SECTIONS = (
    Section("memory", "Memory", "query", "queries", CURVES),
    Section("layers", "Memory by layer", "curve", "curves", CURVES),
    Section(
        *("spectrum", "Recurrent layers", "layer", "layers"),
        (
            column("form", "parameterization"),
            column("margin", "margin"),
            column("time scale", "time_scale"),
            *(column(name, name, always=False) for name in ("cell", "modes", "at")),
            column("Lyapunov", "lyapunov", always=False),
        ),
    ),
    Section(
        *("stability", "Stability", "group of weights", "groups of weights"),
        (
            Column("radius", ("radius", "interval"), _radius),
            column("exact", "exact"),
            column("tolerance", "tolerance"),
            column("until", "until", always=False),
        ),
    ),
    Section(
        *("precision", "Precision", "format", "formats"),
        (column("verdict", "verdict"), column("error", "error"), column("margin", "margin")),
    ),
    Section(
        *("gradient", "Gradients", "layer", "layers"),
        (
            column("form", "form"),
            column("ratio", "ratio"),
            column("recommended", "recommended"),
            column("its ratio", "recommended_ratio"),
            column("all weights", "all_weights", always=False),
        ),
    ),
    Section(
        *("recall", "Recall", "state", "states"),
        (
            column("capacity", "capacity"),
            column("numbers", "numbers"),
            column("half", "half"),
            *(column(name, name, always=False) for name in ("inputs", "lags")),
        ),
    ),
    Section(
        *("assumptions", "Assumptions", "assumption", "assumptions"),
        (column("verdict", "verdict"), column("residual", "residual")),
    ),
)


def section_blocks(
    section: Section, difference: Difference, *, verbose: bool, ascii_only: bool
) -> list[RenderableType]:
    """Title, table, and in a line what is the same; nothing when neither report has the section."""
    changes: tuple[Change, ...] = getattr(difference, section.field)
    if not changes:
        return []
    shown = [change for change in changes if verbose or change.changed]
    blocks: list[RenderableType] = [Text(section.title, style="bold underline")]
    if shown:
        ratios = any(change.apart is not None for change in shown)
        title, columns = section.noun, section.columns
        made = changes_table(title, shown, columns, ratios=ratios, ascii_only=ascii_only)
        blocks += [made, *_lines(section, shown, ratios=ratios)]
    quiet = sum(not change.changed for change in changes)
    if quiet:
        blocks.append(Text(f"{quiet} {section.noun if quiet == 1 else section.nouns} unchanged"))
    return blocks


def _lines(section: Section, shown: list[Change], *, ratios: bool) -> list[Text]:
    """What a reader of the table must know: signs, statuses, and other ways of measuring."""
    told = [RATIO] if ratios else []
    if any(_hidden(facts) for c in shown for facts in (c.before, c.after)):
        told.append(f"{wording.UNKNOWN}: {wording.HIDDEN}")
    statuses = [
        f"{named(c)}: {clean((c.before or {}).get('status'))} -> {clean((c.after or {})['status'])}"
        for c in shown
        if "status" in c.differing and c.before and c.after
    ]
    told += statuses[:TOLD]
    if section.field == "stability" and any(not set(SEARCH).isdisjoint(c.differing) for c in shown):
        told.append("The radii were searched for in different ways and may not be comparable.")
    return [Text("\n".join(told))] if told else []


def _hidden(facts: Facts | None) -> bool:
    return facts is not None and facts.get("horizon") == "hidden by the floor"
