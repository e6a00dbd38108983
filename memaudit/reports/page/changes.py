"""What changed, in tables: every cell that differs tells what was and what is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memaudit.errors import clean
from memaudit.report import SEVERITIES
from memaudit.reports.diff import both
from memaudit.reports.diff_sections import SECTIONS
from memaudit.reports.diff_table import APART, differs, factor, named, now, two
from memaudit.reports.diff_verdict import sorted_findings
from memaudit.reports.page.fitting import more
from memaudit.reports.page.markup import Markup, joined, tag, text
from memaudit.reports.page.table import Table

if TYPE_CHECKING:
    from memaudit.comparing.difference import Change, Difference
    from memaudit.reports.diff_sections import Section
    from memaudit.reports.diff_table import Column
    from memaudit.reports.page.detail import Detail

SIGNS = {"came": ("+", "new"), "went": ("-", "gone"), "stayed": ("=", "stayed")}


def changes_table(field: str, difference: Difference, detail: Detail) -> Markup | None:
    """The changes of one section; those that are the same are counted in the caption."""
    section = next(one for one in SECTIONS if one.field == field)
    changes: tuple[Change, ...] = getattr(difference, field)
    if not changes:
        return None
    shown = [change for change in changes if change.changed]
    quiet = len(changes) - len(shown)
    caption = f"{section.title}: {_counted(section, quiet)}" if quiet else section.title
    if not shown:
        return tag("p", f"{caption}.", class_="aside")
    columns = [c for c in section.columns if c.always or any(differs(s, c) for s in shown)]
    rows = [_row(change, columns) for change in shown[: detail.items]]
    rest = f"; {len(shown) - detail.items} more changes" if len(shown) > detail.items else ""
    heads = (section.noun, *(c.title for c in columns), APART)
    return Table(caption + rest, heads, rows).markup()


def facts_table(title: str, change: Change, detail: Detail) -> Markup | None:
    """Facts that differ, side by side."""
    before, after = change.before or {}, change.after or {}
    rows = [
        (clean(name).replace("_", " "), *both(name, before, after))
        for name in change.differing[: detail.items]
    ]
    rest = len(change.differing) - len(rows)
    title += f"; {rest:,} more in the JSON reports" if rest else ""
    return Table(title, ("fact", "before", "after"), rows).markup() if rows else None


def finding_list(changes: tuple[Change, ...], detail: Detail) -> list[Markup]:
    """Findings that came, then those that went, then those whose severity changed."""
    came, went, stayed = sorted_findings(changes)
    graded = [change for change in stayed if "severity" in change.differing]
    listed = [("came", c) for c in came] + [("went", c) for c in went]
    listed += [("stayed", c) for c in graded]
    made = [_finding(what, change) for what, change in listed[: detail.items]]
    made += more(len(listed) - len(made))
    if stayed:
        codes = ", ".join(dict.fromkeys(clean(change.name) for change in stayed))
        made.append(tag("p", f"{len(stayed)} stayed: {text(codes, limit=400)}", class_="aside"))
    return made


def _counted(section: Section, quiet: int) -> str:
    return f"{quiet} {section.noun if quiet == 1 else section.nouns} unchanged"


def _row(change: Change, columns: list[Column]) -> tuple[object, ...]:
    apart = change.apart
    ratio = "" if apart is None else f"{factor(apart.before, apart.after)} at lag {apart.lag}"
    return named(change), *(_cell(change, c) for c in columns), ratio


def _cell(change: Change, column: Column) -> object:
    if change.before is None or change.after is None or not differs(change, column):
        return column.words(change.before or change.after or {}, 4)
    before, after = two(column, change.before, change.after)[0], now(change, column)
    return joined(
        tag("span", before, class_="before"),
        " → ",
        tag("span", after, class_="change"),
    )


def _finding(what: str, change: Change) -> Markup:
    facts = change.after or change.before or {}
    severity = str(facts["severity"])
    was = str((change.before or facts)["severity"])
    graded = severity if was == severity else f"{was} → {severity}"
    grade = severity if severity in SEVERITIES else "note"
    sign, word = SIGNS[what]
    return tag(
        "article",
        tag(
            "h3",
            f"{sign} {word} ",
            tag("span", text(graded), class_=f"badge {grade}"),
            f" {clean(change.name)} {clean(facts['name'])}",
        ),
        tag("p", tag("b", f"{clean(change.where)}: ") if change.where else None, facts["message"]),
        class_=f"finding {grade}",
    )
