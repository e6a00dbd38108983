"""The laws about hostile names: a careful format keeps them, every careless one is found."""

from __future__ import annotations

import csv
import html
import io
import json
import re

import pytest

from memaudit.errors import clean
from memaudit.interfaces import AbstractReportFormat
from memaudit.report_files import dumps
from memaudit.testing import check_report_format
from memaudit.writers.json_file import JsonFile


class Rows(AbstractReportFormat):
    """The names and verdicts of a report, each name written by `cell`."""

    name, summary = "rows", "names and verdicts"

    def __init__(self, suffix: str, cell) -> None:
        self.suffix, self.cell = suffix, cell

    def render(self, report) -> str:
        pairs = [("complete", str(report.complete))]
        pairs += [(self.cell(name), curve.decay.kind) for name, curve in report.memory.items()]
        return {".csv": table, ".md": markdown, ".html": page, ".txt": text}[self.suffix](pairs)


def table(pairs) -> str:
    sheet = io.StringIO()
    csv.writer(sheet).writerows(pairs)
    return sheet.getvalue()


def markdown(pairs) -> str:
    return "# Report\n\n" + "".join(f"| {name} | `{kind}` |\n" for name, kind in pairs)


def page(pairs) -> str:
    return "".join(f'<p title="{name}">{name} <b>{kind}</b>\n' for name, kind in pairs)


def text(pairs) -> str:
    return "".join(f"{name} {kind}\n" for name, kind in pairs)


def guarded(name: str) -> str:
    safe = clean(name)
    return f"'{safe}" if safe[:1] in ("=", "+", "-", "@") else safe


def escaped(name: str) -> str:
    return re.sub(r"([|\[\]<>\\*_#])", r"\\\1", clean(name)).replace("`", "&#96;")


def quoted(name: str) -> str:
    return html.escape(clean(name), quote=True)


@pytest.mark.parametrize(
    ("suffix", "cell"),
    [(".csv", guarded), (".md", escaped), (".html", quoted), (".txt", clean)],
)
def test_a_careful_format_keeps_the_laws(suffix, cell):
    check_report_format(Rows(suffix, cell))


@pytest.mark.parametrize(
    ("suffix", "cell", "told"),
    [
        (".txt", str, r"foreign text puts .*x1b"),
        (".txt", lambda name: name.replace("\x1b", "").replace("\x07", ""), "u202e"),
        (".txt", lambda name: clean(name.replace("\t", "?")) + "\t" * name.count("\t"), r"\\t"),
        (".txt", lambda name: clean(name, limit=10**6), "makes a line of the report"),
        (".txt", lambda name: clean(name) + "\ud800" * ("\ud800" in name), "no valid text"),
        (".csv", clean, "takes the cell .=cmd.* for a formula"),
        (".csv", lambda name: guarded(name).replace("'+", "+"), "takes the cell '.1.1'"),
        (".md", clean, r"can put < into the Markdown report"),
        (".md", lambda name: escaped(name).replace("\\|", "|"), r"can put \| into"),
        (".md", lambda name: escaped(name).replace("&#96;", "`"), "can put ` into"),
        (".md", lambda name: escaped(name).replace("\\]", "]"), r"can put \]\( into"),
        (".html", clean, "can put tags into the report"),
        (".html", lambda name: html.escape(clean(name), quote=False), "can put tags"),
    ],
)
def test_a_careless_format_is_found(suffix, cell, told):
    with pytest.raises(AssertionError, match=told):
        check_report_format(Rows(suffix, cell))


class Loose(JsonFile):
    """JSON that is almost strict."""

    def __init__(self, change) -> None:
        object.__setattr__(self, "change", change)

    __slots__ = ("change",)

    def render(self, report) -> str:
        return self.change(report.to_dict())


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda data: dumps(data).replace("red", "réd"), "beyond ASCII"),
        (json.dumps, "half of a surrogate pair"),
        (lambda data: dumps(data).replace('"seed": 0', '"seed": NaN'), "NaN stands in"),
        (lambda data: dumps(data)[:-3], "no JSON"),
    ],
)
def test_json_that_is_not_strict_is_found(change, told):
    with pytest.raises(AssertionError, match=told):
        check_report_format(Loose(change))
