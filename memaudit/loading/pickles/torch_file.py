"""What torch.save wrote, read without torch.load: nothing in the file is imported or called."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memaudit.errors import listed
from memaudit.loading.access import SAFE, Access
from memaudit.loading.pickles.describing import describe
from memaudit.loading.pickles.parent import describe_in_child
from memaudit.loading.pickles.reading import damaged
from memaudit.loading.pickles.rebuilding import rebuild, too_large
from memaudit.loading.pickles.refusals import LONGEST_NAME
from memaudit.loading.pickles.torch_parts import torch_parts

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_SHOWN = 20


def read_torch(data: bytes, *, access: Access = SAFE) -> tuple[Any, tuple[str, ...]]:
    """The object in a torch file, zip or legacy, and what was made inert to open it.

    `torch.load(weights_only=True)` is not used: a hundred bytes make it allocate any amount of
    memory, colliding keys make it hang, and legacy tensors may come out uninitialised.
    """
    parts = torch_parts(data, access.limits)
    most = access.limits.max_tensors
    described = {} if access.allow_pickle else _described_here(parts.pickles, max_tensors=most)
    described = described or describe_in_child(parts.pickles, access)
    content = rebuild(described, parts, max_tensors=most)
    return content, tuple(_notes(described, allowed=access.allow_pickle))


def _described_here(pickles: Sequence[bytes], *, max_tensors: int) -> dict[str, Any]:
    """The description of pickles without foreign names; empty for known settings.

    The budget bounds time and memory.
    """
    try:
        return describe(pickles, inert=False, max_tensors=max_tensors)
    except RecursionError:
        raise damaged("the containers in the file are nested too deeply") from None
    except MemoryError:
        raise too_large() from None


def _notes(described: Mapping[str, Any], *, allowed: bool) -> Iterator[str]:
    """Which objects were made inert, and what is missing among the tensors."""
    kinds = [
        f"{name} ({count})" if count else name for name, count in _rows(described, "kinds", int)
    ]
    if kinds:
        noun = "1 kind of object was" if len(kinds) == 1 else f"{len(kinds)} kinds of objects were"
        how = f"allow-pickle: {noun} made inert" if allowed else f"settings: {noun} made plain"
        yield f"{how}: {listed(kinds, most=_SHOWN, limit=LONGEST_NAME)}"
    lost = [f"{name} ({kind})" for name, kind in _rows(described, "lost", str)]
    if lost:
        yield f"left out among the tensors: {listed(lost, most=_SHOWN, limit=LONGEST_NAME)}"


def _rows(described: Mapping[str, Any], field: str, kind: type) -> list[tuple[str, Any]]:
    """The rows of a table of names, as far as it is one."""
    table = described.get(field)
    rows = table if isinstance(table, list) else [None]
    good = [r for r in rows if isinstance(r, list | tuple) and len(r) == 2]
    if len(good) < len(rows) or not all(
        isinstance(name, str) and isinstance(value, kind) for name, value in good
    ):
        raise damaged()
    return [(name, value) for name, value in good]
