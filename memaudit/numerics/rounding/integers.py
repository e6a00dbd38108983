"""Rounding to whole multiples of a scale: the largest number of a block sets it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Callable


def absmax(values: torch.Tensor, levels: int) -> torch.Tensor:
    """The nearest multiples of max|x| / levels, the maximum being over the last axis.

    The quotient comes first: the largest number is then met exactly, and rounding again changes
    nothing.
    """
    top = largest(values)
    counts = torch.round(values / top * levels)
    return torch.where(values.isfinite(), counts / levels * top, values)


def largest(values: torch.Tensor) -> torch.Tensor:
    """The largest finite |x| of every block, 1 where there is none but zeros."""
    sizes = torch.where(values.isfinite(), values.abs(), 0.0)
    top = sizes.amax(-1, keepdim=True)
    return torch.where(top > 0, top, 1.0)


def whole(values: torch.Tensor, rule: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
    """A rule for one block, on the whole tensor."""
    return rule(values.reshape(-1)).reshape(values.shape)


def by_row(values: torch.Tensor, rule: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
    """A rule for blocks along the last axis; a number alone is a row."""
    return rule(values.reshape(-1, values.shape[-1] if values.ndim else 1)).reshape(values.shape)


def by_group(
    values: torch.Tensor, rule: Callable[[torch.Tensor], torch.Tensor], *, size: int
) -> torch.Tensor:
    """A rule for groups of so many neighbours on the last axis; the last group may be smaller."""
    rows = values.reshape(-1, values.shape[-1] if values.ndim else 1)
    groups = [rule(group) for group in rows.split(size, dim=-1)]
    return torch.cat(groups, dim=-1).reshape(values.shape)
