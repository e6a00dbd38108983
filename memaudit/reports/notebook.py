"""A report in a notebook: the verdict in a small table, without a script."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memaudit.errors import clean
from memaudit.reports import wording
from memaudit.reports.page.markup import Markup, tag, text
from memaudit.reports.page.sparkline import sparkline
from memaudit.reports.summary import PARTIAL

if TYPE_CHECKING:
    from memaudit.memory.result import Curve
    from memaudit.report import Report

#: So many queries have a row, and so many codes are named.
ROWS = 12
COLUMNS = ("query", "decay", "rate or exponent", "half-life", "horizon", "curve")
#: A notebook has its own style; grey lines and inherited colours suit light and dark.
CELL = "text-align:left;padding:2px 14px 2px 0;border-bottom:1px solid rgba(128,128,128,.3)"
SMALL = "opacity:.75;font-size:90%"


def notebook_html(report: Report) -> str:
    """Source, one row per query, and the findings."""
    who = report.subject
    title = tag("b", text(who.source, limit=200))
    head = tag("div", title, f" {clean(who.description, limit=200)}")
    partial = None if report.complete else tag("div", tag("b", PARTIAL))
    return str(tag("div", partial, head, _table(report), _findings(report)))


def _table(report: Report) -> Markup:
    if not report.memory:
        return tag("div", "No curve was measured.")
    heads = [tag("th", name, scope="col", style=CELL) for name in COLUMNS]
    rows = [_row(query, curve) for query, curve in list(report.memory.items())[:ROWS]]
    said = tag("caption", "Memory by query", style="text-align:left")
    return tag("table", said, tag("thead", tag("tr", heads)), tag("tbody", rows))


def _row(query: str, curve: Curve) -> Markup:
    cells = (
        clean(curve.decay.kind),
        f"{wording.strength(curve)} {wording.interval(curve)}".strip(),
        wording.half_life(curve),
        wording.horizon(curve),
        sparkline(curve, colour="currentColor"),
    )
    name = tag("th", text(query, limit=80), scope="row", style=CELL)
    return tag("tr", name, [tag("td", cell, style=CELL) for cell in cells])


def _findings(report: Report) -> Markup:
    codes = dict.fromkeys(f"{clean(f.code)} {clean(f.name)}" for f in report.findings)
    named = ", ".join(list(codes)[:ROWS]) or "none"
    more = f" and {len(codes) - ROWS} more" if len(codes) > ROWS else ""
    return tag("div", f"Findings: {named}{more}", style=SMALL)
