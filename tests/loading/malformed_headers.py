"""Safetensors files with something wrong in their headers, and unusual ones that are right."""

from __future__ import annotations

import json
import struct

BIG = 1 << 62


def packed(header: bytes | str, body: bytes = bytes(4), *, length: int | None = None) -> bytes:
    """A file with this header; its length may lie."""
    data = header if isinstance(header, bytes) else header.encode()
    return struct.pack("<Q", len(data) if length is None else length) + data + body


def entry(**changes: object) -> dict[str, object]:
    """One float32, unless something is changed; None leaves a field out."""
    whole = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4], **changes}
    return {key: value for key, value in whole.items() if value is not None}


def file(body: bytes = bytes(4), **entries: object) -> bytes:
    """A file with these entries."""
    return packed(json.dumps(entries), body)


def one(body: bytes = bytes(4), **changes: object) -> bytes:
    """A file with one tensor that is described wrongly."""
    return file(body, w=entry(**changes))


def said(text: str) -> bytes:
    """A file whose header is spelled out; ENTRY stands for what describes one float32."""
    return packed(text.replace("ENTRY", json.dumps(entry())))


#: What is wrong → the file and the code of its refusal.
MALFORMED: dict[str, tuple[bytes, str]] = {
    "a length beyond the file": (packed('{"w":1}', length=500), "E_CORRUPT"),
    "a length of a gigabyte": (packed("{}", length=1 << 30), "E_LIMIT"),
    "bytes that are no text": (packed(b'{"\xff\xfe":1}'), "E_CORRUPT"),
    "no JSON": (packed('{"w":'), "E_CORRUPT"),
    "a list": (packed("[1,2]"), "E_CORRUPT"),
    "a depth bomb": (packed('{"w":' + "[" * 100_000), "E_CORRUPT"),
    "NaN": (said('{"w":ENTRY,"v":NaN}'), "E_CORRUPT"),
    "one tensor twice": (said('{"w":ENTRY,"w":ENTRY}'), "E_CORRUPT"),
    "one tensor twice, once escaped": (said('{"w":ENTRY,"\\u0077":ENTRY}'), "E_CORRUPT"),
    "one field twice": (
        packed('{"w":{"dtype":"F32","shape":[1],"shape":[1],"data_offsets":[0,4]}}'),
        "E_CORRUPT",
    ),
    "one word of the metadata twice": (
        said('{"__metadata__":{"a":"1","a":"2"},"w":ENTRY}'),
        "E_CORRUPT",
    ),
    "metadata with a number": (file(__metadata__={"a": 1}, w=entry()), "E_CORRUPT"),
    "a name of a million letters": (file(**{"w" * 1_000_000: entry()}), "E_LIMIT"),
    "null for a tensor": (file(w=None), "E_CORRUPT"),
    "a list for a tensor": (file(w=["F32", [1], [0, 4]]), "E_CORRUPT"),
    "no dtype": (one(dtype=None), "E_CORRUPT"),
    "an unknown dtype": (one(dtype="F31"), "E_UNSUPPORTED"),
    "numbers of half a byte": (one(dtype="F4", shape=[8]), "E_UNSUPPORTED"),
    "exponents without a torch type": (one(dtype="F8_E8M0", shape=[4]), "E_UNSUPPORTED"),
    "true in the shape": (one(shape=[True]), "E_CORRUPT"),
    "minus zero": (
        packed('{"w":{"dtype":"F32","shape":[-0],"data_offsets":[0,0]}}', b""),
        "E_CORRUPT",
    ),
    "a zero that hides an overflow": (
        one(b"", shape=[0, BIG, BIG], data_offsets=[0, 0]),
        "E_CORRUPT",
    ),
    "a length of 5000 digits": (
        packed('{"w":{"dtype":"F32","shape":[' + "9" * 5000 + '],"data_offsets":[0,4]}}'),
        "E_CORRUPT",
    ),
    "a thousand dimensions": (one(shape=[1] * 1000), "E_CORRUPT"),
    "no offsets": (one(data_offsets=None), "E_CORRUPT"),
    "offsets of words": (one(data_offsets=["0", {}]), "E_CORRUPT"),
    "a terabyte that is not there": (one(shape=[1 << 38], data_offsets=[0, 1 << 40]), "E_CORRUPT"),
    "two tensors that overlap": (
        file(bytes(6), v=entry(), w=entry(data_offsets=[2, 6])),
        "E_CORRUPT",
    ),
    "bytes behind the last tensor": (one(bytes(5)), "E_CORRUPT"),
    "truth values of 7": (one(b"\0\1\7\0", dtype="BOOL", shape=[4]), "E_CORRUPT"),
    "no tensor": (packed('{"__metadata__":{"a":"b"}}', b""), "E_WEIGHTS"),
}
