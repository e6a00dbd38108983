"""Making reports: whatever goes wrong in one of them is an error that names it."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from memaudit.errors import InternalError, MachineError, MemauditError, clean

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextmanager
def rendering(what: str, target: Path | None) -> Iterator[None]:
    """Turn a crash while `what` is made for `target` (None: stdout) into an error.

    An audit may have taken hours: a bug in one format must not keep the others from being written.
    """
    source = "stdout" if target is None else target
    try:
        yield
    except MemauditError:
        raise
    except MemoryError as error:
        fact = f"{what} needs more memory than there is"
        raise MachineError(
            "E_MEMORY", fact, hint="close other programs", source=source, stage="write"
        ) from error
    except Exception as error:
        fact = f"{what} cannot be made: {type(error).__name__}: {clean(error)}"
        hint = "run again with --debug and report it"
        raise InternalError("E_INTERNAL", fact, hint=hint, source=source, stage="write") from error
