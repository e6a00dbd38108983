"""How to get the same numbers again: the command, the settings, versions and times."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memaudit.errors import clean
from memaudit.options import command
from memaudit.reports.page.markup import tag
from memaudit.reports.page.section import Section, grid
from memaudit.reports.page.table import Table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from memaudit.report import Report
    from memaudit.reports.page.detail import Detail


def reproduce_section(report: Report, detail: Detail) -> Section:
    """The command, then everything that the numbers rest on."""
    who = report.subject
    model = {
        "source": who.source,
        "adapter": who.adapter,
        "family": who.family,
        "sha256 of the weights": who.sha256,
        "recurrent layers": f"{len(who.recurrences)}",
        "context": who.context,
        "longest input": who.longest,
    }
    times = {k.removesuffix("_seconds"): f"{v:.1f} s" for k, v in report.timing.items()}
    tables = [
        _pairs("Settings", report.settings, detail),
        _pairs("Model", model, detail),
        _pairs("Assumed settings", who.assumed, detail),
        _pairs("Environment", report.environment, detail),
        _pairs("Time", times, detail),
    ]
    blocks = [
        tag("pre", tag("code", command(report)), tabindex="0", aria_label="Command line"),
        grid(*(table.markup() for table in tables if table is not None)),
    ]
    lead = "With the same seed on the same machine this gives the same numbers."
    return Section("reproduce", "Reproduce", lead, blocks)


def _pairs(title: str, facts: Mapping[str, Any], detail: Detail) -> Table | None:
    rows = [
        (clean(name, limit=120), _word(value))
        for name, value in list(facts.items())[: detail.items]
        if value not in ("", None)
    ]
    return Table(title, ("name", "value"), rows, facts=True) if rows else None


def _word(value: Any) -> str:
    if isinstance(value, dict):
        value = [f"{name} {item}" for name, item in value.items()]
    if isinstance(value, list | tuple):
        return clean(", ".join(map(str, value)), limit=600)
    return clean(value, limit=600)
