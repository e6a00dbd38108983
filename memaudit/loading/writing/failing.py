"""What goes wrong while a checkpoint is written, in one sentence."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from memaudit.errors import MachineError, clean

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn a disk that fails into E_DISK, with the name of what was written."""
    try:
        yield
    except OSError as error:
        raise MachineError(
            "E_DISK",
            f"cannot write: {clean(error.strerror or error)}",
            hint="choose a place that is writable and has room",
            source=path,
            stage="write",
        ) from error
