"""The zip directory of a checkpoint, checked before anything inside is used."""

from __future__ import annotations

import io
import zipfile
import zlib
from typing import TYPE_CHECKING

from memaudit.errors import SourceError
from memaudit.loading.magic import CODE_HINT

if TYPE_CHECKING:
    from collections.abc import Sequence

_CHUNK = 1 << 20
#: Weights hardly shrink: an archive that grows more than this is a bomb, not a model.
MOST_EXPANSION = 100
#: Small archives may shrink as they like (a file of zeros does).
SMALL = 1 << 28
_AGAIN = "copy or download the file again"


def archive_format(data: bytes) -> str:
    """`torch` or `npz`, after every member's checksum has been verified."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = archive.infolist()
            found = _format([m.filename for m in members])
            _check_directory(members, compressed=found == "npz")
            _check_sums(archive, members)
            return found
    except (
        zipfile.BadZipFile,
        zlib.error,
        EOFError,
        OSError,
        ValueError,  # member names, seeks
        NotImplementedError,
        RuntimeError,  # encrypted members
        IndexError,
    ):
        raise SourceError(
            "E_CORRUPT", "the zip archive is cut short or damaged", hint=_AGAIN, stage="open"
        ) from None


def _format(names: Sequence[str]) -> str:
    ends = {name.partition("/")[2] or name for name in names}
    if "constants.pkl" in ends or any(end.startswith("code/") for end in ends):
        raise SourceError(
            "E_UNSAFE_FORMAT", "this is a TorchScript archive", hint=CODE_HINT, stage="open"
        )
    if "data.pkl" in ends:
        return "torch"
    if "model.weights.h5" in names:
        raise SourceError(
            "E_UNSAFE_FORMAT", "this is a .keras archive", hint=CODE_HINT, stage="open"
        )
    if any(name.startswith("archive_format") or "/archive_format" in name for name in names):
        raise SourceError(
            "E_UNSAFE_FORMAT", "this is a torch.export archive", hint=CODE_HINT, stage="open"
        )
    if names and all(name.endswith(".npy") for name in names):
        return "npz"
    raise SourceError(
        "E_UNSUPPORTED",
        "this is a zip archive without a checkpoint in it",
        hint="if it holds one, unpack it and give the file inside",
        stage="open",
    )


def _check_directory(members: Sequence[zipfile.ZipInfo], *, compressed: bool) -> None:
    names = [member.filename for member in members]
    if len(set(names)) < len(names):
        raise SourceError(
            "E_CORRUPT", "the archive holds two members of one name", hint=_AGAIN, stage="open"
        )
    packed = [m.filename for m in members if m.compress_type != zipfile.ZIP_STORED]
    if packed and not compressed:
        raise SourceError(
            "E_UNSUPPORTED",
            f"the archive is compressed, which torch.save never does: {packed[0]}",
            hint="save it again with torch.save",
            stage="open",
        )
    size = sum(member.file_size for member in members)
    stored = sum(member.compress_size for member in members)
    if size > SMALL and size > MOST_EXPANSION * stored:
        raise SourceError(
            "E_LIMIT",
            f"the archive would unpack from {stored} to {size} bytes",
            hint="such growth is no trained model; save it without compression",
            stage="open",
        )


def _check_sums(archive: zipfile.ZipFile, members: Sequence[zipfile.ZipInfo]) -> None:
    for member in members:
        try:
            with archive.open(member) as stream:
                while stream.read(_CHUNK):
                    pass
        except zipfile.BadZipFile:
            raise SourceError(
                "E_CORRUPT",
                f"the checksum of {member.filename} is wrong: the file is damaged",
                hint=f"{_AGAIN}; if it was saved without checksums, save it with them",
                stage="open",
            ) from None
