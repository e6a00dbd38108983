"""One page in one file: style, scripts and data inside, and a policy that lets nothing else in."""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from memaudit.data import page_file
from memaudit.errors import clean
from memaudit.reports.page.markup import Markup, joined, tag

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memaudit.reports.page.section import Section

LIBRARY, SCRIPT, STYLE = "echarts.common.min.js", "page.js", "style.css"
THINNED = (
    "This report is large: plots and tables show a part of its numbers, and say so. "
    "The JSON report has more of them."
)


@dataclass(frozen=True, slots=True)
class Document:
    """A page: a header, what is known at once, and sections that the navigation lists."""

    title: str
    header: Markup
    verdict: Markup
    sections: Sequence[Section]
    thinned: bool = False

    def render(self) -> str:
        """The whole file."""
        drawn = [section.markup() for section in self.sections]
        plots = any("<figure" in part for part in drawn)
        scripts = [page_file(name) for name in ([LIBRARY, SCRIPT] if plots else [SCRIPT])]
        style = page_file(STYLE)
        head = tag(
            "head",
            tag("meta", charset="utf-8"),
            _policy(scripts, style),
            tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
            tag("meta", name="color-scheme", content="light dark"),
            tag("meta", name="referrer", content="no-referrer"),
            tag("title", clean(self.title, limit=120)),
            tag("style", Markup(style)),
        )
        body = tag("body", self._body(drawn), [tag("script", Markup(code)) for code in scripts])
        return f"<!DOCTYPE html>\n{tag('html', head, body, lang='en')}\n"

    def _body(self, drawn: Sequence[Markup]) -> Markup:
        notice = tag("p", THINNED, class_="notice") if self.thinned else None
        quiet = "Without scripts the plots stay empty; every one has its numbers in a table."
        return joined(
            tag("a", "Skip to the verdict", href="#verdict", class_="skip"),
            self._navigation(),
            self.header,
            tag("main", notice, self.verdict, tag("noscript", tag("p", quiet)), drawn),
            tag("footer", tag("p", "Written by memaudit. This page loads nothing from elsewhere.")),
            tag("span", id="palette", hidden=True),
        )

    def _navigation(self) -> Markup:
        links = [tag("a", s.title, href=f"#{s.ident}") for s in self.sections]
        theme = tag("button", "Light / dark", type="button", class_="theme", hidden=True)
        listed = tag("ul", [tag("li", link) for link in links])
        return tag("nav", tag("div", listed, theme), aria_label="Sections")


def _policy(scripts: Sequence[str], style: str) -> Markup:
    """Only these scripts and this style; nothing is fetched, sent or framed."""
    rules = [
        "default-src 'none'",
        f"script-src {' '.join(map(_hash, scripts))}",
        f"style-src {_hash(style)}",
        "img-src data:",
        "base-uri 'none'",
        "form-action 'none'",
    ]
    content = "; ".join(rules)
    # Quotes and hashes are ours: escaping them would only make the policy hard to read.
    return Markup(f'<meta http-equiv="Content-Security-Policy" content="{content}">\n')


def _hash(code: str) -> str:
    digest = base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()
    return f"'sha256-{digest}'"
