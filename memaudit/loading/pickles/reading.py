"""The instructions of a pickle, one after another, as far as a budget goes."""

from __future__ import annotations

import io
import pickletools
import struct
import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from memaudit.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Iterator

#: What Python's own reader of pickle instructions was seen to raise.
_DAMAGE = (ValueError, OverflowError, EOFError, struct.error)
#: What an instruction costs in memory, beside the one that every one of them costs: containers
#: and calls take about 140 bytes, a new place in the memo 100.
_COSTS = {
    **dict.fromkeys(("EMPTY_DICT", "EMPTY_LIST", "EMPTY_SET", "DICT", "LIST", "FROZENSET"), 3),
    **dict.fromkeys(("TUPLE", "TUPLE1", "TUPLE2", "TUPLE3"), 3),
    **dict.fromkeys(("REDUCE", "NEWOBJ", "NEWOBJ_EX", "OBJ", "INST"), 3),
    **dict.fromkeys(("PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"), 1),
}
#: A tensor in a state dict costs about 60: 35 instructions, six containers, nine memos.
PER_TENSOR = 70
#: What a trainer saves beside a few tensors must not count against them.
FEWEST_TENSORS = 10_000


class Budget:
    """How much may still be read."""

    def __init__(self, max_tensors: int) -> None:
        self.left = PER_TENSOR * max(max_tensors, FEWEST_TENSORS)


def instructions(stream: io.BytesIO, budget: Budget) -> Iterator[tuple[str, Any]]:
    """The name and the argument of every instruction up to STOP; nothing is done with them."""
    try:
        for opcode, argument, _ in pickletools.genops(stream):
            budget.left -= 1 + _COSTS.get(opcode.name, 0)
            if budget.left < 0:
                raise _too_long()
            yield opcode.name, argument
    except _DAMAGE:
        raise damaged() from None


@contextmanager
def unwarned() -> Iterator[None]:
    """No warnings about odd escapes in damaged text."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def split_pickles(data: bytes, count: int, budget: Budget) -> tuple[tuple[bytes, ...], int]:
    """The first pickles in a file, and where the bytes behind them begin."""
    stream = io.BytesIO(data)
    found: list[bytes] = []
    with unwarned():
        for _ in range(count):
            start = stream.tell()
            for _ in instructions(stream, budget):
                pass
            found.append(data[start : stream.tell()])
    return tuple(found), stream.tell()


def damaged(fact: str = "the torch file is cut short or damaged") -> SourceError:
    """The refusal of a file that does not say what it should."""
    hint = "copy or download the file again"
    return SourceError("E_CORRUPT", fact, hint=hint, stage="open")


def _too_long() -> SourceError:
    return SourceError(
        "E_LIMIT",
        "the pickle in the file has more instructions than a model needs",
        hint="is this a model? if so, raise the limit with --set max_tensors=N",
        stage="open",
    )
