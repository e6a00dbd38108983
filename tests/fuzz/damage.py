"""Strategies: bytes that are almost right, and JSON that is almost a header."""

from __future__ import annotations

import json
import math
import struct
from typing import TYPE_CHECKING

from hypothesis import strategies as st

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Numbers that sit at the edges of what parsers expect.
EDGES = (0, 1, -1, 2**31 - 1, 2**31, 2**32, 2**53, 2**63 - 1, 2**63, 2**64 - 1, 10**40)
WORDS = ("dtype", "shape", "data_offsets", "__metadata__", "F32", "I64", "BF16", "F4", "weight_map")


@st.composite
def damaged(draw: st.DrawFn, seeds: Sequence[bytes]) -> bytes:
    """An honest file with a few bytes set, cut, doubled, moved or taken from another one."""
    data = bytearray(draw(st.sampled_from(seeds)))
    for _ in range(draw(st.integers(1, 4))):
        place = draw(st.integers(0, max(len(data) - 1, 0)))
        length = draw(st.integers(0, 40))
        match draw(st.sampled_from(("set", "cut", "double", "end", "insert", "splice", "number"))):
            case "set":
                data[place : place + 1] = draw(st.binary(min_size=1, max_size=1))
            case "cut":
                del data[place : place + length]
            case "double":
                data[place:place] = data[place : place + length]
            case "end":
                del data[place:]
            case "insert":
                data[place:place] = draw(st.binary(max_size=16))
            case "splice":
                other = draw(st.sampled_from(seeds))
                data[place:] = other[place:]
            case "number":
                value = draw(st.sampled_from(EDGES)) & (2**64 - 1)
                form = draw(st.sampled_from(("<Q", "<I", "<H", ">Q")))
                raw = struct.pack(form, value & (2 ** (8 * struct.calcsize(form)) - 1))
                data[place : place + len(raw)] = raw
    return bytes(data)


def values() -> st.SearchStrategy[object]:
    """JSON values of every kind, the odd ones included."""
    single = st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(10**30), 10**30),
        st.sampled_from(EDGES),
        st.floats(),
        st.text(max_size=8),
        st.sampled_from(WORDS),
    )
    keys = st.one_of(st.text(max_size=6), st.sampled_from(WORDS))
    return st.recursive(
        single,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4),
        max_leaves=12,
    )


def entries() -> st.SearchStrategy[object]:
    """What stands behind a tensor's name in a safetensors header, more or less."""
    dtypes = st.sampled_from(("F32", "F64", "BOOL", "F16", "C64", "F8_E5M2", "F4", "", "f32"))
    whole = st.integers(-2, 5) | st.sampled_from(EDGES)
    exact = st.fixed_dictionaries(
        {
            "dtype": dtypes | values(),
            "shape": st.lists(whole, max_size=3) | values(),
            "data_offsets": st.lists(whole, min_size=1, max_size=3) | values(),
        }
    )
    return exact | values()


@st.composite
def exact_headers(draw: st.DrawFn) -> bytes:
    """A safetensors file that is right, or wrong in one number."""
    widths = {"F32": 4, "F64": 8, "BOOL": 1, "BF16": 2, "C64": 8}
    content, end = {}, 0
    for name in draw(st.lists(st.text(max_size=5), unique=True, max_size=4)):
        dtype, shape = (
            draw(st.sampled_from(sorted(widths))),
            draw(st.lists(st.integers(0, 3), max_size=3)),
        )
        start, end = end, end + widths[dtype] * math.prod(shape)
        content[name] = {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}
    if content and draw(st.booleans()):
        entry = content[draw(st.sampled_from(sorted(content)))]
        numbers = entry[draw(st.sampled_from(("shape", "data_offsets")))]
        if numbers:
            numbers[draw(st.integers(0, len(numbers) - 1))] = draw(st.sampled_from(EDGES))
    text = json.dumps(content).encode("utf-8", "surrogatepass")
    return struct.pack("<Q", len(text)) + text + bytes(end)


@st.composite
def headers(draw: st.DrawFn) -> bytes:
    """A safetensors file with a made-up header and a few bytes of weights."""
    names = st.text(max_size=6) | st.sampled_from(WORDS)
    content = draw(st.dictionaries(names, entries(), max_size=4) | values())
    text = json.dumps(content).encode("utf-8", "surrogatepass")
    text = text.ljust(len(text) + draw(st.integers(0, 8)), b" ")
    length = len(text) + draw(st.sampled_from((0, 0, 0, 1, -1, 8, 2**40)))
    raw = struct.pack("<Q", length & (2**64 - 1)) + text
    return raw + draw(st.binary(max_size=64))


def json_texts(*seeds: bytes) -> st.SearchStrategy[bytes]:
    """JSON, almost JSON, and honest texts with damage."""
    made = values().map(lambda value: json.dumps(value).encode("utf-8", "surrogatepass"))
    return made | damaged(seeds) | st.binary(max_size=200)
