"""The JSON of a config: plain values, or one sentence on what is wrong.

People and older libraries write configs, so they are less tidy than the headers of weight files: a
byte-order mark is forgiven, and so are Infinity and a key that is merely repeated.
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from memaudit.errors import SourceError, clean

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Configs are a few kilobytes; one with the names of 20 000 classes has a megabyte.
LARGEST_CONFIG = 4 << 20
#: The configs of transformers are nested six deep.
DEEPEST = 32
#: A size has 20 digits at most; Python itself gives up at 4300.
LONGEST_NUMBER = 300


class BadText(Exception):  # noqa: N818
    """What is wrong with the text; the message completes the sentence `FILE …`."""


def parse_config(data: bytes, *, name: str) -> dict[str, Any]:
    """The JSON object in a file called `name`, or E_CONFIG.

    A key that is stated twice with different values is refused: readers differ in which they take.
    """
    with in_words(name):
        return _parse(data)


@contextmanager
def in_words(name: str) -> Iterator[None]:
    """Turn what is wrong with a text into E_CONFIG, with the name of its file."""
    try:
        yield
    except BadText as error:
        raise SourceError(
            "E_CONFIG",
            f"{clean(name)} {error}",
            hint="mend the file, or move it away to open the weights without it",
            stage="open",
        ) from None


def require_plain(content: dict[str, Any]) -> None:
    """Refuse what is nested too deeply, or holds what no report can be written with."""
    _require_shallow(content)
    _require_text(content)


def put(found: dict[str, Any], key: str, value: Any) -> None:
    """Add an entry, unless it contradicts one that is there; 1, 1.0 and true are different."""
    if key in found and repr(found[key]) != repr(value):
        raise BadText(f"states {clean(key, limit=60)!r} twice, with different values")
    found[key] = value


def short_number(digits: str) -> str:
    """The digits, unless they are more than any number has."""
    if len(digits) > LONGEST_NUMBER:
        raise BadText(f"holds a number with {len(digits)} digits")
    return digits


def _parse(data: bytes) -> dict[str, Any]:
    try:
        content = json.loads(
            data.decode("utf-8-sig"),
            object_pairs_hook=_object,
            parse_constant=_constant,
            parse_int=_whole,
            parse_float=_float,
        )
    except UnicodeDecodeError:
        raise BadText("is not UTF-8 text") from None
    except json.JSONDecodeError as error:
        raise BadText(f"is not JSON (line {error.lineno}: {error.msg})") from None
    except RecursionError:
        raise BadText("is nested too deeply") from None
    if not isinstance(content, dict):
        kind = "null" if content is None else f"a {type(content).__name__}"
        raise BadText(f"holds {kind}, not an object")
    require_plain(content)
    return content


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        put(found, key, value)
    return found


def _constant(text: str) -> float:
    if text == "NaN":
        raise BadText("holds NaN, which is no number")
    return float(text)


def _whole(digits: str) -> int:
    return int(short_number(digits))


def _float(digits: str) -> float:
    return float(short_number(digits))


def _require_shallow(content: dict[str, Any]) -> None:
    layer: list[Any] = [content]
    for _ in range(DEEPEST):
        inner = (v.values() if isinstance(v, dict) else v for v in layer)
        layer = [v for values in inner for v in values if isinstance(v, dict | list)]
        if not layer:
            return
    raise BadText(f"is nested more than {DEEPEST} deep")


def _require_text(content: dict[str, Any]) -> None:
    """Refuse half a surrogate pair, which no report could be written with."""
    try:
        json.dumps(content, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        raise BadText("holds characters that are no text") from None
