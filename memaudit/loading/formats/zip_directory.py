"""The directory of a zip archive, in the one form about which all readers agree."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

STORED, DEFLATED = 0, 8
_END = struct.Struct("<4sHHHHIIH")
_LOCATOR = struct.Struct("<4sIQI")
_END_64 = struct.Struct("<4sQHHIIQQQQ")
_ENTRY = struct.Struct("<4sHHHHHHIIIHHHHHII")
_LOCAL = struct.Struct("<4sHHHHHIIIHH")
_SENTINEL_16, _SENTINEL_32 = 0xFFFF, 0xFFFFFFFF
_ZIP64_FIELD = 1
_UTF8 = 1 << 11
#: Encrypted, patched, strongly encrypted, masked.
_SEALED = 1 << 0 | 1 << 5 | 1 << 6 | 1 << 13


class BadArchive(ValueError):  # noqa: N818
    """What is wrong with an archive, as a fact to follow "the zip archive"."""


class SealedArchive(BadArchive):
    """The archive is encrypted."""


@dataclass(frozen=True, slots=True)
class Directory:
    """Where the list of members stands, and how many they are."""

    start: int
    end: int
    count: int


@dataclass(frozen=True, slots=True)
class Member:
    """One member: its packed bytes are data[start:end]."""

    name: str
    method: int
    checksum: int
    size: int
    header: int
    start: int
    end: int


def find_directory(data: bytes) -> Directory:
    """The directory of an archive that begins with its first member and ends with its directory.

    Readers differ in where they look for the end record, in which of two they believe, and in
    what they make of bytes before or behind the archive: none of that is accepted.
    """
    place = len(data) - _END.size
    if place < 0 or data[place : place + 4] != b"PK\5\6":
        raise BadArchive("is cut short, or has bytes behind its end")
    _, disk, first, here, count, size, start, comment = _END.unpack_from(data, place)
    if comment or disk or first or here != count:
        raise BadArchive("does not end as an archive does")
    place, large = _large_end(data, place)
    if large is not None:
        stated, known = (count, size, start), (_SENTINEL_16, _SENTINEL_32, _SENTINEL_32)
        for small, full, sentinel in zip(stated, large, known, strict=True):
            if small not in (full, sentinel):
                raise BadArchive("states two sizes for its directory")
        count, size, start = large
    if start + size != place:
        raise BadArchive("does not hold its directory where it says")
    if count * _ENTRY.size > size:
        raise BadArchive("has a directory that is too short")
    return Directory(start, place, count)


def _large_end(data: bytes, place: int) -> tuple[int, tuple[int, int, int] | None]:
    """The end of the directory, and its count, size and start by the 64-bit record, if any."""
    locator = place - _LOCATOR.size
    if locator < 0 or data[locator : locator + 4] != b"PK\6\7":
        return place, None
    _, disk, where, disks = _LOCATOR.unpack_from(data, locator)
    if disk or disks > 1 or where != locator - _END_64.size or data[where : where + 4] != b"PK\6\6":
        raise BadArchive("has its 64-bit end record in the wrong place")
    _, length, _, _, disk, first, here, count, size, start = _END_64.unpack_from(data, where)
    if length != _END_64.size - 12 or disk or first or here != count:
        raise BadArchive("does not end as an archive does")
    return where, (count, size, start)


def read_members(data: bytes, directory: Directory) -> tuple[Member, ...]:
    """Every member, in the order of the directory; no two of them share a byte."""
    members = tuple(_entries(data, directory))
    placed = sorted(members, key=lambda member: member.header)
    if placed and placed[0].header != 0:
        raise BadArchive("has bytes before its first member")
    if any(after.header < before.end for before, after in pairwise(placed)):
        raise BadArchive("has members that overlap")
    if placed and placed[-1].end > directory.start:
        raise BadArchive("has a member that reaches into the directory")
    if len({member.name for member in members}) < len(members):
        raise BadArchive("holds two members of one name")
    return members


def _entries(data: bytes, directory: Directory) -> Iterator[Member]:
    at = directory.start
    for _ in range(directory.count):
        if at + _ENTRY.size > directory.end or data[at : at + 4] != b"PK\1\2":
            raise BadArchive("has a directory that is too short")
        fields = _ENTRY.unpack_from(data, at)
        _, _, _, flags, method, _, _, checksum, packed, size = fields[:10]
        lengths, disk, header = fields[10:13], fields[13], fields[16]
        name_end = at + _ENTRY.size + lengths[0]
        extra_end = name_end + lengths[1]
        name, extra = data[at + _ENTRY.size : name_end], data[name_end:extra_end]
        at = extra_end + lengths[2]
        if at > directory.end or disk:
            raise BadArchive("has a directory that is too short")
        size, packed, header = _wide(extra, size, packed, header)
        if method == STORED and size != packed:
            raise BadArchive("states two sizes for a member")
        start = _data_start(data, header, name=name, method=method, flags=flags)
        yield Member(_text(name, flags), method, checksum, size, header, start, start + packed)
    if at != directory.end:
        raise BadArchive("lists more members than it counts")


def _wide(extra: bytes, *values: int) -> tuple[int, int, int]:
    """Size, packed size and place, from the 64-bit field where the 32 bits do not suffice."""
    wide = _field(extra, _ZIP64_FIELD)
    found: list[int] = []
    for value in values:
        if value != _SENTINEL_32:
            found.append(value)
            continue
        if len(wide) < 8:
            raise BadArchive("states no size for a member")
        found.append(int.from_bytes(wide[:8], "little"))
        wide = wide[8:]
    return found[0], found[1], found[2]


def _field(extra: bytes, wanted: int) -> bytes:
    at, found = 0, b""
    while at + 4 <= len(extra):
        kind, length = struct.unpack_from("<HH", extra, at)
        if kind == wanted:
            if found:
                raise BadArchive("states two sizes for a member")
            found = extra[at + 4 : at + 4 + length]
        at += 4 + length
    return found


def _data_start(data: bytes, header: int, *, name: bytes, method: int, flags: int) -> int:
    """Where a member's bytes begin; what stands before them must say what the directory says."""
    if header + _LOCAL.size > len(data) or data[header : header + 4] != b"PK\3\4":
        raise BadArchive("has no member where its directory says")
    _, _, own_flags, own_method, _, _, _, _, _, name_length, extra = _LOCAL.unpack_from(
        data, header
    )
    if (flags | own_flags) & _SEALED:
        raise SealedArchive("is encrypted")
    start = header + _LOCAL.size + name_length + extra
    if own_method != method or data[header + _LOCAL.size : start - extra] != name:
        raise BadArchive("names a member in two ways")
    return start


def _text(name: bytes, flags: int) -> str:
    if b"\0" in name:  # where some readers end a name
        raise BadArchive("holds a member with NUL in its name")
    try:
        return name.decode("utf-8" if flags & _UTF8 else "cp437")
    except UnicodeDecodeError:
        raise BadArchive("holds a member whose name is no text") from None
