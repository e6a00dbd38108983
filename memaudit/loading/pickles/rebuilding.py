"""From a description to values and tensors; the description is believed in nothing."""

from __future__ import annotations

import base64
import binascii
import math
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from memaudit.errors import MachineError
from memaudit.loading.pickles.reading import damaged
from memaudit.loading.pickles.storage_types import MOST_NUMBERS, WIDTHS, Stored

if TYPE_CHECKING:
    from collections.abc import Mapping

    from memaudit.loading.pickles.torch_parts import TorchParts

MOST_DIMENSIONS = 64
#: A little more than whoever writes a description allows.
DEEPEST = 80


def rebuild(described: Mapping[str, Any], parts: TorchParts, *, max_tensors: int) -> Any:
    """The content of a torch file, its tensors made from the file's own bytes."""
    try:
        return _Builder(described, parts, max_tensors).value(described["tree"], 0)
    except (KeyError, IndexError, TypeError, ValueError, binascii.Error):
        raise damaged() from None
    except MemoryError:
        raise too_large() from None
    except RuntimeError as error:
        raise (too_large() if "allocate memory" in str(error) else damaged()) from None


class _Builder:
    """Builds every tensor once, however often the tree names it."""

    def __init__(self, described: Mapping[str, Any], parts: TorchParts, max_tensors: int) -> None:
        self._described = described
        self._parts = parts
        stored = [_stored(*fields) for fields in described["storages"]]
        if len(described["tensors"]) + len(described["arrays"]) > max_tensors:
            raise damaged()
        self._spans = parts.spans(stored, described["keys"])
        self._dtypes = {found.key: found.dtype for found in stored}
        self._raw: dict[str, torch.Tensor] = {}
        self._storages: dict[tuple[str, str], torch.Tensor] = {}
        self._tensors: dict[tuple[str, int], torch.Tensor] = {}

    def value(self, node: Any, depth: int) -> Any:
        """One node of the tree."""
        if depth > DEEPEST:
            raise damaged()
        match node:
            case None | bool() | int() | float() | str():
                return node
            case ["d", [*pairs]]:
                return self._dictionary(pairs, depth)
            case ["l", [*items]]:
                return [self.value(item, depth + 1) for item in items]
            case ["t" | "a" as kind, int(place)] if place >= 0:
                return self._tensor(kind, place)
            case ["x"]:
                return None
        raise damaged()

    def _dictionary(self, pairs: list[Any], depth: int) -> dict[Any, Any]:
        """The last value of a key counts: one that was left out takes the others with it."""
        found: dict[Any, Any] = {}
        for said, node in pairs:
            key = _key(said)
            if node == ["x"]:
                found.pop(key, None)
            else:
                found[key] = self.value(node, depth + 1)
        return found

    def _tensor(self, kind: str, place: int) -> torch.Tensor:
        if (kind, place) not in self._tensors:
            if kind == "t":
                made = self._view(*self._described["tensors"][place])
            else:
                made = _from_array(*self._described["arrays"][place])
            self._tensors[kind, place] = made
        return self._tensors[kind, place]

    def _view(
        self,
        key: str,
        dtype: str,
        offset: int,
        size: list[int],
        stride: list[int],
        conjugate: bool,
        negative: bool,
    ) -> torch.Tensor:
        numbers = self._numbers(key, dtype)
        _require_inside(offset, size, stride, room=numbers.numel())
        found = torch.as_strided(numbers, size, stride, offset)
        # Both are lazy: a view costs nothing until it has turned out to be a weight.
        found = found.conj() if conjugate else found
        if negative:
            return torch._neg_view(found)  # pyright: ignore[reportPrivateImportUsage]
        return found

    def _numbers(self, key: str, dtype: str) -> torch.Tensor:
        """The numbers of a storage; a rest that fills no number is left out."""
        if (key, dtype) not in self._storages:
            raw, width = self._bytes(key), WIDTHS[dtype]
            whole = raw[: raw.numel() // width * width]
            self._storages[key, dtype] = _typed(whole, dtype)
        return self._storages[key, dtype]

    def _bytes(self, key: str) -> torch.Tensor:
        """The bytes of a storage, copied once whatever they are taken for."""
        if key not in self._raw:
            span = self._spans[key]
            length = span.end - span.start
            raw = np.frombuffer(self._parts.data, np.uint8, length, span.start).copy()
            swapped = _swapped(raw, self._dtypes[key]) if self._parts.big_endian else raw
            self._raw[key] = torch.from_numpy(swapped)
        return self._raw[key]


def _stored(key: str, dtype: str, count: int) -> Stored:
    if not isinstance(key, str) or type(count) is not int or not 0 <= count < MOST_NUMBERS:
        raise damaged()
    if dtype not in WIDTHS:
        raise damaged()
    return Stored(key, dtype, count)


class Unnamed:
    """A key that can name nothing: every one is another."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def __str__(self) -> str:
        return f"({self.kind})"


def _key(key: Any) -> str | int | bool | Unnamed | None:
    match key:
        case ["k", str(kind)]:
            return Unnamed(kind)
    if key is None or isinstance(key, str | int):
        return key
    raise damaged()


def _require_inside(offset: int, size: list[int], stride: list[int], *, room: int) -> None:
    """Refuse a view that would reach beyond the numbers of its storage."""
    numbers = [offset, *size, *stride]
    if any(type(n) is not int or not 0 <= n < MOST_NUMBERS for n in numbers):
        raise damaged("a tensor in the file has an impossible shape")
    if len(size) != len(stride) or len(size) > MOST_DIMENSIONS:
        raise damaged("a tensor in the file has an impossible shape")
    count = math.prod(max(n, 1) for n in size)
    reach = sum((n - 1) * step for n, step in zip(size, stride, strict=True))
    if count >= MOST_NUMBERS:
        raise damaged("a tensor in the file has an impossible shape")
    if 0 not in size and offset + reach >= room:
        raise damaged("a tensor in the file is larger than its storage")
    if 0 in size and offset > room:
        raise damaged("a tensor in the file begins behind its storage")


def _from_array(
    dtype: str, shape: list[int], big_endian: bool, column_major: bool, raw: str
) -> torch.Tensor:
    """A tensor from the bytes of a numpy array."""
    data = np.frombuffer(base64.b64decode(raw, validate=True), np.uint8).copy()
    if any(type(n) is not int or n < 0 for n in shape) or len(shape) > MOST_DIMENSIONS:
        raise damaged()
    if math.prod(shape) * WIDTHS[dtype] != len(data):
        raise damaged()
    flat = _typed(torch.from_numpy(_swapped(data, dtype) if big_endian else data), dtype)
    if column_major:
        return flat.reshape(shape[::-1]).permute(*reversed(range(len(shape))))
    return flat.reshape(shape)


def _typed(raw: torch.Tensor, dtype: str) -> torch.Tensor:
    """Bytes as numbers; a truth value that is neither 0 nor 1 would be neither true nor false."""
    if dtype == "bool":
        return raw.ne(0)
    kind = getattr(torch, dtype)
    return raw.view(kind) if raw.numel() else torch.empty(0, dtype=kind)


def _swapped(raw: np.ndarray, dtype: str) -> np.ndarray:
    """The bytes of big-endian numbers in the order of this machine."""
    width = WIDTHS[dtype] // (2 if dtype.startswith("complex") else 1)
    return raw.reshape(-1, width)[:, ::-1].reshape(-1).copy()


def too_large() -> MachineError:
    """The refusal of what this machine has no memory for."""
    return MachineError(
        "E_MEMORY",
        "the tensors do not fit into memory",
        hint="use a machine with more memory",
        stage="open",
    )
