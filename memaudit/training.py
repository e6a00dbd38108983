"""Training of retrofitted models: parameter groups, and callbacks for two trainers."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

_WHERE = {
    "LightningMemauditCallback": "memaudit.retrofitting.lightning_callback",
    "MemauditCallback": "memaudit.retrofitting.trainer_callback",
    "RawWeights": "memaudit.retrofitting.record",
    "parameter_groups": "memaudit.retrofitting.monitoring",
}

if TYPE_CHECKING:
    from memaudit.retrofitting.lightning_callback import (
        LightningMemauditCallback as LightningMemauditCallback,
    )
    from memaudit.retrofitting.monitoring import parameter_groups as parameter_groups
    from memaudit.retrofitting.record import RawWeights as RawWeights
    from memaudit.retrofitting.trainer_callback import MemauditCallback as MemauditCallback

__all__ = ["LightningMemauditCallback", "MemauditCallback", "RawWeights", "parameter_groups"]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'memaudit.training' has no attribute {name!r}")
    return getattr(import_module(_WHERE[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
