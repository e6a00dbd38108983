"""What a subject holds, as a fingerprint."""

from __future__ import annotations

from torch import nn

from memaudit.contracts import AbstractSubject
from memaudit.loading.filling import digest_tensors


def fingerprint(subject: AbstractSubject) -> str:
    """SHA-256 over the tensors and modules among the subject's attributes."""
    found: dict[str, object] = {}
    for name, value in getattr(subject, "__dict__", {}).items():
        held = value.state_dict() if isinstance(value, nn.Module) else {"": value}
        found |= {f"{name}.{key}": item for key, item in held.items()}
    return digest_tensors(found)
