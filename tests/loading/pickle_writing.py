"""Writes torch files instruction by instruction, as no library would."""

from __future__ import annotations

import io
import struct
import zipfile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

#: The magic number, the version and the facts about the machine that begin a legacy file.
LEGACY_PICKLES = (
    b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.",
    b"\x80\x02M\xe9\x03.",
    b"\x80\x02}.",
)
ONE = struct.pack("<f", 1.0)


def text(value: str) -> bytes:
    raw = value.encode("utf-8", "surrogatepass")
    return b"X" + struct.pack("<I", len(raw)) + raw


def number(value: int) -> bytes:
    raw = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
    return b"\x8a" + bytes([len(raw)]) + raw if len(raw) < 256 else giant(raw)


def giant(raw: bytes) -> bytes:
    return b"\x8b" + struct.pack("<i", len(raw)) + raw


def many(*values: bytes) -> bytes:
    """A tuple."""
    return b"(" + b"".join(values) + b"t"


def numbers(*values: int) -> bytes:
    return many(*map(number, values))


def listed(*values: bytes) -> bytes:
    return b"](" + b"".join(values) + b"e"


def entries(**values: bytes) -> bytes:
    """A dictionary."""
    return b"}(" + b"".join(text(key) + value for key, value in values.items()) + b"u"


def named(name: str) -> bytes:
    module, _, last = name.rpartition(".")
    return f"c{module}\n{last}\n".encode()


def call(name: str, *arguments: bytes) -> bytes:
    return named(name) + many(*arguments) + b"R"


def storage(
    key: str, count: int, *, kind: str = "torch.FloatStorage", legacy: bool = False
) -> bytes:
    end = b"N" if legacy else b""
    return many(text("storage"), named(kind), text(key), text("cpu"), number(count) + end) + b"Q"


def tensor(
    stored: bytes,
    size: tuple[int, ...],
    *,
    stride: tuple[int, ...] = (1,),
    offset: int = 0,
    hooks: bytes | None = None,
) -> bytes:
    return call(
        "torch._utils._rebuild_tensor_v2",
        stored,
        number(offset),
        numbers(*size),
        numbers(*stride),
        b"\x89",
        hooks or call("collections.OrderedDict"),
    )


def pickled(value: bytes, *, protocol: int = 2) -> bytes:
    return b"\x80" + bytes([protocol]) + value + b"."


def zip_file(
    pickle: bytes,
    storages: Mapping[str, bytes] | None = None,
    *,
    order: str = "little",
    compression: int = zipfile.ZIP_STORED,
) -> bytes:
    """An archive as torch.save writes it."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as archive:
        archive.writestr("model/data.pkl", pickle)
        archive.writestr("model/byteorder", order)
        for key, raw in (storages or {}).items():
            archive.writestr(f"model/data/{key}", raw)
        archive.writestr("model/version", "3\n")
    return buffer.getvalue()


def legacy_file(value: bytes, storages: Mapping[str, tuple[int, bytes]] | None = None) -> bytes:
    """A file in the format before zip: five pickles, then counts and numbers."""
    found = storages or {}
    keys = pickled(listed(*map(text, found)))
    behind = b"".join(struct.pack("<q", count) + raw for count, raw in found.values())
    return b"".join(LEGACY_PICKLES) + pickled(value) + keys + behind
