"""What the tests of hubs share: a small repository, a cache of its own, and a visit."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from huggingface_hub import constants
from safetensors.torch import save
from torch import nn

import memaudit
from memaudit import MemauditError
from tests.loading.hub_server import NOBODY, Hub, Repository

NAME = "org/lstm"
with torch.random.fork_rng():
    LSTM = nn.LSTM(3, 4)
WEIGHTS = save(LSTM.state_dict())


@pytest.fixture
def hub_home(tmp_path: Path) -> Iterator[Path]:
    """A cache of its own, and nothing of the caller's settings."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("HF_TOKEN", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "TRANSFORMERS_OFFLINE"):
            patch.delenv(name, raising=False)
        patch.setenv("HF_HOME", str(tmp_path / "home"))
        patch.setenv("HF_HUB_OFFLINE", "0")
        patch.setenv("HF_ENDPOINT", NOBODY)
        patch.setenv("NO_PROXY", "*")
        importlib.reload(constants)
        yield tmp_path / "home"
    importlib.reload(constants)


def repository(**files: bytes) -> Repository:
    """A small model."""
    held = {"config.json": b"{}", "model.safetensors": WEIGHTS, **files}
    return Repository(NAME, held, large=("model.safetensors",), tags=("v1", "feature/x"))


def notes(**options: Any) -> tuple[str, ...]:
    """What an opened model says about where it is from."""
    return memaudit.load(NAME, **options).identity.notes


def refusal(source: str = NAME, **options: Any) -> MemauditError:
    """The error that opening it ends in."""
    with pytest.raises(MemauditError) as caught:
        memaudit.load(source, **options)
    return caught.value


def bodies(hub: Hub) -> list[str]:
    """The files of which the contents were asked for, in their order."""
    gets = (a.path for a in hub.asked if a.method == "GET" and "/api/" not in a.path)
    return [path.rpartition("/")[2] for path in gets]
