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
    "a length of nothing": (packed("", length=0), "E_CORRUPT"),
    "a length with 64 bits": (packed("{}", length=1 << 63), "E_CORRUPT"),
    "a length of a gigabyte": (packed("{}", length=1 << 30), "E_LIMIT"),
    "bytes that are no text": (packed(b'{"\xff\xfe":1}'), "E_CORRUPT"),
    "no JSON": (packed('{"w":'), "E_CORRUPT"),
    "a list": (packed("[1,2]"), "E_CORRUPT"),
    "a depth bomb": (packed('{"w":' + "[" * 100_000), "E_CORRUPT"),
    "an object bomb": (packed('{"w":' * 100_000), "E_CORRUPT"),
    "text behind the object": (said('{"w":ENTRY}x'), "E_CORRUPT"),
    "zeros behind the object": (said('{"w":ENTRY}\0\0'), "E_CORRUPT"),
    "NaN": (said('{"w":ENTRY,"v":NaN}'), "E_CORRUPT"),
    "one tensor twice": (said('{"w":ENTRY,"w":ENTRY}'), "E_CORRUPT"),
    "one tensor twice, once escaped": (said('{"w":ENTRY,"\\u0077":ENTRY}'), "E_CORRUPT"),
    "one field twice": (
        packed('{"w":{"dtype":"F32","shape":[1],"shape":[1],"data_offsets":[0,4]}}'),
        "E_CORRUPT",
    ),
    "metadata twice": (said('{"__metadata__":{},"w":ENTRY,"__metadata__":{}}'), "E_CORRUPT"),
    "one word of the metadata twice": (
        said('{"__metadata__":{"a":"1","a":"2"},"w":ENTRY}'),
        "E_CORRUPT",
    ),
    "metadata that is a list": (file(__metadata__=["a"], w=entry()), "E_CORRUPT"),
    "metadata with a number": (file(__metadata__={"a": 1}, w=entry()), "E_CORRUPT"),
    "metadata with an object": (file(__metadata__={"a": {"b": "c"}}, w=entry()), "E_CORRUPT"),
    "half a surrogate as a name": (said('{"\\ud800":ENTRY}'), "E_CORRUPT"),
    "half a surrogate in the metadata": (
        said('{"__metadata__":{"a":"\\udc00"},"w":ENTRY}'),
        "E_CORRUPT",
    ),
    "a raw newline in a name": (said('{"a\nb":ENTRY}'), "E_CORRUPT"),
    "a name of a million letters": (file(**{"w" * 1_000_000: entry()}), "E_LIMIT"),
    "null for a tensor": (file(w=None), "E_CORRUPT"),
    "a number for a tensor": (file(w=3), "E_CORRUPT"),
    "a list for a tensor": (file(w=["F32", [1], [0, 4]]), "E_CORRUPT"),
    "no dtype": (one(dtype=None), "E_CORRUPT"),
    "no shape": (one(shape=None), "E_CORRUPT"),
    "no offsets": (one(data_offsets=None), "E_CORRUPT"),
    "a number as dtype": (one(dtype=4), "E_CORRUPT"),
    "an unknown dtype": (one(dtype="F31"), "E_UNSUPPORTED"),
    "a dtype in small letters": (one(dtype="f32"), "E_UNSUPPORTED"),
    "numbers of half a byte": (one(dtype="F4", shape=[8]), "E_UNSUPPORTED"),
    "exponents without a torch type": (one(dtype="F8_E8M0", shape=[4]), "E_UNSUPPORTED"),
    "a shape in words": (one(shape="1"), "E_CORRUPT"),
    "a fraction in the shape": (one(shape=[1.0]), "E_CORRUPT"),
    "true in the shape": (one(shape=[True]), "E_CORRUPT"),
    "null in the shape": (one(shape=[None]), "E_CORRUPT"),
    "a negative length": (one(shape=[-1]), "E_CORRUPT"),
    "two negative lengths": (one(shape=[-1, -1]), "E_CORRUPT"),
    "minus zero": (
        packed('{"w":{"dtype":"F32","shape":[-0],"data_offsets":[0,0]}}', b""),
        "E_CORRUPT",
    ),
    "a shape that overflows to what is there": (one(shape=[BIG, 4, 1]), "E_CORRUPT"),
    "a shape that overflows to nothing": (
        one(b"", shape=[BIG, 16], data_offsets=[0, 0]),
        "E_CORRUPT",
    ),
    "a zero that hides an overflow": (
        one(b"", shape=[0, BIG, BIG], data_offsets=[0, 0]),
        "E_CORRUPT",
    ),
    "a length of 70 bits": (one(b"", shape=[0, 1 << 70], data_offsets=[0, 0]), "E_CORRUPT"),
    "a length of 5000 digits": (
        packed('{"w":{"dtype":"F32","shape":[' + "9" * 5000 + '],"data_offsets":[0,4]}}'),
        "E_CORRUPT",
    ),
    "a thousand dimensions": (one(shape=[1] * 1000), "E_CORRUPT"),
    "three offsets": (one(data_offsets=[0, 4, 4]), "E_CORRUPT"),
    "one offset": (one(data_offsets=[4]), "E_CORRUPT"),
    "a negative offset": (one(data_offsets=[-4, 0]), "E_CORRUPT"),
    "fractions as offsets": (one(data_offsets=[0.0, 4.0]), "E_CORRUPT"),
    "true as an offset": (one(shape=[0], data_offsets=[False, False]), "E_CORRUPT"),
    "offsets that are swapped": (one(data_offsets=[4, 0]), "E_CORRUPT"),
    "offsets behind the end": (one(data_offsets=[4, 8]), "E_CORRUPT"),
    "offsets of 64 bits": (one(data_offsets=[(1 << 64) - 4, 1 << 64]), "E_CORRUPT"),
    "offsets around the corner": (one(data_offsets=[(1 << 64) - 4, 0]), "E_CORRUPT"),
    "fewer bytes than the shape needs": (one(shape=[2]), "E_CORRUPT"),
    "more bytes than the shape needs": (one(bytes(8), data_offsets=[0, 8]), "E_CORRUPT"),
    "a terabyte that is not there": (
        one(shape=[1 << 38], data_offsets=[0, 1 << 40]),
        "E_CORRUPT",
    ),
    "a hole at the start": (one(bytes(8), data_offsets=[4, 8]), "E_CORRUPT"),
    "a hole between two tensors": (
        file(bytes(12), v=entry(), w=entry(data_offsets=[8, 12])),
        "E_CORRUPT",
    ),
    "two tensors that overlap": (
        file(bytes(6), v=entry(), w=entry(data_offsets=[2, 6])),
        "E_CORRUPT",
    ),
    "two tensors in one place": (file(v=entry(), w=entry()), "E_CORRUPT"),
    "an empty tensor inside another": (
        file(v=entry(), w=entry(shape=[0], data_offsets=[2, 2])),
        "E_CORRUPT",
    ),
    "bytes behind the last tensor": (one(bytes(5)), "E_CORRUPT"),
    "a byte too few": (one(bytes(3)), "E_CORRUPT"),
    "no bytes at all": (one(b""), "E_CORRUPT"),
    "bytes that belong to no tensor": (packed("{}", bytes(4)), "E_CORRUPT"),
    "truth values of 7": (one(b"\0\1\7\0", dtype="BOOL", shape=[4]), "E_CORRUPT"),
    "no tensor": (packed("{}", b""), "E_WEIGHTS"),
    "metadata and no tensor": (packed('{"__metadata__":{"a":"b"}}', b""), "E_WEIGHTS"),
}

#: What safetensors itself opens and memaudit refuses, on purpose.
STRICTER = frozenset(
    {
        "one tensor twice",
        "one tensor twice, once escaped",
        "one word of the metadata twice",
        "a list for a tensor",
        "a name of a million letters",
        "a thousand dimensions",
        "truth values of 7",
        "no tensor",
        "metadata and no tensor",
    }
)

#: Unusual, and right.
GOOD: dict[str, bytes] = {
    "one number": one(),
    "a number without dimensions": one(shape=[]),
    "an empty tensor": file(v=entry(), w=entry(shape=[0, 7], data_offsets=[4, 4])),
    "an empty tensor before another": file(a=entry(shape=[0], data_offsets=[0, 0]), b=entry()),
    "two empty tensors between others": file(
        bytes(8),
        d=entry(data_offsets=[4, 8]),
        c=entry(shape=[3, 0], data_offsets=[4, 4]),
        b=entry(shape=[0], data_offsets=[4, 4]),
        a=entry(),
    ),
    "entries in another order than the bytes": file(
        struct.pack("<ff", 1, 2), z=entry(data_offsets=[4, 8]), a=entry()
    ),
    "metadata": file(__metadata__={"format": "pt"}, w=entry()),
    "metadata that is null": file(__metadata__=None, w=entry()),
    "metadata that looks like code": file(
        __metadata__={"[{,": "{[,}", "__class__": "os.system"}, w=entry()
    ),
    "spaces behind the object": said('{"w":ENTRY}      \n'),
    "a field more": one(comment={"by": ["me"]}),
    "names of every kind": file(
        bytes(16),
        **{
            name: entry(data_offsets=[4 * i, 4 * i + 4])
            for i, name in enumerate(("", "a/../b", "<b>\u202e\x1b[31m", "été\0\n"))
        },
    ),
    "a length that reads as a brace": packed(json.dumps({"w": entry()}).ljust(ord("{")), bytes(4)),
    "a length that reads as a web page": packed(json.dumps({"w": entry()}).ljust(ord("<"))),
    "bytes that do not lie on even addresses": file(
        bytes(13),
        a=entry(dtype="U8", shape=[1], data_offsets=[0, 1]),
        b=entry(dtype="F64", shape=[1], data_offsets=[1, 9]),
        c=entry(data_offsets=[9, 13]),
    ),
}
