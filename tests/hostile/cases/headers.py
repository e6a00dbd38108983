"""Safetensors headers and zip directories that lie, one case for each way of lying."""

from __future__ import annotations

import json

from tests.hostile.cases.files import holding, refused
from tests.loading.crooked_archives import ARRAYS, Part, archive, bomb, crooked
from tests.loading.malformed_headers import MALFORMED, entry, packed


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
]
