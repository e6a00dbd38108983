"""The values of a msgpack text: maps, lists, words and numbers; arrays stay bytes."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any, NoReturn

#: Parameter trees of flax are a dozen deep.
DEEPEST = 64
#: First byte → how the value behind it is read by `struct`.
_NUMBERS = {
    **{0xCA: ">f", 0xCB: ">d", 0xCC: ">B", 0xCD: ">H", 0xCE: ">I", 0xCF: ">Q"},
    **{0xD0: ">b", 0xD1: ">h", 0xD2: ">i", 0xD3: ">q"},
}
_CONSTANTS = {0xC0: None, 0xC2: False, 0xC3: True}
#: First byte → the width of the length behind it.
_BYTES = {0xC4: 1, 0xC5: 2, 0xC6: 4}
_EXTENSIONS = {0xC7: 1, 0xC8: 2, 0xC9: 4}
_SHORT_EXTENSIONS = {0xD4: 1, 0xD5: 2, 0xD6: 4, 0xD7: 8, 0xD8: 16}
_TEXTS = {0xD9: 1, 0xDA: 2, 0xDB: 4}
_LISTS = {0xDC: 2, 0xDD: 4}
_MAPS = {0xDE: 2, 0xDF: 4}


class BadMsgpack(ValueError):  # noqa: N818
    """What is wrong with the bytes, as a fact to follow the name of the file."""


class TooManyValues(ValueError):  # noqa: N818
    """The bytes hold more values than their reader is ready for."""


@dataclass(frozen=True, slots=True)
class Extension:
    """A value of a kind that msgpack itself does not know, with its bytes."""

    code: int
    raw: memoryview


class Allowance:
    """How many values may still be made: five million empty maps fit into five megabytes."""

    def __init__(self, values: int) -> None:
        self.left = values


def parse_msgpack(data: bytes | memoryview, allowance: Allowance) -> Any:
    """The one value that the bytes spell; bytes in it are views of those that were given.

    No length is believed before as many bytes have been seen, and no value is made that the
    allowance has no room for.
    """
    reader = _Reader(memoryview(data), allowance)
    found = reader.value(0)
    reader.finish()
    return found


class _Reader:
    """Reads value after value."""

    def __init__(self, data: memoryview, allowance: Allowance) -> None:
        self._data = data
        self._at = 0
        self._allowance = allowance

    def finish(self) -> None:
        """Refuse bytes behind the value."""
        if self._at < len(self._data):
            raise BadMsgpack(f"has {len(self._data) - self._at} bytes behind its end")

    def value(self, depth: int) -> Any:
        """The next value."""
        self._allowance.left -= 1
        if self._allowance.left < 0:
            raise TooManyValues
        if self._at >= len(self._data):
            raise BadMsgpack("is cut short")
        first = self._data[self._at]
        self._at += 1
        if first < 0x80:
            return first
        if first >= 0xE0:
            return first - 0x100
        if first < 0x90:
            return self._map(first & 0x0F, depth)
        if first < 0xA0:
            return self._list(first & 0x0F, depth)
        if first < 0xC0:
            return self._text(first & 0x1F)
        return self._long(first, depth)

    def _long(self, first: int, depth: int) -> Any:
        """A value that says its length or its number in bytes of its own."""
        if first in _CONSTANTS:
            return _CONSTANTS[first]
        if first in _NUMBERS:
            form = _NUMBERS[first]
            return struct.unpack(form, self._take(struct.calcsize(form)))[0]
        if first in _TEXTS:
            return self._text(self._length(_TEXTS[first]))
        if first in _BYTES:
            return self._take(self._length(_BYTES[first]))
        if first in _LISTS:
            return self._list(self._length(_LISTS[first]), depth)
        if first in _MAPS:
            return self._map(self._length(_MAPS[first]), depth)
        if first in _SHORT_EXTENSIONS:
            return self._extension(_SHORT_EXTENSIONS[first])
        if first in _EXTENSIONS:
            return self._extension(self._length(_EXTENSIONS[first]))
        raise BadMsgpack("holds a byte that begins no value")

    def _take(self, length: int) -> memoryview:
        if length > len(self._data) - self._at:
            raise BadMsgpack("is cut short")
        found = self._data[self._at : self._at + length]
        self._at += length
        return found

    def _length(self, width: int) -> int:
        return int.from_bytes(self._take(width), "big")

    def _text(self, length: int) -> str:
        try:
            return str(self._take(length), "utf-8")
        except UnicodeDecodeError:
            raise BadMsgpack("holds text that is not UTF-8") from None

    def _extension(self, length: int) -> Extension:
        code = self._take(1)[0]
        return Extension(code - 0x100 if code > 0x7F else code, self._take(length))

    def _list(self, length: int, depth: int) -> list[Any]:
        self._require_room(length, depth)
        return [self.value(depth + 1) for _ in range(length)]

    def _map(self, length: int, depth: int) -> dict[str, Any]:
        self._require_room(2 * length, depth)
        found: dict[str, Any] = {}
        for _ in range(length):
            key = self.value(depth + 1)
            if not isinstance(key, str):
                _refuse_key(key)
            if key in found:
                raise BadMsgpack(f"names {key[:200]!r} twice")
            found[key] = self.value(depth + 1)
        return found

    def _require_room(self, values: int, depth: int) -> None:
        """Every value takes a byte or more: a longer list cannot be there."""
        if depth >= DEEPEST:
            raise BadMsgpack("is nested too deeply")
        if values > len(self._data) - self._at:
            raise BadMsgpack("is cut short")
        if values > self._allowance.left:
            raise TooManyValues


def _refuse_key(key: object) -> NoReturn:
    raise BadMsgpack(f"has a key that is {type(key).__name__}, not text")
