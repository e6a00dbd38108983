"""The fingerprint of weights in memory."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Mapping


def digest_tensors(tensors: Mapping[str, object]) -> str:
    """SHA-256 over names, dtypes, shapes and bytes, in the order of the names."""
    total = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name]
        if not isinstance(tensor, torch.Tensor):
            continue
        head = f"{name}|{tensor.dtype}|{tuple(tensor.shape)}|"
        total.update(head.encode("utf-8", "surrogatepass"))
        plain = tensor.detach().cpu().resolve_conj().resolve_neg()
        total.update(plain.contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return total.hexdigest()
