"""One pass over a file from its first byte to its last, hashed on the way."""

from __future__ import annotations

import hashlib
import io
from typing import TYPE_CHECKING

from memaudit.errors import SourceError
from memaudit.loading.disk.regular_file import changed_while_read, out_of_memory

if TYPE_CHECKING:
    from memaudit.loading.access import Access
    from memaudit.loading.disk.regular_file import RegularFile

_CHUNK = 1 << 22
#: Whoever watches is told about every so many bytes, and about smaller sources not at all.
_TOLD = 1 << 26


class Meter:
    """Tells whoever watches how much of a source has been read."""

    def __init__(self, access: Access, total: int) -> None:
        self._access, self._total = access, total
        self._done = self._told = 0

    def add(self, length: int) -> None:
        """So many bytes more."""
        self._done = min(self._done + length, self._total)
        last = self._done == self._total and self._told > 0
        if self._done - self._told >= _TOLD or last:
            self._told = self._done
            self._access.advance("reading", self._done, self._total)


class OnePass:
    """The bytes of a file in their order: what is loaded is what is hashed."""

    def __init__(self, file: RegularFile, meter: Meter) -> None:
        self._file, self._meter = file, meter
        self._at = 0
        self._sum = hashlib.sha256()

    @property
    def left(self) -> int:
        """The bytes that have not been read."""
        return self._file.size - self._at

    def expect(self, known: bytes) -> None:
        """The next bytes, which were looked at before and must still be the same."""
        if self._next(len(known)) != known:
            raise changed_while_read()

    def fill(self, target: memoryview) -> None:
        """The next bytes, as many as the target takes."""
        done = 0
        while done < len(target):
            chunk = self._next(min(_CHUNK, len(target) - done))
            target[done : done + len(chunk)] = chunk
            done += len(chunk)

    def rest(self) -> bytes:
        """Everything that is left."""
        try:
            whole = io.BytesIO()  # gives its bytes away without a copy
            while self.left:
                whole.write(self._next(min(_CHUNK, self.left)))
            return whole.getvalue()
        except MemoryError:
            raise out_of_memory() from None

    def finish(self) -> str:
        """The SHA-256 of the whole file, which nobody changed meanwhile."""
        if self.left:
            fact = f"{self.left} bytes at the end of the file belong to nothing"
            hint = "copy or download the file again"
            raise SourceError("E_CORRUPT", fact, hint=hint, stage="open")
        self._file.require_unchanged()
        return self._sum.hexdigest()

    def _next(self, length: int) -> bytes:
        chunk = self._file.read(self._at, length)
        self._at += length
        self._sum.update(chunk)
        self._meter.add(length)
        return chunk
