"""The laws of a report format."""

from __future__ import annotations

import csv
import json
import re
import unicodedata
from dataclasses import replace
from html.parser import HTMLParser

from memaudit.contracts import AbstractReportFormat
from memaudit.report import Recurrence, Report
from memaudit.testing.law import check_words, must
from memaudit.testing.samples import renamed, sample_reports

#: What a file may call its tensors: a colour, a bell, a tag, a reversed text, a forged line.
HOSTILE = "\x1b[31mred\x07<img src=x onerror=alert(1)>\u202etxt\nforged"
#: More of that: markup of rich, HTML and Markdown, formulas, halves of letters, floods of marks.
LINES = "line breaks"
NAMES = {
    LINES: "one\ntwo\rthree\x85four\u2028five\x0bsix\tseven\x00",
    "markup": "[red]x[/red] [link=https://example.org]y[/link] [/] [bold",
    "tags": "\"'><script>alert(1)</script><img src=x onerror=alert(1)>&lt;b&gt;<!--",
    "a link": "[x](javascript:alert(1)) ![y](https://example.org/z.png) <https://example.org>",
    "a table": "a|b||c\\|d `e` ``f`` # g * h _ i",
    "a formula": "=cmd|' /C calc'!A0",
    "a sum": "+1+1",
    "a difference": "-2+3",
    "a call": "@SUM(A1:A9)",
    "a quotation": 'a",=1+1,"b',
    "a path": "../../../etc/passwd",
    "half a letter": "a\ud800b\udcffc",
    "marks": "a" + "\u0301" * 5000,
    "100 000 letters": "x" * 100_000,
}
MARKUP = (".html", ".htm", ".svg", ".xml")
TABLES = {".csv": ",", ".tsv": "\t"}
MARKDOWN = (".md", ".markdown")
#: A name may make a line longer, but not by more than this.
LONGEST = 10_000
#: Marks that are Markdown's own when no backslash stands before them.
MARKS = {"|": r"(?<!\\)\|", "`": "`", "](": r"(?<!\\)\]\(", "<": r"(?<!\\)<(?=[a-zA-Z/!?])"}


def check_report_format(form: AbstractReportFormat) -> None:
    """The laws of `AbstractReportFormat`: pure, never empty, no verdict lost, no raw names.

    What a file calls its tensors arrives verbatim; each suffix has its own ways to go wrong.
    """
    must(isinstance(form, AbstractReportFormat), f"{form!r} is no AbstractReportFormat")
    check_words(form, "name", "summary", "suffix")
    must(form.suffix.startswith("."), f"the suffix {form.suffix!r} does not begin with a dot")
    samples = sample_reports()
    for name, report in samples.items():
        text = form.render(report)
        must(isinstance(text, str) and bool(text.strip()), f"a {name} report renders as nothing")
        must(form.render(report) == text, f"rendering a {name} report twice gives two texts")
        kinds = {curve.decay.kind for curve in report.memory.values()}
        lost = kinds - set(re.findall(r"\w+", text))
        must(not lost, f"the verdict {', '.join(sorted(lost))} is lost in a {name} report")
    for what, name in {"control characters": HOSTILE, **NAMES}.items():
        # Of the same words: a report may wrap its lines, but by no other rule than this.
        twin = " ".join(name.split()).rstrip("\0") if what == LINES else "plain"
        text, harmless = (form.render(everywhere(samples["deep"], n)) for n in (name, twin))
        check_escaped(form, text, harmless, what)


def everywhere(report: Report, name: str) -> Report:
    """The report of a source that calls everything by that name, its family and cells, too."""
    made = renamed(report, name)
    curves = {key: replace(curve, normalization=name) for key, curve in made.memory.items()}
    cell = Recurrence(layer=name, cell=name, size=1, parameters=1)
    who = replace(made.subject, family=name, adapter=name, recurrences=(cell,))
    return replace(made, subject=who, memory=curves, layers={name: curves})


def check_escaped(form: AbstractReportFormat, text: str, harmless: str, what: str) -> None:
    """A hostile name leaves the form of a report as a harmless one does."""
    raw = {c for c in text if unicodedata.category(c) in ("Cc", "Cf") and c not in "\n\r\t"}
    must(not raw, f"foreign text puts {sorted(map(ascii, raw))} into the report")
    broken = len(text.splitlines()) != len(harmless.splitlines()) and what == LINES
    must(not broken, "a line break in foreign text makes a line of its own in the report")
    for mark in "\r\t":
        same = text.count(mark) == harmless.count(mark) or form.suffix in TABLES
        must(same, f"foreign text puts {mark!r} into the report")
    must(not _lone(text), f"{what} in a name: the report is no valid text")
    if form.suffix.endswith(".json"):
        _check_json(text)
        return
    longest = max(map(len, text.splitlines())) - max(map(len, harmless.splitlines()))
    must(longest <= LONGEST, f"{what} as a name makes a line of the report {longest} longer")
    if form.suffix in MARKUP:
        must(_tags(text) == _tags(harmless), "foreign text can put tags into the report")
    if form.suffix in TABLES:
        _check_table(text, harmless, TABLES[form.suffix])
    if form.suffix in MARKDOWN:
        for mark, pattern in MARKS.items():
            same = len(re.findall(pattern, text)) == len(re.findall(pattern, harmless))
            must(same, f"foreign text can put {mark} into the Markdown report")


def _lone(text: str) -> bool:
    return any(unicodedata.category(c) == "Cs" for c in text)


def _check_json(text: str) -> None:
    def refuse(word: str) -> None:
        raise AssertionError(f"{word} stands in the JSON report")

    must(text.isascii(), "the JSON report holds letters beyond ASCII")
    try:
        data = json.loads(text, parse_constant=refuse)
    except ValueError as error:
        raise AssertionError(f"the report is no JSON: {error}") from error
    whole = not _lone(json.dumps(data, ensure_ascii=False))
    must(whole, "half of a surrogate pair stands in the JSON report")


def _check_table(text: str, harmless: str, separator: str) -> None:
    """Cells that a spreadsheet takes for formulas, and rows that a name has broken."""
    rows, expected = (
        list(csv.reader(sheet.splitlines(keepends=True), delimiter=separator))
        for sheet in (text, harmless)
    )
    same = [len(row) for row in rows] == [len(row) for row in expected]
    must(same, "foreign text can break the rows of the table")
    for cell in {cell for row in rows for cell in row}:
        formula = cell[:1] in ("=", "+", "-", "@", "\t", "\r") and not _is_number(cell)
        must(not formula, f"a spreadsheet takes the cell {cell[:40]!r} for a formula")


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


class _Structure(HTMLParser):
    """The tags of a page with the names of their attributes, and where its links lead."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, ...]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """An opening tag."""
        code = [value for _, value in attrs if (value or "").strip().startswith("javascript:")]
        self.seen.append((tag, *(name for name, _ in attrs), *map(str, code)))

    def handle_endtag(self, tag: str) -> None:
        """A closing tag."""
        self.seen.append(("/", tag))

    def handle_comment(self, data: str) -> None:
        """A comment, which may hide what follows."""
        self.seen.append(("comment",))


def _tags(text: str) -> list[tuple[str, ...]]:
    parser = _Structure()
    parser.feed(text)
    parser.close()
    return parser.seen
