"""Made-up inputs for every reader of foreign bytes; `python -m tests.fuzz` tries more of them."""

from __future__ import annotations

import pytest

from memaudit.loading import open_checkpoint
from tests.fuzz import corpus
from tests.fuzz.running import fuzz
from tests.fuzz.targets import Target, targets

TARGETS = targets()


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
@pytest.mark.parametrize(
    "examples",
    [500 // len(TARGETS), pytest.param(20_000 // len(TARGETS) + 1, marks=pytest.mark.slow)],
    ids=["some", "many"],
)
def test_only_refusals_come_out(target: Target, examples: int) -> None:
    tried, _ = fuzz(target, examples=examples)
    assert tried >= examples // 2


@pytest.mark.parametrize("name", ["a.safetensors", "b.pt", "c.pt", "d.npz", "e.npz"])
def test_every_seed_opens(name: str, tmp_path) -> None:
    path = tmp_path / name
    path.write_bytes(corpus.files()[name])
    found = open_checkpoint(path).tensors
    assert {k: v.tolist() for k, v in found.items()} == {
        k: v.tolist() for k, v in corpus.weights().items()
    }
