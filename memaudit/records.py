"""Frozen records and their strict JSON form: one codec, driven by the types of the fields.

A record is a frozen dataclass below `Record`. Its fields are texts, numbers, truths, None, tuples,
dicts with text keys, enums, arrays (`Floats`, `Integers`, `Complexes`) and other records. `to_dict`
gives plain JSON values; `from_dict` takes nothing else, and names the place of what does not fit.
What a record demands beyond types it checks itself in `__post_init__`, by a ValueError.
"""

from __future__ import annotations

import math
from dataclasses import MISSING, fields
from enum import StrEnum
from functools import cache
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Self, Union, get_args, get_origin, get_type_hints

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray
else:

    class Array:
        """The array of numpy, by its name alone: numpy loads when there are numbers."""


#: JSON holds integers of any size; arithmetic with those beyond this one fails somewhere later.
LARGEST = 2**63 - 1
#: JSON has no number for infinity, so a word stands there, where a field allows it.
INFINITE = "infinite"

Floats = Annotated[Array, float]
Integers = Annotated[Array, int]
Complexes = Annotated[Array, complex]
#: A number, or an array of numbers, that may be infinite.
Unbounded = Annotated[float, "unbounded"]
UnboundedFloats = Annotated[Array, "unbounded"]


class Record:
    """A frozen dataclass that turns into plain JSON values, back, and compares by them."""

    __slots__ = ()

    def stored(self) -> Self:
        """The record as a file keeps it; one with very many numbers may keep fewer."""
        return self

    def to_dict(self) -> dict[str, Any]:
        """Plain values only, in the order of the fields."""
        kept = self.stored()
        return {name: plain(getattr(kept, name)) for name in _types(type(self))}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """The inverse of `to_dict`; raises TypeError or ValueError with the place of a misfit."""
        return decode(cls, data)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other.to_dict() == self.to_dict()  # type: ignore[attr-defined]

    __hash__ = None  # type: ignore[assignment]


def plain(value: Any) -> Any:
    """A value as JSON can hold it: lists, dicts, strings, finite numbers, booleans, None."""
    if value is None or (isinstance(value, bool | int | str) and not isinstance(value, StrEnum)):
        return value
    if isinstance(value, float):
        return _word(value) if math.isinf(value) else float(value)
    if isinstance(value, Record):
        return value.to_dict()
    import numpy as np

    if isinstance(value, np.ndarray):
        return _plain_array(value)
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, StrEnum):
        return value.name.lower()
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value


def decode(kind: Any, data: Any, where: str = "") -> Any:
    """A value of a type from its plain form; refuses what the type does not hold."""
    origin, inner = get_origin(kind), get_args(kind)
    if kind is Any:
        _check_free(data, where)
        return data
    if origin is Annotated:
        return _decode_annotated(inner[0], inner[1], data, where)
    if origin in (UnionType, Union):  # with an Annotated part it is the latter
        if data is None and NoneType in inner:
            return None
        return decode(next(part for part in inner if part is not NoneType), data, where)
    if origin is tuple:
        if not isinstance(data, list | tuple):
            raise _misfit(data, "a list", where)
        kinds = inner[:1] * len(data) if inner[-1] is Ellipsis else inner
        if len(data) != len(kinds):
            raise _misfit(data, f"a list of {len(kinds)}", where)
        return tuple(
            decode(one, item, f"{where}.{place}")
            for place, (one, item) in enumerate(zip(kinds, data, strict=True))
        )
    if origin is dict:
        if not isinstance(data, dict):
            raise _misfit(data, "an object", where)
        return {key: decode(inner[1], item, f"{where}.{key}") for key, item in data.items()}
    if isinstance(kind, type) and issubclass(kind, Record):
        return _decode_record(kind, data, where)
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        if not isinstance(data, str) or data.upper() not in kind.__members__:
            raise ValueError(f"{where} is {data!r}, not one of {', '.join(kind.__members__)}")
        return kind[data.upper()]
    return _decode_plain(kind, data, where)


def _decode_record(kind: type[Record], data: Any, where: str) -> Record:
    if not isinstance(data, dict):
        raise _misfit(data, "an object", where)
    types = _types(kind)
    if extra := set(data) - set(types):
        raise ValueError(f"{where or 'the record'} has unknown fields {', '.join(sorted(extra))}")
    inside = f"{where}." if where else ""
    given = {name: decode(types[name], item, f"{inside}{name}") for name, item in data.items()}
    needed = [f.name for f in fields(kind) if f.default is f.default_factory is MISSING]  # type: ignore[arg-type]
    if missing := [name for name in needed if name not in given]:
        raise ValueError(f"{where or 'the record'} lacks {', '.join(missing)}")
    try:
        return kind(**given)
    except ValueError as error:
        raise ValueError(f"{where}: {error}" if where else str(error)) from error


def _decode_plain(kind: Any, data: Any, where: str) -> Any:
    words = {str: "a text", int: "a whole number", float: "a number", bool: "true or false"}
    whole = isinstance(data, int) and not isinstance(data, bool) and abs(data) <= LARGEST
    if kind is float and whole:
        return float(data)
    if (kind is int and whole) or (kind in (str, bool, dict) and isinstance(data, kind)):
        if kind is dict:
            _check_free(data, where)
        return data
    if kind is float and isinstance(data, float):
        if not math.isfinite(data):
            raise ValueError(f"{where} is {data}, which is not finite")
        return data
    raise _misfit(data, words.get(kind) or str(kind), where)


def _decode_annotated(kind: Any, of: Any, data: Any, where: str) -> Any:
    if kind is not Array:  # an unbounded number
        return _infinity(data) if _is_word(data) else decode(kind, data, where)
    if of is complex:
        if not isinstance(data, dict) or set(data) != {"real", "imag"}:
            raise _misfit(data, "real and imaginary parts", where)
        real, imag = (_unbounded(data[part], where) for part in ("real", "imag"))
        if len(real) != len(imag):
            raise ValueError(f"{where} has {len(real)} real and {len(imag)} imaginary parts")
        found = real.astype(complex)
        found.imag = imag
        return found
    if of == "unbounded":
        return _unbounded(data, where)
    return _numbers(data, (int,) if of is int else (int, float), where)


def _unbounded(data: Any, where: str) -> Array:
    """Numbers in a row, infinity as a word."""
    import numpy as np

    if not isinstance(data, list | tuple):
        raise _misfit(data, "a list of numbers", where)
    _numbers([item for item in data if not _is_word(item)], (int, float), where)
    return np.array([_infinity(item) if _is_word(item) else item for item in data], float)


def _numbers(data: Any, kinds: tuple[type, ...], where: str) -> Array:
    """Finite numbers in a row; numpy would read words, truths and None as numbers, too."""
    import numpy as np

    if not isinstance(data, list | tuple):
        raise _misfit(data, "a list of numbers", where)
    if odd := set(map(type, data)) - set(kinds):
        raise TypeError(f"{where} holds {', '.join(sorted(k.__name__ for k in odd))}")
    found = np.asarray(data, dtype=np.float64 if float in kinds else np.int64)
    if not np.isfinite(found).all():
        raise ValueError(f"{where} has a number that is not finite")
    return found


def _plain_array(array: Array) -> Any:
    import numpy as np

    if np.iscomplexobj(array):
        return {"real": _plain_array(np.real(array)), "imag": _plain_array(np.imag(array))}
    values = array.tolist()
    if array.dtype.kind == "f" and np.isinf(array).any():
        return [_word(value) if math.isinf(value) else value for value in values]
    return values


def _word(value: float) -> str:
    return INFINITE if value > 0 else f"-{INFINITE}"


def _is_word(data: Any) -> bool:
    return data in (INFINITE, f"-{INFINITE}") if isinstance(data, str) else False


def _infinity(word: str) -> float:
    return math.inf if word == INFINITE else -math.inf


def _check_free(data: Any, where: str) -> None:
    """What may be anything that JSON holds, such as settings."""
    if isinstance(data, dict | list):
        for name, item in data.items() if isinstance(data, dict) else enumerate(data):
            _check_free(item, f"{where}.{name}")
    elif isinstance(data, float) and not math.isfinite(data):
        raise ValueError(f"{where} is {data}, which is not finite")
    elif isinstance(data, int) and abs(data) > LARGEST:
        raise ValueError(f"{where} is a number of more than 63 bits")
    elif not isinstance(data, str | int | float | None):
        raise _misfit(data, "a value of JSON", where)


def _misfit(data: Any, wanted: str, where: str) -> TypeError:
    return TypeError(f"{where or 'the record'} is {type(data).__name__}, not {wanted}")


@cache
def _types(kind: type[Record]) -> dict[str, Any]:
    hints = get_type_hints(kind, include_extras=True)
    return {field.name: hints[field.name] for field in fields(kind)}  # type: ignore[arg-type]
