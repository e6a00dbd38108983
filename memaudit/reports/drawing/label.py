"""Foreign names as labels: plain text in a legend of matplotlib."""

from __future__ import annotations

from memaudit.errors import clean

#: A legend has little room.
LONGEST = 40


def label(name: object, *, limit: int = LONGEST) -> str:
    """A name without control characters and formulas; a legend hides what begins with `_`."""
    plain = clean(name, limit=limit).replace("$", r"\$")
    return f" {plain}" if plain.startswith("_") else plain
