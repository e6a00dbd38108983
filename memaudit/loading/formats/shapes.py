"""Shapes that a file claims, checked before anything is allocated."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Torch and numpy know no more dimensions.
MOST_DIMENSIONS = 64
LARGEST = (1 << 63) - 1


def count_bytes(shape: Sequence[object], item: int) -> int | None:
    """The bytes of a dense array of `item` bytes per number, or None when there is no such array.

    A zero does not excuse what stands beside it: (0, 2**62, 2**62) has no strides.
    """
    if len(shape) > MOST_DIMENSIONS:
        return None
    total = reach = item
    for length in shape:
        if not isinstance(length, int) or isinstance(length, bool) or length < 0:
            return None
        total *= length
        reach *= max(length, 1)
        if reach > LARGEST:
            return None
    return total
