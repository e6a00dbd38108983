"""Torch files whose tensors or containers are not what they seem, or want all there is."""

from __future__ import annotations

import io
import itertools
import struct
import zipfile
from typing import TYPE_CHECKING, Any

import torch

from tests.hostile.case import Case, Scene
from tests.loading import pickle_writing as write

if TYPE_CHECKING:
    from collections.abc import Callable

ALLOWED = ("--allow-pickle",)
STORED = write.storage("0", 4)
FOUR = 4 * write.ONE


def file(data: Callable[[], bytes], *flags: str) -> Callable[[Scene], list[str]]:
    def arrange(scene: Scene) -> list[str]:
        path = scene.inputs / "model.pt"
        path.write_bytes(data())
        return ["scan", str(path), *flags]

    return arrange


def saved(content: Callable[[], Any], *flags: str) -> Callable[[Scene], list[str]]:
    def arrange(scene: Scene) -> list[str]:
        path = scene.inputs / "model.pt"
        torch.save(content(), path)
        return ["scan", str(path), *flags]

    return arrange


def zipped(value: bytes, storages: dict[str, bytes] | None = None) -> bytes:
    return write.zip_file(write.pickled(value), {"0": FOUR} if storages is None else storages)


def beside(value: bytes) -> bytes:
    """A value beside a weight."""
    return zipped(write.entries(w=write.tensor(STORED, (4,)), x=value))


def bomb() -> bytes:
    """A thousand times more zeros than bytes, would it be unpacked."""
    pickle = write.pickled(write.entries(w=write.tensor(write.storage("0", 1 << 25), (1 << 25,))))
    return write.zip_file(pickle, {"0": bytes(1 << 27)}, compression=zipfile.ZIP_DEFLATED)


def script() -> bytes:
    """A TorchScript archive: the pickles come with code."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("model/data.pkl", write.pickled(b"}"))
        archive.writestr("model/code/__torch__.py", "class Net(Module):\n  pass\n")
        archive.writestr("model/constants.pkl", write.pickled(b")"))
    return buffer.getvalue()


def views() -> bytes:
    """Many names for one storage: each of them would be copied."""
    value = write.tensor(write.storage("0", 1 << 20), (1 << 20,))
    names = {f"w{i}": value for i in range(500)}
    return zipped(write.entries(**names), {"0": bytes(1 << 22)})


def itself() -> bytes:
    return (
        b"}q\x00"
        + write.text("w")
        + write.tensor(STORED, (4,))
        + b"s"
        + write.text("x")
        + b"h\x00s"
    )


def doubled(levels: int = 60) -> bytes:
    return b"]q\x01" + levels * b"h\x01\x86q\x01"


def colliding(count: int = 60_000) -> bytes:
    """Keys with one hash, which a dictionary compares with each other: -1 and -2 are such."""
    ones = b"J\xff\xff\xff\xffq\x010J\xfe\xff\xff\xffq\x020"
    bits = itertools.islice(itertools.product((b"h\x01", b"h\x02"), repeat=18), count)
    return ones + b"}(" + b"".join(b"(" + b"".join(key) + b"tN" for key in bits) + b"u"


def shadowed(scene: Scene) -> list[str]:
    """Parameters with attributes called like methods; their names are those of an LSTM."""
    state = torch.nn.LSTM(2, 3).state_dict()
    content = {}
    for name, value in state.items():
        content[name] = torch.nn.Parameter(value)
        content[name].numel = 10**18
        content[name].detach = "nothing"
    torch.save(content, scene.inputs / "model.pt")
    return ["scan", str(scene.inputs / "model.pt"), "--quick", "--horizon", "32"]


def shared_state(count: int = 300_000) -> bytes:
    """Many names for objects with one long state, which is none of a module."""
    state = b"}(" + count * b"K\x01N" + b"uq\x000"
    made = write.call("collections.OrderedDict") + b"h\x00bq\x01"
    names = b"K\x01" + made + count * b"K\x01h\x01"
    weight = write.text("w") + write.tensor(STORED, (4,))
    return zipped(state + b"}(" + names + weight + b"u")


def renewed() -> bytes:
    """A weight that gets another storage after it was made."""
    other = write.many(write.storage("1", 4), b"K\x00", write.numbers(4), write.numbers(1))
    value = write.entries(w=write.tensor(STORED, (4,)) + other + b"b")
    return zipped(value, {"0": FOUR, "1": bytes(16)})


def sparse() -> Any:
    where = torch.tensor([[10**9], [0]])
    return {"w": torch.sparse_coo_tensor(where, torch.ones(1), (3, 3), check_invariants=False)}


#: Name, what stands in the file, the code, and a word of the fact.
CONTENTS: list[tuple[str, Callable[[], Any], str, str]] = [
    ("a sparse tensor with a bad index", sparse, "E_UNSUPPORTED", "'w' is not strided"),
    ("a meta tensor", lambda: {"w": torch.ones(3, device="meta")}, "E_CORRUPT", "device meta"),
    ("a bare tensor", lambda: torch.ones(3), "E_UNSUPPORTED", "bare tensor"),
    ("a list of tensors", lambda: [torch.ones(3)], "E_UNSUPPORTED", "holds list"),
    ("numbers as names", lambda: {0: torch.ones(3)}, "E_UNSUPPORTED", "named by int"),
    ("no tensor at all", lambda: {"epoch": 3}, "E_WEIGHTS", "no weights"),
    ("a whole module", lambda: torch.nn.GRU(2, 3), "E_UNSAFE_FORMAT", "whole pickled module"),
    (
        "a whole module in a dictionary",
        lambda: {"model": torch.nn.GRU(2, 3), "epoch": 3},
        "E_UNSAFE_FORMAT",
        "whole pickled module",
    ),
    (
        "a view that claims a terabyte",
        lambda: {"w": torch.zeros(1).expand(500_000, 500_000)},
        "E_LIMIT",
        "stores fewer",
    ),
]
WRITTEN: list[tuple[str, Callable[[], bytes], str, str]] = [
    ("a weight that changes", renewed, "E_UNSUPPORTED", "changes after it was made"),
    ("a zip bomb", bomb, "E_UNSUPPORTED", "compressed"),
    ("a TorchScript archive", script, "E_UNSAFE_FORMAT", "TorchScript"),
    ("many views of one storage", views, "E_LIMIT", "claim"),
    (
        "more numbers than the storage has",
        lambda: zipped(write.entries(w=write.tensor(STORED, (5,)))),
        "E_CORRUPT",
        "larger than its storage",
    ),
    (
        "a storage that is smaller than it says",
        lambda: zipped(write.entries(w=write.tensor(write.storage("0", 10**9), (10**9,)))),
        "E_CORRUPT",
        "not as large",
    ),
    (
        "a legacy storage that is smaller than it says",
        lambda: write.legacy_file(
            write.entries(w=write.tensor(write.storage("0", 10**9, legacy=True), (10**9,))),
            {"0": (10**9, FOUR)},
        ),
        "E_CORRUPT",
        "not as large",
    ),
    ("a dictionary that holds itself", lambda: zipped(itself()), "E_CORRUPT", "holds itself"),
    ("a long state that many share", shared_state, "E_LIMIT", "unfold"),
    ("lists that double", lambda: beside(doubled()), "E_LIMIT", "unfold"),
    ("lists in lists in lists", lambda: beside(b"]" * 200 + b"a" * 199), "E_CORRUPT", "nested"),
    (
        "two million empty lists",
        lambda: beside(write.listed(b"]" * 2_000_000)),
        "E_LIMIT",
        "more instructions",
    ),
    (
        "a pickle of 70 MB",
        lambda: beside(b"B" + struct.pack("<I", 70 << 20) + bytes(70 << 20)),
        "E_LIMIT",
        "max_header",
    ),
    (
        "a place in the memo that is far away",
        lambda: zipped(b"Nr" + struct.pack("<I", 2**32 - 1)),
        "E_UNSUPPORTED",
        "NoneType",
    ),
    (
        "a hundred thousand names",
        lambda: beside(write.listed(*(b"cx\nn%d\n" % i for i in range(100_000)))),
        "E_CORRUPT",
        "names more classes",
    ),
]
#: What a reader of pickles would stumble over and memaudit reads on: the weight is found, and
#: that it is no recurrent layer is all there is to say.
HARMLESS: list[tuple[str, Callable[[], bytes]]] = [
    (
        "a call for two gigabytes",
        lambda: beside(write.call("builtins.bytearray", write.number(2 << 30))),
    ),
    (
        "a call for a tensor of eight gigabytes",
        lambda: beside(write.call("torch.Tensor", write.number(2 << 30))),
    ),
    ("a number of ten million digits", lambda: beside(write.giant(b"\x01" * 4_000_000))),
    ("a hundred thousand empty lists", lambda: beside(write.listed(b"]" * 100_000))),
    ("keys that collide", lambda: beside(colliding())),
    (
        "a codec that is slow",
        lambda: beside(
            write.call("_codecs.encode", write.text("ä" * 1_000_000), write.text("punycode"))
        ),
    ),
]


def _cases() -> list[Case]:
    found = [Case("pickles", "attributes that shadow methods", shadowed, exit=0)]
    for flags in ((), ALLOWED):
        tail = " with --allow-pickle" if flags else ""
        for name, content, code, says in CONTENTS:
            arrange = saved(content, *flags)
            found.append(Case("pickles", name + tail, arrange, exit=3, code=code, says=says))
        for name, data, code, says in WRITTEN:
            arrange = file(data, *flags)
            found.append(Case("pickles", name + tail, arrange, exit=3, code=code, says=says))
        for name, data in HARMLESS:
            unknown = {"exit": 3, "code": "E_UNSUPPORTED", "says": "no recurrent layer"}
            found.append(Case("pickles", name + tail, file(data, *flags), **unknown))
    return found


CASES = _cases()
