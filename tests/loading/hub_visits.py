"""What the tests of hubs share: a small repository, a cache of its own, and a visit."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from safetensors.torch import save

from memaudit.errors import MemauditError
from memaudit.loading.access import Access
from memaudit.loading.hub import Fetched, fetch_repository
from tests.loading.hub_server import Hub, Repository

WEIGHTS = save({"lstm.weight_ih_l0": torch.arange(6.0).reshape(2, 3)})
NAME = "org/lstm"


@pytest.fixture
def hub_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of its own, and nothing of the caller's settings."""
    for name in ("HF_TOKEN", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "TRANSFORMERS_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("NO_PROXY", "*")
    return tmp_path / "home"


def repository() -> Repository:
    """A small model."""
    files = {"config.json": b"{}", "model.safetensors": WEIGHTS}
    return Repository(NAME, files, large=("model.safetensors",), tags=("v1", "feature/x"))


def fetch(hub: Hub | None = None, revision: str | None = None, **allowed: object) -> Fetched:
    """Fetch from this hub; without one, from an address where nobody listens."""
    os.environ["HF_ENDPOINT"] = hub.url if hub else "http://127.0.0.1:9"
    return fetch_repository(NAME, revision=revision, access=Access(**allowed))  # type: ignore


def refusal(kind: type[MemauditError], hub: Hub | None = None, **more: object) -> MemauditError:
    with pytest.raises(kind) as caught:
        fetch(hub, **more)  # type: ignore
    return caught.value


def garbage(home: Path) -> list[str]:
    """Half-written files that nobody will go on with: their names are made up each time."""
    names = [path.name for path in home.rglob("*.incomplete")]
    return [name for name in names if name.count(".") > 1]
