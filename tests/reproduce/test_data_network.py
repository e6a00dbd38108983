"""The data itself: MNIST is fetched, the others are looked at when they are in the cache."""

from __future__ import annotations

from collections import Counter

import pytest

from examples.reproduce.data import DataUnavailable, cache, datasets
from examples.reproduce.data.catalog import DATASETS

pytestmark = pytest.mark.network


def require_cached(name: str) -> None:
    dataset = next(dataset for dataset in DATASETS if dataset.name == name)
    if not cache.intact(dataset, cache.root() / name):
        pytest.skip(f"{name} is not cached: python -m examples.reproduce.data {name}")


def test_mnist_has_its_known_digits() -> None:
    try:
        images = datasets.mnist()
    except DataUnavailable as error:
        pytest.skip(str(error))
    assert images.train_x.shape == (60_000, 28, 28)
    assert images.test_x.shape == (10_000, 28, 28)
    assert images.train_y[:5].tolist() == [5, 0, 4, 1, 9]
    assert images.test_y.bincount().tolist() == [
        *(980, 1135, 1032, 1010, 982),
        *(892, 958, 1028, 974, 1009),
    ]
    # The mean that everyone normalises with.
    assert images.train_x.double().mean().item() / 255 == pytest.approx(0.1307, abs=1e-4)


def test_fashion_mnist_has_as_many_of_each() -> None:
    require_cached("fashion_mnist")
    images = datasets.fashion_mnist()
    assert images.train_y.bincount().tolist() == [6000] * 10
    assert images.classes[images.train_y[0]] == "Ankle boot"


def test_enwik8_begins_with_its_markup() -> None:
    require_cached("enwik8")
    assert bytes(datasets.enwik8(limit=10).tolist()) == b"<mediawiki"


def test_shakespeare_is_in_it() -> None:
    require_cached("shakespeare")
    assert "To be, or not to be- that is the question" in datasets.shakespeare()


def test_imdb_says_worst_of_bad_movies_in_both_original_halves() -> None:
    require_cached("imdb")
    train, test = datasets.imdb(split="train"), datasets.imdb(split="test")
    for reviews in (train, test):
        assert Counter(label for _, label in reviews) == {0: 12_500, 1: 12_500}
        said = Counter(label for text, label in reviews if "worst" in text)
        assert said[0] > 5 * said[1]
    assert sorted(train + test) == sorted(datasets.imdb())
