"""memaudit audits how long trained sequence models remember. Public names load on first use."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_WHERE = {
    "FamilyReport": "memaudit.families.result",
    "MemauditError": "memaudit.errors",
    "Report": "memaudit.report",
    "Retrofit": "memaudit.retrofitting.result",
    "family": "memaudit.families.audit",
    "fold": "memaudit.retrofitting.model",
    "load": "memaudit.audit",
    "retrofit": "memaudit.retrofitting.model",
    "scan": "memaudit.audit",
    "wrap": "memaudit.subjects.callables",
}

if TYPE_CHECKING:
    from memaudit.audit import load as load
    from memaudit.audit import scan as scan
    from memaudit.errors import MemauditError as MemauditError
    from memaudit.families.audit import family as family
    from memaudit.families.result import FamilyReport as FamilyReport
    from memaudit.report import Report as Report
    from memaudit.retrofitting.model import fold as fold
    from memaudit.retrofitting.model import retrofit as retrofit
    from memaudit.retrofitting.result import Retrofit as Retrofit
    from memaudit.subjects.callables import wrap as wrap

__all__ = [
    "FamilyReport",
    "MemauditError",
    "Report",
    "Retrofit",
    "__version__",
    "family",
    "fold",
    "load",
    "retrofit",
    "scan",
    "wrap",
]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'memaudit' has no attribute {name!r}")
    return getattr(import_module(_WHERE[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
