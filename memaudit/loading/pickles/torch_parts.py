"""A torch file taken apart: its pickles, and where the bytes of its storages are."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

from memaudit.errors import SourceError
from memaudit.loading.formats.magic import ZIP
from memaudit.loading.formats.zip_directory import STORED, BadArchive, find_directory, read_members
from memaudit.loading.pickles.reading import Budget, damaged, split_pickles
from memaudit.loading.pickles.storage_types import WIDTHS, Stored

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from memaudit.loading.access import Limits

#: Magic number, version, facts about the machine, the object, the order of the storages.
LEGACY_PICKLES = 5
#: A pickle also holds what trainers keep beside the weights, vocabularies and settings: it may
#: have this many times the bytes of a header.
HEADERS_PER_PICKLE = 4
_LENGTH = struct.Struct("<q")


@dataclass(frozen=True, slots=True)
class Span:
    """The bytes data[start:end] of a file."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class TorchParts:
    """The pickles of a torch file, the members that hold storages, and what is behind them.

    `members` is None for a legacy file, whose storages follow one another from `behind` on.
    """

    data: bytes
    pickles: tuple[bytes, ...]
    members: Mapping[str, Span] | None
    big_endian: bool
    behind: int

    def spans(self, stored: Sequence[Stored], keys: Sequence[str] | None) -> dict[str, Span]:
        """Where each storage is, once its size agrees with what the pickle says."""
        sizes = {found.key: (WIDTHS[found.dtype], found.count) for found in stored}
        if self.members is not None:
            return {key: self._member(key, *size) for key, size in sizes.items()}
        if keys is None or len(set(keys)) < len(keys) or set(keys) != set(sizes):
            raise damaged("the file does not hold the storages that its pickle speaks of")
        spans: dict[str, Span] = {}
        at = self.behind
        for key in keys:
            spans[key] = self._next(at, *sizes[key])
            at = spans[key].end
        return spans

    def _member(self, key: str, width: int, count: int) -> Span:
        span = (self.members or {}).get(key)
        if span is None or span.end - span.start != width * count:
            raise damaged("a tensor in the file is not as large as its pickle says")
        return span

    def _next(self, at: int, width: int, count: int) -> Span:
        """A legacy storage: the count of its numbers, and the numbers."""
        start = at + _LENGTH.size
        end = start + width * count
        if end > len(self.data) or _LENGTH.unpack_from(self.data, at)[0] != count:
            raise damaged("a tensor in the file is not as large as its pickle says")
        return Span(start, end)


def torch_parts(data: bytes, limits: Limits) -> TorchParts:
    """The parts of a torch file, zip or legacy; of a zip, the checksums are not looked at again."""
    if data.startswith(ZIP):
        try:
            return _zip_parts(data, limits)
        except BadArchive as error:
            raise damaged(f"the zip archive {error}") from None
    pickles, behind = split_pickles(data, LEGACY_PICKLES, Budget(limits.max_tensors))
    _require_short(sum(map(len, pickles)), limits)
    return TorchParts(data, pickles, None, False, behind)


def _zip_parts(data: bytes, limits: Limits) -> TorchParts:
    members = read_members(data, find_directory(data))
    spans = {m.name: Span(m.start, m.end) for m in members if m.method == STORED}
    pickles = [name for name in spans if name.endswith("/data.pkl")]
    if len(pickles) != 1 or pickles[0].count("/") != 1:
        raise damaged("the archive does not hold one pickle, as torch.save writes it")
    root = pickles[0].removesuffix("data.pkl")
    span = spans[pickles[0]]
    _require_short(span.end - span.start, limits)
    order = spans.get(f"{root}byteorder")
    word = b"little" if order is None else data[order.start : order.end]
    if word not in (b"little", b"big"):
        raise damaged()
    prefix = f"{root}data/"
    storages = {n.removeprefix(prefix): s for n, s in spans.items() if n.startswith(prefix)}
    return TorchParts(data, (data[span.start : span.end],), storages, word == b"big", len(data))


def _require_short(length: int, limits: Limits) -> None:
    most = HEADERS_PER_PICKLE * limits.max_header
    if length > most:
        needed = -(-length // HEADERS_PER_PICKLE)
        raise SourceError(
            "E_LIMIT",
            f"the pickle in the file has {length} bytes, more than {most}",
            hint=f"is this a model? if so, raise the limit with --set max_header={needed}",
            stage="open",
        )
