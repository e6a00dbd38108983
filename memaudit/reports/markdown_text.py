"""Foreign text inside Markdown: it stays text."""

from __future__ import annotations

import re

from memaudit.errors import clean

#: Marks of Markdown, of its dialects on GitHub and on the hub, and of HTML; an underscore inside
#: of a word is none. Addresses are those that some dialects make links of by themselves.
_MARKS = re.compile(
    r"[\\`*\[\]<>#|~$&]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])|(?<=[A-Za-z]):(?=//)|(?<=\bwww)\.|@",
    re.IGNORECASE,
)
#: What makes a list or a rule at the begin of a line.
_LEADING = re.compile(r"^(?:[-+=]|\d+(?P<mark>[.)])(?=\s|$))")
_NAMED = {"<": "&lt;", ">": "&gt;", "&": "&amp;"}
LONGEST = 500


def escaped(text: object, *, limit: int = LONGEST) -> str:
    """Text that is shown as it is, on one line, inside of a paragraph or a table."""
    return _MARKS.sub(lambda match: entity(match[0]), clean(text, limit=limit))


def paragraph(text: object) -> str:
    """Text that may begin a line."""
    return _LEADING.sub(lambda m: m[0][:-1] + entity(m[0][-1]), escaped(text, limit=1200))


def entity(letter: str) -> str:
    """A letter that is nothing but itself."""
    return _NAMED.get(letter, f"&#{ord(letter)};")


def cell(text: object) -> str:
    """The text of one cell of a table."""
    return escaped(text, limit=200) or " "


def table(head: tuple[str, ...], rows: list[tuple[object, ...]]) -> list[str]:
    """The lines of a table; the cells are foreign text, the head is not."""
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return [*lines, *("| " + " | ".join(map(cell, row)) + " |" for row in rows)]
