"""The datasets as tensors and text."""

from __future__ import annotations

import json
import math
import struct
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from examples.reproduce.data.cache import provide
from examples.reproduce.data.catalog import DATASETS

_BY_NAME = {dataset.name: dataset for dataset in DATASETS}
_FASHION = "T-shirt/top,Trouser,Pullover,Dress,Coat,Sandal,Shirt,Sneaker,Bag,Ankle boot"
#: Reviews of one sentiment in one half of the IMDB set.
_REVIEWS = 12_500


@dataclass(frozen=True, slots=True, eq=False)
class Images:
    """Grey images: x is uint8 of (N, 28, 28), y is int64 of (N,), an index of `classes`."""

    train_x: Tensor
    train_y: Tensor
    test_x: Tensor
    test_y: Tensor
    classes: tuple[str, ...]


def mnist() -> Images:
    """Handwritten digits, 60,000 and 10,000; the label is the digit."""
    return _images("mnist", tuple("0123456789"))


def fashion_mnist() -> Images:
    """Pieces of clothing in the form of MNIST."""
    return _images("fashion_mnist", tuple(_FASHION.split(",")))


def enwik8(*, limit: int | None = None) -> Tensor:
    """The first 10^8 bytes of the English Wikipedia as uint8, or the first `limit` of them.

    The usual split is 90, 5 and 5 million bytes for training, validation and test.
    """
    if limit is not None and limit < 1:
        raise ValueError(f"limit is {limit}; it must be at least 1")
    with (provide(_BY_NAME["enwik8"]) / "enwik8").open("rb") as file:
        return _bytes(file.read(-1 if limit is None else limit))


def shakespeare() -> str:
    """The complete works, 5.5 million ASCII characters, with the preface of the edition."""
    path = provide(_BY_NAME["shakespeare"]) / "shakespeare.txt"
    return path.read_text(encoding="ascii")


def imdb(*, split: Literal["all", "train", "test"] = "all") -> list[tuple[str, int]]:
    """Movie reviews with their sentiment: 1 is positive, 0 negative, half of each.

    They are sorted by sentiment: shuffle them. Line breaks are `<br />`. `split` is the original
    one of 25,000 and 25,000, which the package keeps by its order.
    """
    if split not in ("all", "train", "test"):
        raise ValueError(f"split is {split!r}; it must be all, train or test")
    reviews = read_reviews((provide(_BY_NAME["imdb"]) / "reviews.json").read_bytes())
    if split == "all":
        return reviews
    # The order is: test negative, train negative, test positive, train positive.
    start = 0 if split == "test" else _REVIEWS
    negative = reviews[start : start + _REVIEWS]
    return negative + reviews[start + 2 * _REVIEWS : start + 3 * _REVIEWS]


def read_idx(data: bytes) -> Tensor:
    """A uint8 tensor in the IDX format: 0, 0, type, rank, big-endian sizes, then the values."""
    if len(data) < 4 or data[:3] != b"\x00\x00\x08":  # type 8 is uint8
        raise ValueError("not an IDX file of unsigned bytes")
    start = 4 + 4 * data[3]
    if len(data) < start:
        raise ValueError("the IDX file ends within its header")
    shape = struct.unpack(f">{data[3]}I", data[4:start])
    if len(data) - start != math.prod(shape):
        raise ValueError(f"the IDX file has {len(data) - start} values for the shape {shape}")
    return _bytes(data[start:]).reshape(shape)


def read_reviews(data: bytes) -> list[tuple[str, int]]:
    """Text and sentiment from a JSON list of objects with `t` and `s`."""
    reviews = [(review["t"], review["s"]) for review in json.loads(data)]
    if any(label not in (0, 1) for _, label in reviews):
        raise ValueError("a sentiment is neither 0 nor 1")
    return reviews


def _images(name: str, classes: tuple[str, ...]) -> Images:
    folder = provide(_BY_NAME[name])
    train_x, train_y, test_x, test_y = (
        read_idx((folder / file.name).read_bytes()) for file in _BY_NAME[name].files
    )
    # Losses and indexing take int64.
    return Images(train_x, train_y.long(), test_x, test_y.long(), classes)


def _bytes(data: bytes) -> Tensor:
    # frombuffer warns about memory that cannot be written, and refuses an empty one.
    return torch.frombuffer(bytearray(data), dtype=torch.uint8) if data else torch.empty(0).byte()
