"""A tree of arrays as `flax.serialization.to_bytes` writes it, under names joined by a slash."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memaudit.errors import SourceError, clean, listed
from memaudit.loading.disk.regular_file import out_of_memory
from memaudit.loading.formats.flax_arrays import (
    CHUNKED,
    FlaxArray,
    UnknownDtype,
    join_chunks,
    read_extension,
)
from memaudit.loading.formats.msgpack_values import (
    Allowance,
    BadMsgpack,
    Extension,
    TooManyValues,
    parse_msgpack,
)
from memaudit.loading.plain_values import plain_values

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import torch

    from memaudit.loading.access import Limits

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
        hint = "copy or download the file again"
        raise _refusal("E_CORRUPT", f"the msgpack file {error}", hint) from None
    except TooManyValues:
        raise _too_many("the msgpack file holds more values than a model has") from None
    except MemoryError:
        raise out_of_memory() from None


def _root(tree: Any) -> dict[str, Any]:
    if isinstance(tree, dict) and CHUNKED not in tree:
        return tree
    what = "a bare array" if isinstance(tree, Extension | dict) else f"a {type(tree).__name__}"
    raise _refusal("E_UNSUPPORTED", f"the file holds {what}, not a map of named arrays", _HINT)


def _sorted(
    leaves: Iterator[tuple[str, Any]], aside: list[str], limits: Limits
) -> tuple[dict[str, torch.Tensor], dict[str, str], list[str]]:
    arrays: dict[str, FlaxArray] = {}
    values: dict[str, Any] = {}
    odd: list[str] = []
    for name, leaf in leaves:
        if name in arrays or name in values:
            fact = f"two values in the file have the name {_shown(name)!r}"
            raise _refusal("E_CORRUPT", fact, _HINT)
        if isinstance(leaf, FlaxArray):
            arrays[name] = leaf
        elif isinstance(leaf, memoryview | Extension):
            odd.append(name)
        else:
            values[name] = [leaf.real, leaf.imag] if isinstance(leaf, complex) else leaf
        if len(arrays) > limits.max_tensors:
            raise _too_many(f"the file holds more than {limits.max_tensors} tensors")
    told = (("what is no part of the model", aside), ("values of unknown kinds", odd))
    notes = [f"left out, {what}: {_listed(names)}" for what, names in told if names]
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
            raise _refusal("E_LIMIT", fact, hint)


def _known(value: Extension | dict[str, Any], name: str, allowance: Allowance) -> Any:
    """An array or a number; an extension that flax does not write stays one."""
    try:
        if isinstance(value, dict):
            return join_chunks(value, allowance)
        found = read_extension(value, allowance)
    except UnknownDtype as error:
        fact = f"the array {_shown(name)!r} has the dtype {clean(error, limit=60)}"
        raise _refusal("E_UNSUPPORTED", fact, _HINT) from None
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


def _too_many(fact: str) -> SourceError:
    hint = "is this a model? if so, raise the limit with --set max_tensors=N"
    return _refusal("E_LIMIT", fact, hint)


def _refusal(code: str, fact: str, hint: str) -> SourceError:
    return SourceError(code, fact, hint=hint, stage="open")
