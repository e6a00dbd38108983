"""The msgpack files of flax: maps of maps with arrays as leaves."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

import torch

from memaudit.errors import clean, listed
from memaudit.loading.files import out_of_memory
from memaudit.loading.formats import corrupt, count_bytes, plain_values, refusal, too_many

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from memaudit.loading.access import Limits

# -- The values of a msgpack text: maps, lists, words and numbers; arrays stay bytes.

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


# -- Arrays as flax writes them into msgpack: a shape, the name of a dtype, and the numbers.

#: The kinds of value that flax adds to msgpack.
ARRAY, COMPLEX, SCALAR = 1, 2, 3
#: Marks a map that holds one array in pieces: msgpack ends at four gigabytes.
CHUNKED = "__msgpack_chunked_array__"
_DTYPES = frozenset(
    {
        *("float64", "float32", "float16", "bfloat16", "complex64", "complex128", "bool"),
        *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
        *("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"),
    }
)
#: Flax cuts arrays into pieces of a gigabyte: nobody has so many.
MOST_PIECES = 4096
_LONGEST_DTYPE = 60


class UnknownDtype(ValueError):  # noqa: N818
    """The array has a dtype that torch does not have; the message names it."""


@dataclass(frozen=True, slots=True)
class FlaxArray:
    """A dense array in its bytes, in rows; its size is that of the bytes."""

    shape: tuple[int, ...]
    dtype: str
    pieces: tuple[memoryview, ...]

    def tensor(self) -> torch.Tensor:
        """A copy of its own."""
        kind = getattr(torch, self.dtype)
        if not any(map(len, self.pieces)):
            return torch.empty(self.shape, dtype=kind)
        raw = torch.frombuffer(bytearray().join(self.pieces), dtype=torch.uint8)
        if self.dtype == "bool" and bool((raw > 1).any()):
            raise BadMsgpack("holds truth values that are neither true nor false")
        return raw.view(kind).reshape(self.shape)


def read_extension(found: Extension, allowance: Allowance) -> FlaxArray | complex | None:
    """What an extension stands for; None for a kind that flax does not write."""
    if found.code in (ARRAY, SCALAR):
        array = _array(parse_msgpack(found.raw, allowance))
        if found.code == SCALAR and array.shape:
            raise BadMsgpack("holds a single number with a shape")
        return array
    if found.code != COMPLEX:
        return None
    match parse_msgpack(found.raw, allowance):
        case [int() | float() as real, int() | float() as imaginary]:
            return complex(real, imaginary)
    raise BadMsgpack("holds a complex number that is none")


def join_chunks(found: dict[str, Any], allowance: Allowance) -> FlaxArray:
    """The array that a map holds in pieces; the shape and the pieces are maps from "0" on."""
    if found.get(CHUNKED) is not True or set(found) != {CHUNKED, "shape", "chunks"}:
        raise BadMsgpack("holds an array in pieces that are none")
    shape, chunks = _as_list(found["shape"]), _as_list(found["chunks"])
    if len(chunks) > MOST_PIECES:
        raise BadMsgpack(f"holds an array in more than {MOST_PIECES} pieces")
    pieces = [_piece(chunk, allowance) for chunk in chunks]
    kinds = {array.dtype for array in pieces}
    if len(kinds) != 1:
        raise BadMsgpack("holds an array in pieces that do not belong together")
    return _checked(shape, kinds.pop(), tuple(raw for array in pieces for raw in array.pieces))


def _piece(chunk: Any, allowance: Allowance) -> FlaxArray:
    array = read_extension(chunk, allowance) if isinstance(chunk, Extension) else None
    if not isinstance(array, FlaxArray) or len(array.shape) != 1:
        raise BadMsgpack("holds an array in pieces that do not belong together")
    return array


def _array(found: Any) -> FlaxArray:
    match found:
        case [[*shape], str(dtype), memoryview() as raw]:
            if dtype not in _DTYPES:
                raise UnknownDtype(dtype[:_LONGEST_DTYPE])
            return _checked(shape, dtype, (raw,))
    raise BadMsgpack("holds an array that is cut short or damaged")


def _checked(shape: list[Any], dtype: str, pieces: tuple[memoryview, ...]) -> FlaxArray:
    width = getattr(torch, dtype).itemsize
    if count_bytes(shape, width) != sum(map(len, pieces)):
        raise BadMsgpack("holds an array that is not as large as it says")
    return FlaxArray(tuple(shape), dtype, pieces)


def _as_list(found: Any) -> list[Any]:
    """A tuple as flax writes it: a map with the names "0", "1", …; or a plain list."""
    if isinstance(found, list):
        return found
    if not isinstance(found, dict) or any(str(i) not in found for i in range(len(found))):
        raise BadMsgpack("holds an array in pieces that are none")
    return [found[str(i)] for i in range(len(found))]


_LONGEST_NAME = 120

#: Values for every tensor that may be there: its name, its parts, and the maps around it.
PER_TENSOR = 16
_HINT = "save the parameters alone, as .npz or .safetensors"


def read_msgpack(
    data: bytes, limits: Limits, *, beside: Callable[[str], bool]
) -> tuple[dict[str, torch.Tensor], dict[str, str], list[str]]:
    """The arrays in file order, plain values as metadata, and notes on the rest.

    The names are those of the maps, joined by a slash, as `flax.traverse_util` joins them.
    `beside` says by its name what is no part of the model, such as the state of an optimizer.
    """
    try:
        allowance = Allowance(PER_TENSOR * limits.max_tensors)
        root = _root(parse_msgpack(data, allowance))
        rich = _with_arrays(root)
        aside = {key: None for key, part in root.items() if beside(key) and _is_rich(part, rich)}
        kept = {key: value for key, value in root.items() if key not in aside}
        return _sorted(_Walk(rich, allowance, limits).leaves(kept, ""), list(aside), limits)
    except BadMsgpack as error:
        raise corrupt(f"the msgpack file {error}") from None
    except TooManyValues:
        raise too_many("the msgpack file holds more values than a model has") from None
    except MemoryError:
        raise out_of_memory() from None


def _root(tree: Any) -> dict[str, Any]:
    if isinstance(tree, dict) and CHUNKED not in tree:
        return tree
    what = "a bare array" if isinstance(tree, Extension | dict) else f"a {type(tree).__name__}"
    raise refusal("E_UNSUPPORTED", f"the file holds {what}, not a map of named arrays", hint=_HINT)


def _sorted(
    leaves: Iterator[tuple[str, Any]], aside: list[str], limits: Limits
) -> tuple[dict[str, torch.Tensor], dict[str, str], list[str]]:
    arrays: dict[str, FlaxArray] = {}
    values: dict[str, Any] = {}
    odd: list[str] = []
    for name, leaf in leaves:
        if name in arrays or name in values:
            fact = f"two values in the file have the name {_shown(name)!r}"
            raise corrupt(fact, hint=_HINT)
        if isinstance(leaf, FlaxArray):
            arrays[name] = leaf
        elif isinstance(leaf, memoryview | Extension):
            odd.append(name)
        else:
            values[name] = [leaf.real, leaf.imag] if isinstance(leaf, complex) else leaf
        if len(arrays) > limits.max_tensors:
            raise too_many(f"the file holds more than {limits.max_tensors} tensors")
    left_out = (("what is no part of the model", aside), ("values of unknown kinds", odd))
    notes = [f"left out, {what}: {_listed(names)}" for what, names in left_out if names]
    return {name: array.tensor() for name, array in arrays.items()}, plain_values(values), notes


class _Walk:
    """Walks through the tree; the names that it makes are paid for before they are made."""

    def __init__(self, rich: set[int], allowance: Allowance, limits: Limits) -> None:
        self._rich, self._allowance = rich, allowance
        self._most = self._left = limits.max_header

    def leaves(self, value: Any, name: str) -> Iterator[tuple[str, Any]]:
        """Every array and every plain value, by its name."""
        if isinstance(value, list) and id(value) in self._rich:
            value = {str(place): inner for place, inner in enumerate(value)}
        if isinstance(value, Extension) or (isinstance(value, dict) and CHUNKED in value):
            yield name, _known(value, name, self._allowance)
        elif isinstance(value, dict):
            for key, inner in value.items():
                self._pay(len(name) + len(key) + 1)
                yield from self.leaves(inner, f"{name}/{key}" if name else key)
        else:
            yield name, value

    def _pay(self, length: int) -> None:
        self._left -= length
        if self._left < 0:
            fact = f"the names in the file have more than {self._most} characters together"
            hint = "is this a model? if so, raise the limit with --set max_header=N"
            raise refusal("E_LIMIT", fact, hint=hint)


def _known(value: Extension | dict[str, Any], name: str, allowance: Allowance) -> Any:
    """An array or a number; an extension that flax does not write stays one."""
    try:
        if isinstance(value, dict):
            return join_chunks(value, allowance)
        found = read_extension(value, allowance)
    except UnknownDtype as error:
        fact = f"the array {_shown(name)!r} has the dtype {clean(error, limit=60)}"
        raise refusal("E_UNSUPPORTED", fact, hint=_HINT) from None
    return value if found is None else found


def _with_arrays(root: dict[str, Any]) -> set[int]:
    """Which maps and lists have more inside than plain values, by identity, in one walk."""
    rich: set[int] = set()

    def look(value: Any) -> bool:
        if not isinstance(value, dict | list):
            return isinstance(value, Extension | memoryview)
        found = [look(part) for part in (value.values() if isinstance(value, dict) else value)]
        if any(found):
            rich.add(id(value))
        return any(found)

    look(root)
    return rich


def _is_rich(value: Any, rich: set[int]) -> bool:
    return isinstance(value, Extension | memoryview) or id(value) in rich


def _listed(names: Sequence[str]) -> str:
    return listed(names, limit=_LONGEST_NAME)


def _shown(name: str) -> str:
    return clean(name, limit=_LONGEST_NAME)
