"""Headers, zip directories and msgpack maps that lie, one case for each way of lying."""

from __future__ import annotations

import json

from tests.hostile.cases.files import holding, refused
from tests.loading.crooked_archives import ARRAYS, Part, archive, bomb, crooked
from tests.loading.malformed_headers import MALFORMED, entry, packed
from tests.loading.malformed_msgpack import MALFORMED as MALFORMED_MSGPACK
from tests.loading.malformed_msgpack import ONE, with_array


def million(*, names: str = "{}") -> bytes:
    """A million tensors that hold nothing."""
    text = json.dumps(entry(shape=[0], data_offsets=[0, 0]))
    listed = ",".join(f'"{names.format(i)}":{text}' for i in range(1_000_000))
    return packed("{" + listed + "}", b"")


def many_names() -> str:
    return "{" + ",".join(f'"{number}":0' for number in range(1_000_000)) + "}"


def crowd(**lies: int) -> bytes:
    """Two hundred thousand members."""
    parts = [Part(b"%d.npy" % number) for number in range(200_000)]
    return archive(parts, large="right", **lies)


def empty_maps() -> bytes:
    """Twenty million maps of one byte each."""
    return with_array(b"\xdd" + (20_000_000).to_bytes(4, "big") + b"\x80" * 20_000_000)


def multiplied() -> bytes:
    """A name of a megabyte around 100 000 short ones: together they would be 100 GB."""
    inner = b"\xdf" + (100_000).to_bytes(4, "big")
    inner += b"".join(b"\xa5%05d\xc0" % number for number in range(100_000))
    long = b"\xdb" + (1 << 20).to_bytes(4, "big") + b"n" * (1 << 20)
    return b"\x82\xa1w" + ONE + long + inner


LARGE = ("--set", "max_header=1G")
CASES = [
    *(
        refused(f"header: {what}", lambda s, d=data: holding(d, "m.safetensors")(s), code)
        for what, (data, code) in MALFORMED.items()
    ),
    *(
        refused(f"archive: {what}", lambda s, d=data: holding(d, "m.pt")(s), code)
        for what, (data, code) in crooked().items()
    ),
    *(
        refused(
            f"array: {what}",
            lambda s, d=data: holding(archive([Part(b"w.npy", d)]), "m.npz")(s),
            code,
        )
        for what, (data, code) in ARRAYS.items()
    ),
    refused(
        "header: a million empty tensors",
        lambda s: holding(million(), "m.safetensors")(s),
        "E_LIMIT",
        "max_header",
    ),
    refused(
        "header: a million empty tensors, allowed by size",
        lambda s: holding(million(), "m.safetensors")(s),
        "E_LIMIT",
        "max_tensors",
        *LARGE,
    ),
    refused(
        "header: a million names with nothing behind them",
        lambda s: holding(packed(many_names()), "m.safetensors")(s),
        "E_LIMIT",
        "max_tensors",
    ),
    refused(
        "header: five million empty lists",
        lambda s: holding(packed('{"w":[' + "[]," * 5_000_000 + "[]]}"), "m.safetensors")(s),
        "E_LIMIT",
    ),
    refused(
        "archive: a bomb of 300 MB", lambda s: holding(bomb(300), "m.npz")(s), "E_LIMIT", "unpack"
    ),
    refused("archive: a bomb of 4 GB", lambda s: holding(bomb(4095), "m.npz")(s), "E_LIMIT"),
    refused(
        "archive: two hundred thousand members",
        lambda s: holding(crowd(), "m.npz")(s),
        "E_LIMIT",
        "max_tensors",
    ),
    refused(
        "archive: two hundred thousand members, three counted",
        lambda s: holding(crowd(count=3), "m.npz")(s),
        "E_CORRUPT",
    ),
    *(
        refused(f"msgpack: {what}", lambda s, d=data: holding(d, "m.msgpack")(s), code, words)
        for what, (data, code, words) in MALFORMED_MSGPACK.items()
    ),
    refused(
        "msgpack: twenty million empty maps",
        lambda s: holding(empty_maps(), "m.msgpack")(s),
        "E_LIMIT",
        "max_tensors",
    ),
    refused(
        "msgpack: names that multiply",
        lambda s: holding(multiplied(), "m.msgpack")(s),
        "E_LIMIT",
        "max_header",
    ),
]
