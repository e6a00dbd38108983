"""Zip archives that different readers read differently, or that are not what they say."""

from __future__ import annotations

import io
import struct
import zipfile
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

STORED, DEFLATED, BZIP2 = 0, 8, 12


@dataclass(frozen=True)
class Part:
    """A member, and where its two descriptions differ from it."""

    name: bytes
    data: bytes = b""
    method: int = STORED
    flags: int = 0
    version: int = 20
    size: int | None = None
    checksum: int | None = None
    local_name: bytes | None = None
    header: int | None = None
    extra: bytes = b""

    @property
    def packed(self) -> bytes:
        if self.method != DEFLATED:
            return self.data
        squeeze = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
        return squeeze.compress(self.data) + squeeze.flush()

    def local(self) -> bytes:
        name = self.name if self.local_name is None else self.local_name
        return struct.pack(
            "<4sHHHHHIIIHH", b"PK\3\4", 20, self.flags, self.method, 0, 0, 0, 0, 0, len(name), 0
        ) + (name + self.packed)

    def listed(self, header: int) -> bytes:
        size = len(self.data) if self.size is None else self.size
        checksum = zlib.crc32(self.data) if self.checksum is None else self.checksum
        numbers = (0, self.version, self.flags, self.method, 0, 0, checksum, len(self.packed), size)
        lengths = (len(self.name), len(self.extra), 0, 0, 0, 0)
        place = header if self.header is None else self.header
        head = struct.pack("<4sHHHHHHIIIHHHHHII", b"PK\1\2", *numbers, *lengths, place)
        return head + self.name + self.extra


def end(count: int, size: int, start: int, *, comment: bytes = b"") -> bytes:
    """The record at the end."""
    return (
        struct.pack("<4sHHHHIIH", b"PK\5\6", 0, 0, count, count, size, start, len(comment))
        + comment
    )


def end_64(count: int, size: int, start: int, *, where: int) -> bytes:
    """The 64-bit record and the locator that says where it is."""
    record = struct.pack("<4sQHHIIQQQQ", b"PK\6\6", 44, 45, 45, 0, 0, count, count, size, start)
    return record + struct.pack("<4sIQI", b"PK\6\7", 0, where, 1)


def archive(
    parts: Sequence[Part],
    *,
    count: int | None = None,
    comment: bytes = b"",
    large: str = "",
) -> bytes:
    """The parts in an archive; `large` adds a 64-bit record that is `right` or lies."""
    body, listed = bytearray(), bytearray()
    for part in parts:
        listed += part.listed(len(body))
        body += part.local()
    start = len(body)
    body += listed
    told = (len(parts) if count is None else count, len(listed), start)
    if large:
        where = 0 if large == "elsewhere" else len(body)
        wide = (told[0] - 1, *told[1:]) if large == "fewer" else told
        body += end_64(*wide, where=where)
    return bytes(body) + end(min(told[0], 0xFFFF), *told[1:], comment=comment)


def torch_parts(root: str = "archive") -> list[Part]:
    """The members of what torch.save writes for one weight, as Parts."""
    stream = io.BytesIO()
    torch.save({"w": torch.arange(4.0)}, stream)
    with zipfile.ZipFile(stream) as whole:
        names = whole.namelist()
        return [Part(n.replace("archive", root, 1).encode(), whole.read(n)) for n in names]


def array(values: np.ndarray) -> bytes:
    """The bytes of a .npy file."""
    stream = io.BytesIO()
    np.save(stream, values)
    return stream.getvalue()


def header_only(text: str, body: bytes = b"") -> bytes:
    """A .npy file with a header of our own."""
    line = text.encode() + b"\n"
    return b"\x93NUMPY\1\0" + struct.pack("<H", len(line)) + line + body


def crooked() -> dict[str, tuple[bytes, str]]:
    """What is wrong → the archive and the code of its refusal."""
    return {**crooked_ends(), **crooked_names(), **crooked_sizes()}


def crooked_ends() -> dict[str, tuple[bytes, str]]:
    """Archives whose directory is looked for in two places, or counted in two ways."""
    parts = torch_parts()
    whole = archive(parts)
    return {
        "text before it": (b"hello" + whole, "E_CORRUPT"),
        "another archive before it": (archive(torch_parts("first")) + whole, "E_CORRUPT"),
        "bytes behind it": (whole + bytes(100), "E_CORRUPT"),
        "a second end in a comment": (archive(parts, comment=end(0, 0, 0)), "E_CORRUPT"),
        "a large record elsewhere": (archive(parts, large="elsewhere"), "E_CORRUPT"),
        "a large record that disagrees": (archive(parts, large="fewer"), "E_CORRUPT"),
        "fewer members counted than listed": (archive(parts, count=1), "E_CORRUPT"),
        "half of it": (whole[: len(whole) // 2], "E_CORRUPT"),
    }


def crooked_names() -> dict[str, tuple[bytes, str]]:
    """Members whose names mean different things to different readers."""
    parts = torch_parts()
    return {
        "a member under two names": (
            archive([*parts, Part(b"archive/x", local_name=b"archive/y")]),
            "E_CORRUPT",
        ),
        "NUL in a name": (archive([*parts, Part(b"archive/data.pkl\0x")]), "E_CORRUPT"),
        "two members of one name": (archive([*parts, parts[0]]), "E_CORRUPT"),
        "names that differ in case": (archive([*parts, Part(b"archive/DATA.PKL")]), "E_CORRUPT"),
        "two roots": (archive([*parts, *torch_parts("other")]), "E_CORRUPT"),
        "a climbing member": (archive([*parts, Part(b"archive/../../x")]), "E_CORRUPT"),
        "a backslash": (archive([*parts, Part(b"archive/data\\0")]), "E_CORRUPT"),
    }


def crooked_sizes() -> dict[str, tuple[bytes, str]]:
    """Members that are not where, as large or packed as they say."""
    parts = torch_parts()
    ones = array(np.ones(4))
    wide = struct.pack("<HHQ", 1, 8, 1 << 40)
    beyond = struct.pack("<HHQ", 1, 8, (1 << 64) - 1)
    outer = Part(b"a.npy", ones + Part(b"b.npy", ones).local())
    hidden = 30 + len(outer.name) + len(ones)
    return {
        "a member inside another": (
            archive([outer, Part(b"b.npy", ones, header=hidden)]),
            "E_CORRUPT",
        ),
        "a member outside the file": (
            archive([*parts, Part(b"archive/x", header=1 << 30)]),
            "E_CORRUPT",
        ),
        "a member beyond any file": (
            archive([*parts, Part(b"archive/x", header=0xFFFFFFFF, extra=beyond)]),
            "E_CORRUPT",
        ),
        "a size of a terabyte": (
            archive([*parts, Part(b"archive/x", size=0xFFFFFFFF, extra=wide)]),
            "E_CORRUPT",
        ),
        "a wrong checksum": (archive([Part(b"w.npy", ones, checksum=1)]), "E_CORRUPT"),
        "a wrong checksum of a packed array": (
            archive([Part(b"w.npy", ones, DEFLATED, checksum=1)]),
            "E_CORRUPT",
        ),
        "more unpacked than stated": (
            archive([Part(b"w.npy", bytes(1 << 24), DEFLATED, size=100)]),
            "E_CORRUPT",
        ),
        "a format of another age": (archive([Part(b"w.npy", ones, version=64)]), "E_UNSUPPORTED"),
        "a packing that Python does not have": (
            archive([Part(b"w.npy", ones, 9)]),
            "E_UNSUPPORTED",
        ),
        "an encrypted member": (archive([Part(b"w.npy", ones, flags=1)]), "E_UNSUPPORTED"),
        "a packed torch file": (
            archive([Part(p.name, p.data, DEFLATED) for p in parts]),
            "E_UNSUPPORTED",
        ),
        "a packing of its own": (archive([Part(b"w.npy", ones, BZIP2)]), "E_UNSUPPORTED"),
        "nothing in it": (end(0, 0, 0), "E_UNSUPPORTED"),
    }


#: Arrays that are none.
ARRAYS: dict[str, tuple[bytes, str]] = {
    "Python objects": (array(np.array([{}], dtype=object)), "E_UNSAFE_FORMAT"),
    "dates": (array(np.array(["2020-01-01"], dtype="datetime64[D]")), "E_UNSUPPORTED"),
    "numbers of 16 bytes": (array(np.zeros(2, dtype=np.longdouble)), "E_UNSUPPORTED"),
    "a shape of a terabyte": (
        header_only("{'descr':'<f8','fortran_order':False,'shape':(1000000000000,)}", bytes(8)),
        "E_CORRUPT",
    ),
    "a zero that hides an overflow": (
        header_only(f"{{'descr':'<f8','fortran_order':False,'shape':(0,{1 << 62},{1 << 62})}}"),
        "E_CORRUPT",
    ),
    "a header in brackets": (header_only("(" * 9000), "E_CORRUPT"),
    "a header that never ends": (b"\x93NUMPY\1\0\xff\xff{", "E_CORRUPT"),
    "truth values of 7": (
        header_only("{'descr':'|b1','fortran_order':False,'shape':(2,)}", b"\7\1"),
        "E_CORRUPT",
    ),
    "text that is none": (
        header_only("{'descr':'<U1','fortran_order':False,'shape':()}", b"\xff\xff\xff\x7f"),
        "E_CORRUPT",
    ),
    "nothing": (b"", "E_CORRUPT"),
}
