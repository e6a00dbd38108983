"""HTML from values: everything that is not markup already is escaped on its way in."""

from __future__ import annotations

import json
import re
from html import escape
from typing import Any

from memaudit.errors import clean

#: Foreign text of one element is cut here; a sentence of a finding may be this long.
LONGEST = 1200
#: Elements that end a line, so that a page can be read and compared line by line.
LINES = frozenset(
    (
        *("header", "main", "nav", "section", "footer", "article", "figure", "figcaption"),
        *("details", "summary", "table", "thead", "tbody", "tr", "caption", "div", "p", "ul"),
        *("li", "dl", "dt", "dd", "h1", "h2", "h3", "script", "style", "title", "meta", "pre"),
        *("fieldset", "button", "option"),
    )
)
#: Numbers and short words, most of a page: there is nothing in them to clean or to escape.
_PLAIN = re.compile(r"[A-Za-z0-9.+-]{1,40}")
VOID = frozenset({"meta", "path", "line", "circle", "br"})


class Markup(str):
    """Text that may stand in a page as it is."""

    __slots__ = ()


def tag(element: str, /, *children: object, **attributes: object) -> Markup:
    """One element; `class_` and `aria_label` stand for class and aria-label.

    None and False leave an attribute out, True gives it without a value.
    """
    opened = element + "".join(_attribute(*pair) for pair in attributes.items())
    end = "\n" if element in LINES else ""
    if element in VOID:
        return Markup(f"<{opened}>{end}")
    return Markup(f"<{opened}>{joined(*children)}</{element}>{end}")


def joined(*children: object) -> Markup:
    """Children one after the other: None is nothing, lists are opened, text is escaped."""
    return Markup("".join(_child(child) for child in children))


def text(value: object, *, limit: int = LONGEST) -> Markup:
    """Foreign text: no control or bidirectional characters, no markup, not too long."""
    if isinstance(value, str) and limit >= 40 and _PLAIN.fullmatch(value):
        return Markup(value)
    return Markup(escape(clean(value, limit=limit), quote=True))


def data_script(data: object, **attributes: object) -> Markup:
    """Data for the script of the page, which no name in it can end or comment out."""
    plain = json.dumps(data, allow_nan=False, separators=(",", ":"))
    for sign in "<>&":
        plain = plain.replace(sign, f"\\u{ord(sign):04x}")
    return tag("script", Markup(plain), type="application/json", **attributes)


def notes(*sentences: object) -> Markup | None:
    """Sentences below a table or plot, each once."""
    told = dict.fromkeys(clean(sentence, limit=LONGEST) for sentence in sentences if sentence)
    return tag("ul", [tag("li", sentence) for sentence in told], class_="notes") if told else None


def _child(child: object) -> str:
    if child is None:
        return ""
    if isinstance(child, Markup):
        return child
    if isinstance(child, list | tuple):
        return joined(*child)
    return _spaced(str(child))


def _spaced(words: str) -> str:
    """Text beside an element keeps the space that parts them."""
    if _PLAIN.fullmatch(words):
        return words
    before, after = (" " if end.isspace() else "" for end in (words[:1], words[-1:]))
    return f"{before}{text(words)}{after}" if words.strip() else before


def _attribute(name: str, value: Any) -> str:
    if value is None or value is False:
        return ""
    written = name.rstrip("_").replace("_", "-")
    return f" {written}" if value is True else f' {written}="{text(value)}"'
