"""Work on several rows side by side, without a barrier after every step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import torch

from memaudit.numerics.scans.chunking import spans


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
