"""The limits of this machine: what a matrix product and a copy of memory reach."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from benchmarks.row import Row, best

#: Of a square product: large enough to fill the machine.
SIDE = 1536
#: Numbers of a copy: far more than the caches hold.
NUMBERS = 2**25


def rows(*, full: bool) -> Iterator[Row]:
    """Arithmetic per second in both precisions, and bytes per second."""
    threads = torch.get_num_threads()
    for dtype in (torch.float32, torch.float64):
        one = torch.rand(SIDE, SIDE, dtype=dtype)
        seconds = best({"product": lambda one=one: one @ one}, 10 if full else 5)["product"]
        word = str(dtype).removeprefix("torch.")
        value = 2 * SIDE**3 / seconds / 1e9
        yield Row("machine", f"matrix product, {word}", value, "GFLOP/s", note=f"{threads} threads")
    there = torch.rand(NUMBERS)
    here = torch.empty_like(there)
    seconds = best({"copy": lambda: here.copy_(there)}, 10 if full else 5)["copy"]
    yield Row("machine", "copy of memory", 8 * NUMBERS / seconds / 1e9, "GB/s")
