"""Whether a record that was read holds what its fields declare."""

from __future__ import annotations

from dataclasses import fields
from functools import cache
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

import numpy as np

from memaudit.records import Record
from memaudit.results.reading import LARGEST, listed

#: What stands in a sentence for a type.
WORDS = {str: "a text", int: "a whole number", float: "a number", bool: "true or false"}
#: Settings that are more than shown.
SETTINGS = {"horizon": int, "seed": int, "level": str}


def check_settings(settings: dict[str, Any]) -> None:
    """Refuse settings of another type than the options that reports tell again have."""
    for name, kind in SETTINGS.items():
        if settings.get(name) is not None:
            _check(settings[name], kind, f"settings.{name}")
    for name in ("queries", "probes"):
        if settings.get(name) is not None:
            _check_tuple(tuple(listed(settings[name])), (str, ...), f"settings.{name}")


def check_types(record: Record, where: str = "") -> None:
    """Refuse values of another type than a field has, at any depth, by the place of the first.

    A report is shown in many ways long after it was read: what is wrong with it is said here, once.
    """
    for name, kind in _kinds(type(record)).items():
        _check(getattr(record, name), kind, f"{where}.{name}" if where else name)


@cache
def _kinds(record: type[Record]) -> dict[str, Any]:
    hints = get_type_hints(record)
    return {field.name: hints[field.name] for field in fields(record)}  # type: ignore[arg-type]


def _check(value: Any, kind: Any, where: str) -> None:
    origin, inner = get_origin(kind), get_args(kind)
    if value is None and NoneType in inner:
        return
    if kind is Any:
        _check_free(value, where)
    elif origin is UnionType:
        _check(value, next(part for part in inner if part is not NoneType), where)
    elif origin is tuple:
        _check_tuple(value, inner, where)
    elif origin is dict:
        _check_dict(value, inner, where)
    elif isinstance(value, Record) and isinstance(value, kind):
        check_types(value, where)
    else:
        _must(_fits(value, kind), value, WORDS.get(kind) or str(kind.__name__), where)


def check_numbers(data: Any, where: str = "the report") -> None:
    """Refuse what strict JSON has no number for; writing it all to see would take much longer."""
    if isinstance(data, dict | list | tuple):
        kinds = set() if isinstance(data, dict) else set(map(type, data))
        # Long lists hold one kind of number, and are seen in one go.
        if kinds == {int} or (kinds == {float} and np.isfinite(np.asarray(data)).all()):
            return
        named = data.items() if isinstance(data, dict) else enumerate(data)
        for name, item in named:
            check_numbers(item, f"{where}.{name}".removeprefix("the report."))
    elif isinstance(data, float) and not np.isfinite(data):
        raise ValueError(f"{where} is {data}, which is not finite")
    elif not isinstance(data, str | int | float | None):
        raise TypeError(f"{where} is {type(data).__name__}, which no report holds")


def _check_dict(value: Any, inner: tuple[Any, ...], where: str) -> None:
    _must(isinstance(value, dict), value, "an object", where)
    for key, item in dict(value).items():
        _check(key, inner[0], f"a key of {where}")
        _check(item, inner[1], f"{where}.{key}")


def _check_tuple(value: Any, inner: tuple[Any, ...], where: str) -> None:
    _must(isinstance(value, tuple), value, "a list", where)
    if inner[-1] is Ellipsis:
        inner = inner[:1] * len(value)
    _must(len(value) == len(inner), value, f"a list of {len(inner)}", where)
    for number, (item, kind) in enumerate(zip(value, inner, strict=True)):
        _check(item, kind, f"{where}.{number}")


def _check_free(value: Any, where: str) -> None:
    """What may be anything: a record of ours, or what a plugin says."""
    if isinstance(value, Record):
        check_types(value, where)
    elif isinstance(value, dict | list):
        named = value.items() if isinstance(value, dict) else enumerate(value)
        for name, item in named:
            _check_free(item, f"{where}.{name}")
    elif isinstance(value, int):
        _must(abs(value) <= LARGEST, value, "a number of at most 63 bits", where)


def _fits(value: Any, kind: type) -> bool:
    """Truth is no number, a whole number is one, and none is too large for arithmetic."""
    if kind is np.ndarray:
        return isinstance(value, np.ndarray) and value.ndim == 1
    if kind in (int, float) and isinstance(value, int):
        return not isinstance(value, bool) and abs(value) <= LARGEST
    return isinstance(value, kind)


def _must(right: bool, value: Any, wanted: str, where: str) -> None:
    if not right:
        raise TypeError(f"{where} is {type(value).__name__}, not {wanted}")
