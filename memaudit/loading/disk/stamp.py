"""What a file was when it was read, to be compared with what it is after the audit."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from memaudit.errors import MachineError, MemauditError, SourceError, clean
from memaudit.loading.disk.regular_file import open_regular

if TYPE_CHECKING:
    from pathlib import Path

    from memaudit.loading.disk.regular_file import RegularFile

#: Larger files are not read a second time when the system says that nobody touched them.
LARGEST_READ_AGAIN = 2 << 30
_CHUNK = 1 << 22


@dataclass(frozen=True, slots=True)
class Stamp:
    """A file, the marks that the system keeps of it, and the SHA-256 of its bytes."""

    path: Path
    marks: tuple[int, ...]
    sha256: str

    @classmethod
    def of(cls, file: RegularFile, sha256: str) -> Stamp:
        """The stamp of a file that was read from end to end."""
        return cls(file.path, file.marks, sha256)

    def change(self) -> MemauditError | None:
        """E_CHANGED when the bytes are no longer those that were read; a new date is no change."""
        try:
            with open_regular(self.path) as file:
                if file.marks == self.marks and file.size > LARGEST_READ_AGAIN:
                    return None
                if file.size == self.marks[0] and digest(file) == self.sha256:
                    return None
            verb = "changed"
        except MachineError as error:
            return error.at(self.path)
        except SourceError as error:
            verb = "removed" if error.code == "E_NOT_FOUND" else "changed"
        return SourceError(
            "E_CHANGED",
            f"{clean(self.path.name)} was {verb} during the audit; "
            f"the report is about the bytes with sha256 {self.sha256}",
            hint="audit a copy that nobody writes to",
            source=self.path,
            stage="after",
        )


def digest(file: RegularFile) -> str:
    """The SHA-256 of all its bytes, which nobody wrote to meanwhile."""
    total = hashlib.sha256()
    for start in range(0, file.size, _CHUNK):
        total.update(file.read(start, min(_CHUNK, file.size - start)))
    file.require_unchanged()
    return total.hexdigest()
