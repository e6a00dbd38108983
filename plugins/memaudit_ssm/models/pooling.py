"""What a decoder reads of the steps: each of them, their mean, or the last one."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

POOLINGS = ("none", "mean", "last")


def pool(x: Tensor, how: str) -> Tensor:
    """Steps (B,T,M) as they are, or one vector (B,M) of them; `how` is one of POOLINGS."""
    if how == "none":
        return x
    return x.mean(dim=1) if how == "mean" else x[:, -1]
