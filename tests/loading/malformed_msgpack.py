"""Msgpack files that lie, one for each way of lying: the bytes, the code, and words of the fact."""

from __future__ import annotations

import struct

from tests.loading import msgpack_writing as write

_ONE = struct.pack("<f", 1.0)
ONE = write.array((1,), "float32", _ONE)


def with_array(body: bytes) -> bytes:
    """A file whose second array has this body."""
    return write.entries({"w": ONE, "v": body})


def chunked(**parts: bytes) -> bytes:
    """A file with an array in pieces."""
    honest = {
        "__msgpack_chunked_array__": b"\xc3",
        "shape": write.entries({"0": b"\x02"}),
        "chunks": write.entries({"0": ONE, "1": ONE}),
    }
    return with_array(write.entries({**honest, **parts}))


def nested(depth: int, *, lists: bool = False) -> bytes:
    head = b"\x91" if lists else b"\x81\xa1a"
    return with_array(head * depth + b"\xc0")


def lengths(*shape: bytes, dtype: str = "float32", body: bytes = _ONE) -> bytes:
    """A file with an array of a shape that is spelled out."""
    parts = write.listed(write.listed(*shape), write.text(dtype), write.raw(body))
    return with_array(write.extension(1, parts))


MALFORMED: dict[str, tuple[bytes, str, str]] = {
    "bytes behind the end": (with_array(ONE) + b"\0", "E_CORRUPT", "behind its end"),
    "a name twice": (write.pairs(("w", ONE), ("w", ONE)), "E_CORRUPT", "twice"),
    "one joined name twice": (
        write.entries({"a/b": ONE, "a": write.entries({"b": ONE})}),
        "E_CORRUPT",
        "two values",
    ),
    "a number as a key": (
        b"\x82" + write.text("w") + ONE + b"\x01" + ONE,
        "E_CORRUPT",
        "damaged",
    ),
    "maps, far too deep": (nested(100_000), "E_CORRUPT", "nested"),
    "a map of four billion": (b"\xdf\xff\xff\xff\xff\xa1w" + ONE, "E_CORRUPT", "cut short"),
    "a shape larger than its bytes": (
        with_array(write.array((1 << 40,), "float32", _ONE)),
        "E_CORRUPT",
        "as large as it says",
    ),
    "65 dimensions": (lengths(*[b"\x01"] * 65), "E_CORRUPT", "as large as it says"),
    "text instead of numbers": (
        with_array(
            write.extension(1, write.listed(write.listed(), write.text("f"), write.text("")))
        ),
        "E_CORRUPT",
        "damaged",
    ),
    "an array of objects": (lengths(b"\x01", dtype="object"), "E_UNSUPPORTED", "object"),
    "truth values of 7": (with_array(write.array((1,), "bool", b"\x07")), "E_CORRUPT", "truth"),
    "a scalar with a shape": (
        with_array(write.array((1,), "float32", _ONE, code=3)),
        "E_CORRUPT",
        "single number",
    ),
    "a complex number of three": (
        with_array(write.extension(2, write.listed(b"\1", b"\1", b"\1"))),
        "E_CORRUPT",
        "complex",
    ),
    "pieces too few": (chunked(chunks=write.entries({"0": ONE})), "E_CORRUPT", "as large"),
    "pieces of two dtypes": (
        chunked(chunks=write.entries({"0": ONE, "1": write.array((1,), "int32", _ONE)})),
        "E_CORRUPT",
        "belong together",
    ),
    "pieces with something else": (chunked(more=b"\xc0"), "E_CORRUPT", "pieces"),
    "no arrays": (write.entries({"w": b"\x01"}), "E_WEIGHTS", "no weights"),
}
