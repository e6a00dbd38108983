"""A checkpoint in a zip archive, checked member by member before anything inside is used."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

from memaudit.errors import SourceError, clean
from memaudit.loading.disk.budget import human_size, require_room
from memaudit.loading.formats.magic import CODE_HINT
from memaudit.loading.formats.zip_directory import (
    DEFLATED,
    STORED,
    BadArchive,
    Member,
    SealedArchive,
    find_directory,
    read_members,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from memaudit.loading.access import Access

_CHUNK = 1 << 20
#: Weights hardly shrink: an archive that grows more than this is a bomb, not a model.
MOST_EXPANSION = 100
#: Small archives may shrink as they like (a file of zeros does).
SMALL = 1 << 28
#: Members of a torch file besides its tensors: the pickle, versions, byte order.
_BESIDES = 64
_AGAIN = "copy or download the file again"


def read_archive(data: bytes, access: Access) -> tuple[str, tuple[Member, ...]]:
    """`torch` or `npz` and the members, after every checksum has been verified."""
    try:
        members = _members(data, access)
        found = _format([member.name for member in members])
        _check_packing(members, access, compressed=found == "npz")
        if found == "torch":
            _check_torch_names([member.name for member in members])
        _check_sums(data, members)
    except SealedArchive:
        hint = "unpack it with its password, and save the weights again"
        raise _refusal("E_UNSUPPORTED", "the zip archive is encrypted", hint=hint) from None
    except BadArchive as error:
        raise _refusal("E_CORRUPT", f"the zip archive {error}", hint=_AGAIN) from None
    return found, members


def unpacked(data: bytes, member: Member) -> Iterator[bytes | memoryview]:
    """The bytes of a member, in pieces; never more than its stated size."""
    packed = memoryview(data)[member.start : member.end]
    if member.method == STORED:
        yield packed
        return
    stream = zlib.decompressobj(-zlib.MAX_WBITS)
    left = member.size
    for start in range(0, len(packed), _CHUNK):
        piece = packed[start : start + _CHUNK]
        while len(piece) and not stream.eof:
            try:
                found = stream.decompress(piece, _CHUNK)
            except zlib.error:
                raise BadArchive("holds a member that does not unpack") from None
            left -= len(found)
            if left < 0:
                raise BadArchive("holds a member that is larger than it says")
            yield found
            piece = stream.unconsumed_tail
    while left and not stream.eof and (found := stream.decompress(b"", _CHUNK)):
        left -= len(found)
        yield found
    if left or not stream.eof or stream.unused_data:
        raise BadArchive("holds a member that is not as large as it says")


def _members(data: bytes, access: Access) -> tuple[Member, ...]:
    directory = find_directory(data)
    most = access.limits.max_tensors + _BESIDES
    if directory.count > most:
        fact = f"the archive lists {directory.count} members, more than {most}"
        hint = "is this a model? if so, raise the limit with --set max_tensors=N"
        raise _refusal("E_LIMIT", fact, hint=hint)
    return read_members(data, directory)


def _format(names: Sequence[str]) -> str:
    if names and all(name.endswith(".npy") for name in names):
        return "npz"  # its names are those of arrays: code/kernel is one
    ends = {name.partition("/")[2] or name for name in names}
    if "constants.pkl" in ends or any(end.startswith("code/") for end in ends):
        raise _code("a TorchScript archive")
    if "data.pkl" in ends:
        return "torch"
    if "model.weights.h5" in names:
        raise _code("a .keras archive")
    if any(end.startswith(("archive_format", "serialized_exported_program")) for end in ends):
        raise _code("a torch.export archive")
    raise _refusal(
        "E_UNSUPPORTED",
        "this is a zip archive without a checkpoint in it",
        hint="if it holds one, unpack it and give the file inside",
    )


def _check_packing(members: Sequence[Member], access: Access, *, compressed: bool) -> None:
    for member in members:
        if member.method != STORED and not (compressed and member.method == DEFLATED):
            raise _refusal(
                "E_UNSUPPORTED",
                f"the archive is compressed as no checkpoint is: {clean(member.name[:1000])}",
                hint="save it again with torch.save, or np.savez for arrays",
            )
    size = sum(member.size for member in members)
    packed = sum(member.end - member.start for member in members)
    if size > SMALL and size > MOST_EXPANSION * packed:
        raise _refusal(
            "E_LIMIT",
            f"the archive would unpack from {human_size(packed)} to {human_size(size)}",
            hint="such growth is no trained model; save it without compression",
        )
    # A packed member is in memory twice while its tensor is made.
    twice = max((m.size for m in members if m.method != STORED), default=0)
    require_room(size, access, beside=twice)


def _check_torch_names(names: Sequence[str]) -> None:
    """Torch looks below the first member's folder, and is blind to case: names must allow that."""
    root = names[0].partition("/")[0]
    if len({name.lower() for name in names}) < len(names):
        raise BadArchive("holds two members of one name")
    for name in names:
        parts = name.removesuffix("/").split("/")
        if parts[0] != root or len(parts) < 2 or {"", ".", ".."} & set(parts) or "\\" in name:
            raise BadArchive("holds a member that torch.save never writes")


def _check_sums(data: bytes, members: Sequence[Member]) -> None:
    wrong = [member for member in members if _sum(data, member) != member.checksum]
    if not wrong:
        return
    filled = [member for member in members if member.size]
    if len(filled) > 1 and len(wrong) == len(filled) and not any(m.checksum for m in wrong):
        raise _refusal(
            "E_CORRUPT",
            "the file was saved without checksums, or is damaged: no member has the right one",
            hint="save it again with checksums: torch.serialization.set_crc32_options(True)",
        )
    raise _refusal(
        "E_CORRUPT",
        f"the checksum of {clean(wrong[0].name[:1000])} is wrong: the file is damaged",
        hint=_AGAIN,
    )


def _sum(data: bytes, member: Member) -> int:
    total = 0
    for piece in unpacked(data, member):
        total = zlib.crc32(piece, total)
    return total


def _code(what: str) -> SourceError:
    return _refusal("E_UNSAFE_FORMAT", f"this is {what}", hint=CODE_HINT)


def _refusal(code: str, fact: str, *, hint: str) -> SourceError:
    return SourceError(code, fact, hint=hint, stage="open")
