"""The JSON of a config: plain values, or one sentence on what is wrong.

People and older libraries write configs, so they are less tidy than the headers of weight files: a
byte-order mark is forgiven, and so are Infinity and a key that is merely repeated.
"""

from __future__ import annotations

import json
from typing import Any

from memaudit.errors import SourceError, clean

#: Configs are a few kilobytes; one with the names of 20 000 classes has a megabyte.
LARGEST_CONFIG = 4 << 20
#: The configs of transformers are nested six deep.
DEEPEST = 32
#: A size has 20 digits at most; Python itself gives up at 4300.
LONGEST_NUMBER = 300


class _TextError(Exception):
    """What is wrong with the text; the message completes the sentence `FILE …`."""


def parse_config(data: bytes, *, name: str) -> dict[str, Any]:
    """The JSON object in a file called `name`, or E_CONFIG.

    A key that is stated twice with different values is refused: readers differ in which they take.
    """
    try:
        return _parse(data)
    except _TextError as error:
        raise SourceError(
            "E_CONFIG",
            f"{clean(name)} {error}",
            hint="mend the file, or move it away to open the weights without it",
            stage="open",
        ) from None


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
        raise _TextError("is not UTF-8 text") from None
    except json.JSONDecodeError as error:
        raise _TextError(f"is not JSON (line {error.lineno}: {error.msg})") from None
    except RecursionError:
        raise _TextError("is nested too deeply") from None
    if not isinstance(content, dict):
        kind = "null" if content is None else f"a {type(content).__name__}"
        raise _TextError(f"holds {kind}, not an object")
    _require_shallow(content)
    _require_text(content)
    return content


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A dictionary of the pairs; 1, 1.0 and true are different values."""
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found and repr(found[key]) != repr(value):
            raise _TextError(f"states {clean(key, limit=60)!r} twice, with different values")
        found[key] = value
    return found


def _constant(text: str) -> float:
    if text == "NaN":
        raise _TextError("holds NaN, which is no number")
    return float(text)


def _whole(digits: str) -> int:
    return int(_short(digits))


def _float(digits: str) -> float:
    return float(_short(digits))


def _short(digits: str) -> str:
    if len(digits) > LONGEST_NUMBER:
        raise _TextError(f"holds a number with {len(digits)} digits")
    return digits


def _require_shallow(content: dict[str, Any]) -> None:
    layer: list[Any] = [content]
    for _ in range(DEEPEST):
        inner = (v.values() if isinstance(v, dict) else v for v in layer)
        layer = [v for values in inner for v in values if isinstance(v, dict | list)]
        if not layer:
            return
    raise _TextError(f"is nested more than {DEEPEST} deep")


def _require_text(content: dict[str, Any]) -> None:
    """Refuse half a surrogate pair, which no report could be written with."""
    try:
        json.dumps(content, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        raise _TextError("holds characters that are no text") from None
