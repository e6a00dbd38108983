"""The laws of a report format."""

from __future__ import annotations

import re
import unicodedata

from memaudit.contracts import AbstractReportFormat
from memaudit.testing.law import check_words, must
from memaudit.testing.samples import renamed, sample_reports

#: What a file may call its tensors: a colour, a bell, a tag, a reversed text, a forged line.
HOSTILE = "\x1b[31mred\x07<img src=x onerror=alert(1)>\u202etxt\nforged"


def check_report_format(form: AbstractReportFormat) -> None:
    """The laws of `AbstractReportFormat`: pure, never empty, no verdict lost, no raw names."""
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
    text = form.render(renamed(samples["full"], HOSTILE))
    raw = {c for c in text if unicodedata.category(c) in ("Cc", "Cf") and c not in "\n\r\t"}
    must(not raw, f"foreign text puts {sorted(map(ascii, raw))} into the report")
    flat = form.render(renamed(samples["full"], HOSTILE.replace("\n", " ")))
    same = len(flat.splitlines()) == len(text.splitlines())
    must(same, "a line break in foreign text makes a line of its own in the report")
    markup = form.suffix in (".html", ".htm", ".svg", ".xml")
    must(not markup or "<img src=x" not in text, "foreign text can put tags into the report")
