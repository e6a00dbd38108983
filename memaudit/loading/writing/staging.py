"""A new folder that is there as a whole, or not at all."""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from memaudit.errors import ArgumentError
from memaudit.faults import step
from memaudit.loading.writing.failing import writing
from memaudit.report_files import SUFFIX, TEMPORARY

if TYPE_CHECKING:
    from collections.abc import Iterator


def require_vacant(folder: Path) -> None:
    """Refuse to write where something is already; an empty folder is nothing."""
    vacant = not os.path.lexists(folder)
    if not vacant and folder.is_dir():
        with writing(folder):
            vacant = not os.listdir(folder)
    if not vacant:
        raise ArgumentError(
            "the output folder is there already and is not empty",
            hint="choose another --out, or remove it",
            source=folder,
        )


@contextmanager
def staged(folder: Path) -> Iterator[Path]:
    """A temporary folder beside the one that is wanted, renamed when all is written.

    Whatever stops the work before, nothing of it stays.
    """
    require_vacant(folder)
    target = folder.absolute()
    with writing(folder):
        target.parent.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(prefix=TEMPORARY, suffix=SUFFIX, dir=target.parent))
    try:
        yield made
        step("folder.written")
        with writing(folder):
            made.chmod(_rights())
            if target.is_dir() and not target.is_symlink():
                target.rmdir()
            made.rename(target)
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _rights() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return 0o777 & ~mask
