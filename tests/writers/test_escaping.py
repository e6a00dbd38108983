"""What a file calls its tensors stays text in every report format, whatever it holds."""

from __future__ import annotations

import json
import re
from functools import cache
from html.parser import HTMLParser

import pytest

from memaudit import registry
from memaudit.testing import sample_reports
from memaudit.testing.laws import HOSTILE, NAMES, everywhere

#: A name may make a line longer, but not by more than this.
LONGEST_LINE = 10_000
#: Marks that are Markdown's own when no backslash stands before them.
MARKS = (r"(?<!\\)\|", "`", r"(?<!\\)\]\(", r"(?<!\\)<(?=[a-zA-Z/!?])")


class Tags(HTMLParser):
    """The tags of a page with the names of their attributes, and links that run code."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.seen: list[tuple[str, ...]] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        code = [str(value) for _, value in attrs if str(value).strip().startswith("javascript:")]
        self.seen.append((tag, *(name for name, _ in attrs), *code))

    def handle_endtag(self, tag):
        self.seen.append(("/", tag))

    def handle_comment(self, data):
        self.seen.append(("comment",))


@cache
def rendered(form: str, name: str) -> str:
    return registry.build("reports", form).render(everywhere(sample_reports()["deep"], name))


#: matplotlib takes seconds to draw a name: one with everything always runs, before a release all.
ASKED = [
    pytest.param(
        *(form, what),
        id=f"{form}-{what}",
        marks=pytest.mark.slow if form == "figure" and what != "control characters" else (),
    )
    for form in registry.BUILT_IN["reports"]
    for what in ("control characters", *NAMES)
]


@pytest.mark.parametrize(("form", "what"), ASKED)
def test_a_hostile_name_leaves_the_form_of_a_report(form, what):
    text, plain = (
        rendered(form, {**NAMES, "control characters": HOSTILE}[what]),
        rendered(form, "x"),
    )
    if registry.build("reports", form).suffix.endswith(".json"):
        assert text.isascii()
        json.dumps(json.loads(text), ensure_ascii=False).encode()  # no half of a surrogate pair
        return
    assert text.count("\t") == plain.count("\t")
    assert "\r" not in text
    longest, usual = (max(map(len, page.splitlines())) for page in (text, plain))
    assert longest - usual <= LONGEST_LINE
    if form in ("html", "figure", "junit"):
        assert Tags(text).seen == Tags(plain).seen
    if form == "markdown":
        # Inside of <pre> nothing but HTML is read.
        pages = [re.sub(r"(?<=<pre>)[^<]*(?=</pre>)", "", page) for page in (text, plain)]
        counts = [[len(re.findall(mark, page)) for mark in MARKS] for page in pages]
        assert counts[0] == counts[1]
