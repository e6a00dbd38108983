"""Pages of commands that have no report formats: where they go, checked before any work starts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from memaudit.cli.targets import STDOUT, check_file, named_file
from memaudit.errors import ArgumentError

if TYPE_CHECKING:
    from collections.abc import Sequence


def page_target(file: str | None, *, spared: Sequence[Path]) -> Path | None:
    """The file that was asked for, if it can be written and is none of those that are read."""
    if file is None:
        return None
    if not file or file in STDOUT:
        hint = "name a file: stdout has the text"
        raise ArgumentError("--html needs the name of a file", hint=hint, source=file)
    path = named_file(file)
    for other in spared:
        if path.exists() and other.exists() and path.samefile(other):
            fact = "the page would replace a report that is compared"
            raise ArgumentError(fact, hint="name another file", source=path)
    check_file(path, None)
    return path
