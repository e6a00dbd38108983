"""What a bare word in YAML stands for: nothing, a truth value, a number, or itself."""

from __future__ import annotations

import math
import re

from memaudit.loading.configs.config_text import short_number

_NULL = frozenset({"", "~", "null", "Null", "NULL"})
#: Hydra and Lightning read YAML 1.1, in which yes and on are true.
_WORDS = {"yes": True, "true": True, "on": True, "no": False, "false": False, "off": False}
_TRUTH = {
    form: value
    for word, value in _WORDS.items()
    for form in (word, word.capitalize(), word.upper())
}
#: 012 is ten in YAML 1.1 and twelve in 1.2, 1:30 is ninety or text: such words stay text.
_WHOLE = re.compile(r"[-+]?(?:0|[1-9][0-9_]*)", re.ASCII)
_HEXADECIMAL = re.compile(r"[-+]?0x[0-9a-fA-F_]+", re.ASCII)
_FLOAT = re.compile(
    r"[-+]?(?:(?:[0-9][0-9_]*\.[0-9_]*|\.[0-9][0-9_]*)(?:[eE][-+]?[0-9]+)?"
    r"|[0-9][0-9_]*[eE][-+]?[0-9]+)",
    re.ASCII,
)
_INFINITE = re.compile(r"([-+]?)\.(?:inf|Inf|INF)")


def plain_scalar(text: str) -> bool | int | float | str | None:
    """The value of a word without quotes; a date is text, and so is what is no number."""
    if text in _NULL:
        return None
    if text in _TRUTH:
        return _TRUTH[text]
    bare = text.replace("_", "")
    if _WHOLE.fullmatch(text):
        return int(short_number(bare))
    if _HEXADECIMAL.fullmatch(text) and bare[-1] not in "xX":
        return int(short_number(bare), 16)
    if _FLOAT.fullmatch(text):
        return float(short_number(bare))
    if found := _INFINITE.fullmatch(text):
        return -math.inf if found[1] == "-" else math.inf
    return text
