"""The only package that opens checkpoints; its names load on first use."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

_WHERE = {
    "Checkpoint": "memaudit.loading.checkpoint",
    "Source": "memaudit.loading.source",
    "fill": "memaudit.loading.filling",
    "guard_torchvision": "memaudit.loading.torchvision_guard",
    "open_checkpoint": "memaudit.loading.checkpoint",
    "parse_source": "memaudit.loading.source",
    "require_finite": "memaudit.loading.filling",
    "require_same": "memaudit.loading.filling",
    "torchvision_state": "memaudit.loading.torchvision_guard",
}

if TYPE_CHECKING:
    from memaudit.loading.checkpoint import Checkpoint as Checkpoint
    from memaudit.loading.checkpoint import open_checkpoint as open_checkpoint
    from memaudit.loading.filling import fill as fill
    from memaudit.loading.filling import require_finite as require_finite
    from memaudit.loading.filling import require_same as require_same
    from memaudit.loading.source import Source as Source
    from memaudit.loading.source import parse_source as parse_source
    from memaudit.loading.torchvision_guard import guard_torchvision as guard_torchvision
    from memaudit.loading.torchvision_guard import torchvision_state as torchvision_state


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'memaudit.loading' has no attribute {name!r}")
    return getattr(import_module(_WHERE[name]), name)


def __dir__() -> list[str]:
    return sorted(_WHERE)
