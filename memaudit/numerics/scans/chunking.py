"""How a scan cuts its time into chunks, and in which precision it works."""

from __future__ import annotations

from collections.abc import Iterator

import torch

#: Numbers in one working array of a scan: four megabytes in single precision stay in the last
#: cache of common processors, and a chunk is long enough for calls into torch to weigh little.
BUDGET = 2**20
#: A Python object is made for every step of a chunk; this many stay below a megabyte.
MOST_STEPS = 1024


def working_dtype(*tensors: torch.Tensor) -> torch.dtype:
    """The widest dtype among the tensors, and at least single precision.

    A state in half precision stops taking up small inputs, so half precision is never worked in.
    """
    widest = torch.float32
    for tensor in tensors:
        widest = torch.promote_types(widest, tensor.dtype)
    return widest


def chunk_length(length: int, numbers_per_step: int) -> int:
    """Steps that go into one chunk: within the budget, and at least one."""
    return max(1, min(length, MOST_STEPS, BUDGET // max(1, numbers_per_step)))


def spans(length: int, size: int) -> Iterator[slice]:
    """Consecutive slices of `size` steps that cover `length`; the last one may be shorter."""
    for start in range(0, length, size):
        yield slice(start, min(start + size, length))
