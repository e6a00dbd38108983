"""Whether a report is about the weights that lie in a folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memaudit.errors import MachineError, MemauditError, clean
from memaudit.loading.checkpoint import joint_digest
from memaudit.loading.files import SUFFIXES, Stamp, digest, open_within

if TYPE_CHECKING:
    from pathlib import Path

    from memaudit.report import Report


def matches(report: Report, folder: Path) -> bool | None:
    """Whether one weight file of the folder, or all of a kind, are those of the report.

    None where nobody can say: the report does not tell its weights, or the folder has none.
    """
    wanted = report.subject.sha256
    if not wanted:
        return None
    known = False
    for suffix in SUFFIXES:
        stamps: list[Stamp] = []
        for path in _files(folder, suffix):
            stamp = _stamp(folder, path)
            if stamp is None:
                continue
            known = True
            if stamp.sha256 == wanted:
                return True
            stamps.append(stamp)
        if len(stamps) > 1 and joint_digest(stamps) == wanted:
            return True
    return False if known else None


def _files(folder: Path, suffix: str) -> list[str]:
    try:
        return sorted(p.name for p in folder.iterdir() if p.name.lower().endswith(suffix))
    except OSError as error:
        fact = f"cannot read: {clean(error.strerror or error)}"
        raise MachineError("E_DISK", fact, hint="see its rights", source=folder) from error


def _stamp(folder: Path, name: str) -> Stamp | None:
    """What the file is; None for one that is no file, or leads out of the folder."""
    try:
        with open_within(folder, name) as file:
            return Stamp.of(file, digest(file))
    except MemauditError:
        return None
