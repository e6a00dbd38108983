"""Folders of PEFT: an adapter is merged into the base that it names, or refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import memaudit
from memaudit import MemauditError
from memaudit.loading.source import DEMO_FOLDER
from tests.loading.hub_server import Hub, Repository
from tests.loading.hub_visits import hub_home

__all__ = ["hub_home"]

BASE = DEMO_FOLDER / "mamba"
RANK, ALPHA = 4, 12
TARGETS = ("in_proj", "x_proj")
QUICK = {"horizon": 48, "level": "quick", "queries": ["driven"], "probes": ["spectrum"]}


def pairs() -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    draw, found = torch.Generator().manual_seed(0), {}
    for name, weight in load_file(BASE / "model.safetensors").items():
        if name.split(".")[-2:-1] and name.split(".")[-2] in TARGETS:
            rows, columns = weight.shape
            down = 0.2 * torch.randn(RANK, columns, generator=draw)
            found[name] = (down, 0.2 * torch.randn(rows, RANK, generator=draw))
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An adapter as peft saves it."""
    tensors = {}
    for name, (down, up) in pairs().items():
        own = f"base_model.model.{name.removesuffix('.weight')}"
        tensors |= {f"{own}.lora_A.weight": down, f"{own}.lora_B.weight": up}
    save_file(tensors, tmp_path / "adapter_model.safetensors")
    states(tmp_path, {})
    return tmp_path


def states(folder: Path, changes: dict[str, Any]) -> None:
    settings = {
        "base_model_name_or_path": str(BASE),
        "peft_type": "LORA",
        "r": RANK,
        "lora_alpha": ALPHA,
        "target_modules": list(TARGETS),
        "task_type": "CAUSAL_LM",
        "megatron_config": {"a": 1},
        "megatron_core": "this.is.no.module",
        **changes,
    }
    (folder / "adapter_config.json").write_text(json.dumps(settings))


def test_an_adapter_is_the_base_with_its_product_added(folder: Path, tmp_path: Path) -> None:
    merged = tmp_path / "merged"
    merged.mkdir()
    tensors = load_file(BASE / "model.safetensors")
    for name, (down, up) in pairs().items():
        tensors[name] = tensors[name] + ALPHA / RANK * up @ down
    save_file(tensors, merged / "model.safetensors")
    for path in BASE.glob("*.json"):
        (merged / path.name).write_bytes(path.read_bytes())
    found, by_hand, base = (memaudit.scan(path, **QUICK) for path in (folder, merged, BASE))
    np.testing.assert_allclose(
        found.memory["driven"].values, by_hand.memory["driven"].values, rtol=1e-4
    )
    assert not np.allclose(found.memory["driven"].values, base.memory["driven"].values, rtol=1e-2)
    for one, other in zip(found.spectrum, by_hand.spectrum, strict=True):
        np.testing.assert_allclose(one.eigenvalues, other.eigenvalues, rtol=1e-6)
    (note,) = (note for note in found.subject.notes if "LoRA" in note)
    assert str(BASE) in note
    assert base.subject.sha256 in note
    assert "rank 4 on 4 layers" in note
    assert found.subject.sha256 not in (base.subject.sha256, by_hand.subject.sha256)


def test_another_base_is_named_by_an_option(folder: Path) -> None:
    states(folder, {"base_model_name_or_path": None})
    with pytest.raises(MemauditError, match="does not name the model") as caught:
        memaudit.load(folder)
    assert "--set base=" in caught.value.hint
    assert memaudit.load(folder, base=str(BASE)).identity.notes


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"base_model_name_or_path": "/not/here"}, "the base of the adapter, /not/here"),
        ({"peft_type": "IA3"}, "an adapter of the type IA3"),
        ({"r": 10**9}, "whose weights have the rank 4"),
        ({"rank_pattern": {"x_proj": 10**9}}, "whose weights have the rank 4"),
        ({"r": 2}, "does not fit its base"),
        ({"target_modules": ["nowhere"]}, "does not fit its base"),
        ({"target_modules": ["in_proj"]}, "does not fit its base: with"),
        ({"target_modules": ["in_proj", "x_proj", "dt_proj"]}, "does not fit its base: without"),
        ({"base_model_name_or_path": str(DEMO_FOLDER / "bert")}, "does not fit its base"),
    ],
)
def test_an_adapter_that_does_not_fit_is_refused(
    folder: Path, changes: dict[str, Any], words: str
) -> None:
    states(folder, changes)
    with pytest.raises(MemauditError, match=words) as caught:
        memaudit.load(folder)
    assert caught.value.hint


def test_a_base_of_the_hub_is_fetched_for_the_user_alone(folder: Path, hub_home: Path) -> None:
    files = {path.name: path.read_bytes() for path in BASE.iterdir() if path.is_file()}
    states(folder, {"base_model_name_or_path": "org/base"})
    with Hub(Repository("org/base", files)) as hub:
        with pytest.raises(MemauditError, match="is not in the cache") as caught:
            memaudit.load(folder)
        assert "--set base=org/base" in caught.value.hint
        assert not hub.asked
        assert "org/base" in " ".join(memaudit.load(folder, base="org/base").identity.notes)
        asked = len(hub.asked)
        memaudit.load(folder)  # from the cache now
        assert len(hub.asked) == asked


def test_both_files_are_watched(folder: Path) -> None:
    def advance(stage: str, done: int, of: int) -> None:
        if stage == "spectrum" and done == 0:
            save_file({"a": torch.zeros(1)}, folder / "adapter_model.safetensors")

    report = memaudit.scan(folder, progress=advance, **QUICK)
    assert [error["code"] for error in report.errors] == ["E_CHANGED"]
