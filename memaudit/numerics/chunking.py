"""How scans cut time into chunks and rows among threads, and in which precision they work."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

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


def shares(rows: int, *, on_processor: bool) -> Sequence[slice]:
    """The rows that go to every thread; all of them to one where that is the best."""
    threads = torch.get_num_threads() if on_processor else 1
    return tuple(spans(rows, max(1, -(-rows // threads))))


def side_by_side(work: Callable[[slice], None], parts: Sequence[slice]) -> None:
    """Do the work on every part, each in a thread with its share of torch's own threads.

    torch splits one operation among its threads and waits for the last of them; a scan has two
    small operations a step. Threads that take rows of their own never wait for each other.
    """
    if len(parts) <= 1:
        for part in parts:
            work(part)
        return
    each = max(1, torch.get_num_threads() // len(parts))
    inference = torch.is_inference_mode_enabled()

    def alone(part: slice) -> None:
        # These settings belong to a thread, and a new one starts without them.
        torch.set_num_threads(each)
        with torch.inference_mode(inference), torch.no_grad():
            work(part)

    with ThreadPoolExecutor(len(parts), thread_name_prefix="memaudit-scan") as pool:
        for done in [pool.submit(alone, part) for part in parts]:
            done.result()
