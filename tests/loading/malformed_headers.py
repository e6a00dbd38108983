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
    "no JSON": (packed('{"w":'), "E_CORRUPT"),
    "a depth bomb": (packed('{"w":' + "[" * 100_000), "E_CORRUPT"),
    "one tensor twice": (said('{"w":ENTRY,"\\u0077":{}}'), "E_CORRUPT"),
    "a name of a million letters": (file(**{"w" * 1_000_000: entry()}), "E_LIMIT"),
    "a list for a tensor": (file(w=["F32", [1], [0, 4]]), "E_CORRUPT"),
    "an unknown dtype": (one(dtype="F31"), "E_CORRUPT"),
    "numbers of half a byte": (one(dtype="F4", shape=[8]), "E_UNSUPPORTED"),
    "exponents without a torch type": (one(dtype="F8_E8M0", shape=[4]), "E_UNSUPPORTED"),
    "a zero that hides an overflow": (
        one(b"", shape=[0, BIG, BIG], data_offsets=[0, 0]),
        "E_CORRUPT",
    ),
    "a thousand dimensions": (one(shape=[1] * 1000), "E_CORRUPT"),
    "two tensors that overlap": (
        file(bytes(6), v=entry(), w=entry(data_offsets=[2, 6])),
        "E_CORRUPT",
    ),
    "truth values of 7": (one(b"\0\1\7\0", dtype="BOOL", shape=[4]), "E_CORRUPT"),
    "no tensor": (packed('{"__metadata__":{"a":"b"}}', b""), "E_WEIGHTS"),
}
