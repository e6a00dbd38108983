"""A few hundred inputs of the fuzzers; `python -m tests.fuzz` tries as many as you like."""

from __future__ import annotations

import pytest

from memaudit.loading.checkpoint import open_checkpoint
from tests.fuzz import corpus
from tests.fuzz.running import fuzz
from tests.fuzz.targets import targets

EXAMPLES = 60


@pytest.mark.parametrize("target", targets(), ids=lambda target: target.name)
def test_only_refusals_come_out(target) -> None:
    tried, _ = fuzz(target, examples=EXAMPLES)
    print(f"{target.name}: {tried} inputs")
    assert tried >= EXAMPLES // 2


@pytest.mark.parametrize("name", ["a.safetensors", "b.pt", "c.pt", "d.npz", "e.npz"])
def test_the_seeds_are_honest(name: str, tmp_path) -> None:
    path = tmp_path / name
    path.write_bytes(corpus.files()[name])
    found = open_checkpoint(path).tensors
    assert {k: v.tolist() for k, v in found.items()} == {
        k: v.tolist() for k, v in corpus.weights().items()
    }
