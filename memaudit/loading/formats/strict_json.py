"""JSON that a stranger wrote: one object, no name twice, no more pieces than were expected."""

from __future__ import annotations

import json
from typing import Any, NoReturn


class BadJson(ValueError):  # noqa: N818
    """What is wrong with the text, as a fact to follow the name of the file."""


class TooManyPieces(ValueError):  # noqa: N818
    """The text has more commas and brackets than its reader is ready for."""


def parse_object(data: bytes, *, most_pieces: int) -> dict[str, Any]:
    """The object that the bytes spell.

    Five million empty lists fit into 16 MB of text and fill 400 MB of memory, so what could become
    a value is counted before anything is built.
    """
    if sum(data.count(mark) for mark in (b",", b"[", b"{")) > most_pieces:
        raise TooManyPieces
    try:
        found = json.loads(
            data.decode("utf-8"),
            object_pairs_hook=_without_duplicates,
            parse_int=_integer,
            parse_constant=_no_constant,
        )
    except UnicodeDecodeError:
        raise BadJson("is not UTF-8 text") from None
    except json.JSONDecodeError as error:
        raise BadJson(f"is not JSON ({error.msg} at character {error.pos})") from None
    except RecursionError:
        raise BadJson("is nested too deeply") from None
    if not isinstance(found, dict):
        raise BadJson(f"holds a {type(found).__name__}, not an object")
    return found


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))
        raise BadJson(f"names {twice!r} twice")
    for name, value in found.items():
        _require_text(name)
        if isinstance(value, str):
            _require_text(value)
    return found


def _require_text(text: str) -> None:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:  # half of a surrogate pair, which other readers refuse
        raise BadJson("holds characters that are no text") from None


def _integer(digits: str) -> int | float:
    if len(digits) > 20:  # 2**64 has twenty digits
        raise BadJson("holds a number with too many digits")
    return -0.0 if digits == "-0" else int(digits)


def _no_constant(name: str) -> NoReturn:
    raise BadJson(f"holds {name}, which is not JSON")
