"""What untrusted files are made of: their format, strict JSON, shapes, plain values, archives."""

from __future__ import annotations

import json
import math
import struct
import zlib
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NoReturn

from memaudit.errors import SourceError, clean
from memaudit.loading.access import human_size, require_room

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from memaudit.loading.access import Access

# -- Which format a file has, by its first bytes; its suffix is not believed.

#: The first pickle of a legacy torch file is this number (LONG1, ten bytes, STOP).
LEGACY_TORCH = b"\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19."
#: A zip archive with members, and one without.
ZIP = (b"PK\x03\x04", b"PK\x05\x06")
#: As much of a file as `sniff` looks at.
HEAD = 4096
SAFETENSORS_HINT = (
    "save the weights alone, e.g. safetensors.torch.save_file(model.state_dict(), "
    '"model.safetensors")'
)
CODE_HINT = (
    f"such files carry code and are not opened; load it where it was made and {SAFETENSORS_HINT}"
)
ARRAYS_HINT = (
    "such files can carry code and are not opened; load it where it was made and save the weights "
    "alone, as safetensors or by numpy.savez under the names of the torch layers"
)

AGAIN = "copy or download the file again"


def refusal(code: str, fact: str, *, hint: str) -> SourceError:
    """The error for a file that is not opened."""
    return SourceError(code, fact, hint=hint, stage="open")


def corrupt(fact: str, *, hint: str = AGAIN) -> SourceError:
    """The error for a file that does not hold what its format says."""
    return refusal("E_CORRUPT", fact, hint=hint)


def too_many(fact: str) -> SourceError:
    """The error for a file that holds more tensors, or parts of them, than may be opened."""
    hint = "is this a model? if so, raise the limit with --set max_tensors=N"
    return refusal("E_LIMIT", fact, hint=hint)


#: Suffix → what must stand at the beginning.
_BEGINNINGS = {
    ".safetensors": "a safetensors header",
    ".msgpack": "a map of named arrays, as Flax writes it",
}
#: A msgpack map of more than 15 entries says their number in so many bytes.
_COUNTS = {0xDE: 2, 0xDF: 4}
#: So does a name of more than 31 bytes with its length.
_LENGTHS = {0xD9: 1, 0xDA: 2, 0xDB: 4}

_PICKLES = tuple(b"\x80" + bytes([protocol]) for protocol in (2, 3, 4, 5))

#: offset, bytes, code, what it is, next step.
_FOREIGN = (
    (0, b"\x89HDF\r\n\x1a\n", "E_UNSAFE_FORMAT", "an HDF5 file (.h5, Keras)", ARRAYS_HINT),
    (0, b"GGUF", "E_UNSUPPORTED", "a GGUF file", "give the original safetensors checkpoint"),
    (4, b"TFL3", "E_UNSUPPORTED", "a TFLite file", "give the original checkpoint"),
    (0, b"\x93NUMPY", "E_UNSUPPORTED", "a single numpy array", "save named arrays with np.savez"),
    (0, b"\x1f\x8b", "E_UNSUPPORTED", "a gzip archive", "unpack it first"),
    (0, b"\xfd7zXZ\0", "E_UNSUPPORTED", "an xz archive", "unpack it first"),
    (0, b"\x28\xb5\x2f\xfd", "E_UNSUPPORTED", "a zstd archive", "unpack it first"),
    (0, b"BZh", "E_UNSUPPORTED", "a bzip2 archive", "unpack it first"),
    (0, b"7z\xbc\xaf\x27\x1c", "E_UNSUPPORTED", "a 7z archive", "unpack it first"),
    (257, b"ustar", "E_UNSUPPORTED", "a tar archive", "unpack it first"),
)


def sniff(data: bytes, *, suffix: str) -> str:
    """`safetensors`, `zip`, `torch-legacy` or `msgpack`; anything else is refused by its name.

    `data` is the beginning of the file, which is not read further until it is known.
    """
    if not data:
        raise corrupt("the file is empty", hint="copy or download it again")
    _refuse_text(data)
    if data.startswith(ZIP):
        return "zip"
    if data[:1] == b"\x80" and LEGACY_TORCH in data[:32]:
        return "torch-legacy"
    # The header's length fills eight bytes; a length with more than 40 bits is no length.
    if data[5:8] == b"\0\0\0" and data[8:9] == b"{":
        return "safetensors"
    if _looks_like_msgpack(data):
        return "msgpack"
    _refuse_foreign(data, suffix=suffix)
    known = "this is not a checkpoint that memaudit knows (safetensors, torch, npz or msgpack)"
    if data.lstrip()[:1] in (b"{", b"["):
        known = "this is JSON text, not the weights"
    elif suffix in _BEGINNINGS:
        raise corrupt(
            f"the file does not begin with {_BEGINNINGS[suffix]}", hint="copy or download it again"
        )
    raise corrupt(known, hint="give the weight file itself, or the folder that holds it")


def _refuse_text(data: bytes) -> None:
    if data.startswith(b"version https://git-lfs"):
        raise corrupt("this is a git-lfs pointer, not the weights", hint="run git lfs pull")
    start = data[:512].removeprefix(b"\xef\xbb\xbf").lstrip().lower()
    if start.startswith((b"<!doctype", b"<html", b"<?xml", b"<head")):
        raise corrupt(
            "this is a web page, not a checkpoint",
            hint="the download went wrong (a login or an error page?); fetch the file itself",
        )


def _refuse_foreign(data: bytes, *, suffix: str) -> None:
    found = [row[2:] for row in _FOREIGN if data[row[0] : row[0] + len(row[1])] == row[1]]
    if not found and suffix in (".h5", ".hdf5", ".keras"):
        found.append(("E_UNSAFE_FORMAT", "a Keras file", ARRAYS_HINT))
    if not found and suffix == ".pb":
        found.append(("E_UNSAFE_FORMAT", "a TensorFlow graph", ARRAYS_HINT))
    if not found and (suffix == ".onnx" or _looks_like_onnx(data)):
        found.append(("E_UNSAFE_FORMAT", "an ONNX graph", ARRAYS_HINT))
    if not found and data[:2] in _PICKLES:
        found.append(("E_UNSAFE_FORMAT", "a plain Python pickle", CODE_HINT))
    for code, what, hint in found:
        raise refusal(code, f"this is {what}", hint=hint)


def _looks_like_onnx(data: bytes) -> bool:
    # Protobuf: field 1 (ir_version) is a small number, field 2 the producer's name.
    return len(data) > 3 and data[0] == 8 and data[1] < 32 and data[2] == 0x12


def _looks_like_msgpack(data: bytes) -> bool:
    """Whether these bytes begin a msgpack map, and its first entry has a name that is text.

    An empty map is left aside: it is no model, and its byte begins every pickle.
    """
    if data[0] not in _COUNTS and not 0x81 <= data[0] <= 0x8F:
        return False
    at = 1 + _COUNTS.get(data[0], 0)
    first = data[at : at + 1]
    if not first or not (0xA1 <= first[0] <= 0xBF or first[0] in _LENGTHS):
        return False
    width = _LENGTHS.get(first[0], 0)
    length = int.from_bytes(data[at + 1 : at + 1 + width], "big") if width else first[0] & 0x1F
    name = data[at + 1 + width :][:length]
    return len(name) == length and name.isascii() and name.decode("ascii").isprintable()


# -- Strict JSON: one object, no name twice, no more pieces than were expected.


class BadJson(ValueError):  # noqa: N818
    """What is wrong with the text, as a fact to follow the name of the file."""


class TooManyPieces(ValueError):  # noqa: N818
    """The text has more commas and brackets than its reader is ready for."""


def parse_object(data: bytes, *, most_pieces: int) -> dict[str, Any]:
    """The object that the bytes spell.

    Five million empty lists fit into 16 MB of text and fill 400 MB of memory, so what could become
    a value is counted before anything is built.
    """
    if sum(data.count(mark) for mark in (b",", b"[", b"{")) > most_pieces:
        raise TooManyPieces
    try:
        found = json.loads(
            data.decode("utf-8"),
            object_pairs_hook=_without_duplicates,
            parse_int=_integer,
            parse_constant=_no_constant,
        )
    except UnicodeDecodeError:
        raise BadJson("is not UTF-8 text") from None
    except json.JSONDecodeError as error:
        raise BadJson(f"is not JSON ({error.msg} at character {error.pos})") from None
    except RecursionError:
        raise BadJson("is nested too deeply") from None
    if not isinstance(found, dict):
        raise BadJson(f"holds a {type(found).__name__}, not an object")
    return found


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))
        raise BadJson(f"names {twice!r} twice")
    for name, value in found.items():
        _require_text(name)
        if isinstance(value, str):
            _require_text(value)
    return found


def _require_text(text: str) -> None:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:  # half of a surrogate pair, which other readers refuse
        raise BadJson("holds characters that are no text") from None


def _integer(digits: str) -> int | float:
    if len(digits) > 20:  # 2**64 has twenty digits
        raise BadJson("holds a number with too many digits")
    return -0.0 if digits == "-0" else int(digits)


def _no_constant(name: str) -> NoReturn:
    raise BadJson(f"holds {name}, which is not JSON")


# -- Shapes that a file claims, checked before anything is allocated.

#: Torch and numpy know no more dimensions.
MOST_DIMENSIONS = 64
LARGEST = (1 << 63) - 1


def count_bytes(shape: Sequence[object], item: int) -> int | None:
    """The bytes of a dense array of `item` bytes per number, or None when there is no such array.

    A zero does not excuse what stands beside it: (0, 2**62, 2**62) has no strides.
    """
    if len(shape) > MOST_DIMENSIONS:
        return None
    total = spanned = item
    for length in shape:
        if not isinstance(length, int) or isinstance(length, bool) or length < 0:
            return None
        total *= length
        spanned *= max(length, 1)
        if spanned > LARGEST:
            return None
    return total


# -- The plain values that trainers save beside the weights, as text.

#: Longer values are data, not settings.
LONGEST_VALUE = 20_000
MOST_PARTS = 1000
_NOT_JSON = object()


def plain_values(values: Mapping[str, Any], *, prefix: Sequence[str] = ()) -> dict[str, str]:
    """Text as it is, numbers and small plain containers as JSON, under dotted names.

    Tensors, empty dictionaries and whatever JSON cannot hold are left out, also inside containers.
    """
    found: dict[str, str] = {}
    for key, value in values.items():
        text = value if isinstance(value, str) else _as_json(value)
        if text is not None and len(text) <= LONGEST_VALUE:
            found[".".join([*prefix, key])] = text
    return found


def _as_json(value: object) -> str | None:
    try:
        copied = _JsonCopier().copy(value)
        if copied is _NOT_JSON or copied == {}:
            return None
        return json.dumps(copied, allow_nan=False)
    except (_TooMany, ValueError, RecursionError):
        return None


class _TooMany(Exception):  # noqa: N818
    """The value has more parts than a setting has."""


class _JsonCopier:
    """Copies what JSON can hold out of a value, up to a number of parts: lists may double."""

    def __init__(self) -> None:
        self._left = MOST_PARTS

    def copy(self, value: object) -> Any:
        """The value without the parts that JSON cannot hold."""
        self._left -= 1
        if self._left < 0:
            raise _TooMany
        if value is None or isinstance(value, bool | int | str):
            return value
        if isinstance(value, float):
            return value if math.isfinite(value) else _NOT_JSON
        if isinstance(value, dict):
            named = [(k, v) for k, v in dict.items(value) if k is None or isinstance(k, str | int)]
            copied = {key: self.copy(part) for key, part in named}
            return {key: part for key, part in copied.items() if part is not _NOT_JSON}
        if isinstance(value, list | tuple):
            parts = [self.copy(part) for part in value]
            return [None if part is _NOT_JSON else part for part in parts]
        return _NOT_JSON


# -- The directory of a zip archive, in the one form about which all readers agree.

STORED, DEFLATED = 0, 8
_END = struct.Struct("<4sHHHHIIH")
_LOCATOR = struct.Struct("<4sIQI")
_END_64 = struct.Struct("<4sQHHIIQQQQ")
_ENTRY = struct.Struct("<4sHHHHHHIIIHHHHHII")
_LOCAL = struct.Struct("<4sHHHHHIIIHH")
_SENTINEL_16, _SENTINEL_32 = 0xFFFF, 0xFFFFFFFF
_ZIP64_FIELD = 1
_UTF8 = 1 << 11
#: Encrypted, patched, strongly encrypted, masked.
_SEALED = 1 << 0 | 1 << 5 | 1 << 6 | 1 << 13


class BadArchive(ValueError):  # noqa: N818
    """What is wrong with an archive, as a fact to follow "the zip archive"."""


class SealedArchive(BadArchive):
    """The archive is encrypted."""


@dataclass(frozen=True, slots=True)
class Directory:
    """Where the list of members stands, and how many they are."""

    start: int
    end: int
    count: int


@dataclass(frozen=True, slots=True)
class Member:
    """One member: its packed bytes are data[start:end]."""

    name: str
    method: int
    checksum: int
    size: int
    header: int
    start: int
    end: int


def find_directory(data: bytes) -> Directory:
    """The directory of an archive that begins with its first member and ends with its directory.

    Readers differ in where they look for the end record, in which of two they believe, and in
    what they make of bytes before or behind the archive: none of that is accepted.
    """
    place = len(data) - _END.size
    if place < 0 or data[place : place + 4] != b"PK\5\6":
        raise BadArchive("is cut short, or has bytes behind its end")
    _, disk, first, here, count, size, start, comment = _END.unpack_from(data, place)
    if comment or disk or first or here != count:
        raise BadArchive("does not end as an archive does")
    place, large = _large_end(data, place)
    if large is not None:
        stated, known = (count, size, start), (_SENTINEL_16, _SENTINEL_32, _SENTINEL_32)
        for small, full, sentinel in zip(stated, large, known, strict=True):
            if small not in (full, sentinel):
                raise BadArchive("states two sizes for its directory")
        count, size, start = large
    if start + size != place:
        raise BadArchive("does not hold its directory where it says")
    if count * _ENTRY.size > size:
        raise BadArchive("has a directory that is too short")
    return Directory(start, place, count)


def _large_end(data: bytes, place: int) -> tuple[int, tuple[int, int, int] | None]:
    """The end of the directory, and its count, size and start by the 64-bit record, if any."""
    locator = place - _LOCATOR.size
    if locator < 0 or data[locator : locator + 4] != b"PK\6\7":
        return place, None
    _, disk, where, disks = _LOCATOR.unpack_from(data, locator)
    if disk or disks > 1 or where != locator - _END_64.size or data[where : where + 4] != b"PK\6\6":
        raise BadArchive("has its 64-bit end record in the wrong place")
    _, length, _, _, disk, first, here, count, size, start = _END_64.unpack_from(data, where)
    if length != _END_64.size - 12 or disk or first or here != count:
        raise BadArchive("does not end as an archive does")
    return where, (count, size, start)


def read_members(data: bytes, directory: Directory) -> tuple[Member, ...]:
    """Every member, in the order of the directory; no two of them share a byte."""
    members = tuple(_entries(data, directory))
    placed = sorted(members, key=lambda member: member.header)
    if placed and placed[0].header != 0:
        raise BadArchive("has bytes before its first member")
    if any(after.header < before.end for before, after in pairwise(placed)):
        raise BadArchive("has members that overlap")
    if placed and placed[-1].end > directory.start:
        raise BadArchive("has a member that reaches into the directory")
    if len({member.name for member in members}) < len(members):
        raise BadArchive("holds two members of one name")
    return members


def _entries(data: bytes, directory: Directory) -> Iterator[Member]:
    at = directory.start
    for _ in range(directory.count):
        if at + _ENTRY.size > directory.end or data[at : at + 4] != b"PK\1\2":
            raise BadArchive("has a directory that is too short")
        fields = _ENTRY.unpack_from(data, at)
        _, _, _, flags, method, _, _, checksum, packed, size = fields[:10]
        lengths, disk, header = fields[10:13], fields[13], fields[16]
        name_end = at + _ENTRY.size + lengths[0]
        extra_end = name_end + lengths[1]
        name, extra = data[at + _ENTRY.size : name_end], data[name_end:extra_end]
        at = extra_end + lengths[2]
        if at > directory.end or disk:
            raise BadArchive("has a directory that is too short")
        size, packed, header = _wide(extra, size, packed, header)
        if method == STORED and size != packed:
            raise BadArchive("states two sizes for a member")
        start = _data_start(data, header, name=name, method=method, flags=flags)
        yield Member(_text(name, flags), method, checksum, size, header, start, start + packed)
    if at != directory.end:
        raise BadArchive("lists more members than it counts")


def _wide(extra: bytes, *values: int) -> tuple[int, int, int]:
    """Size, packed size and place, from the 64-bit field where the 32 bits do not suffice."""
    wide = _field(extra, _ZIP64_FIELD)
    found: list[int] = []
    for value in values:
        if value != _SENTINEL_32:
            found.append(value)
            continue
        if len(wide) < 8:
            raise BadArchive("states no size for a member")
        found.append(int.from_bytes(wide[:8], "little"))
        wide = wide[8:]
    return found[0], found[1], found[2]


def _field(extra: bytes, wanted: int) -> bytes:
    at, found = 0, b""
    while at + 4 <= len(extra):
        kind, length = struct.unpack_from("<HH", extra, at)
        if kind == wanted:
            if found:
                raise BadArchive("states two sizes for a member")
            found = extra[at + 4 : at + 4 + length]
        at += 4 + length
    return found


def _data_start(data: bytes, header: int, *, name: bytes, method: int, flags: int) -> int:
    """Where a member's bytes begin; what stands before them must say what the directory says."""
    if header + _LOCAL.size > len(data) or data[header : header + 4] != b"PK\3\4":
        raise BadArchive("has no member where its directory says")
    _, _, own_flags, own_method, _, _, _, _, _, name_length, extra = _LOCAL.unpack_from(
        data, header
    )
    if (flags | own_flags) & _SEALED:
        raise SealedArchive("is encrypted")
    start = header + _LOCAL.size + name_length + extra
    if own_method != method or data[header + _LOCAL.size : start - extra] != name:
        raise BadArchive("names a member in two ways")
    return start


def _text(name: bytes, flags: int) -> str:
    if b"\0" in name:  # where some readers end a name
        raise BadArchive("holds a member with NUL in its name")
    try:
        return name.decode("utf-8" if flags & _UTF8 else "cp437")
    except UnicodeDecodeError:
        raise BadArchive("holds a member whose name is no text") from None


# -- A checkpoint in a zip archive, checked member by member before anything inside is used.

_CHUNK = 1 << 20
#: Weights hardly shrink: an archive that grows more than this is a bomb, not a model.
MOST_EXPANSION = 100
#: Small archives may shrink as they like (a file of zeros does).
SMALL_ARCHIVE = 1 << 28
#: Members of a torch file besides its tensors: the pickle, versions, byte order.
_BESIDES = 64


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
        raise refusal("E_UNSUPPORTED", "the zip archive is encrypted", hint=hint) from None
    except BadArchive as error:
        raise corrupt(f"the zip archive {error}") from None
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
        raise too_many(f"the archive lists {directory.count} members, more than {most}")
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
    raise refusal(
        "E_UNSUPPORTED",
        "this is a zip archive without a checkpoint in it",
        hint="if it holds one, unpack it and give the file inside",
    )


def _check_packing(members: Sequence[Member], access: Access, *, compressed: bool) -> None:
    for member in members:
        if member.method != STORED and not (compressed and member.method == DEFLATED):
            raise refusal(
                "E_UNSUPPORTED",
                f"the archive is compressed as no checkpoint is: {clean(member.name[:1000])}",
                hint="save it again with torch.save, or np.savez for arrays",
            )
    size = sum(member.size for member in members)
    packed = sum(member.end - member.start for member in members)
    if size > SMALL_ARCHIVE and size > MOST_EXPANSION * packed:
        raise refusal(
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
        raise corrupt(
            "the file was saved without checksums, or is damaged: no member has the right one",
            hint="save it again with checksums: torch.serialization.set_crc32_options(True)",
        )
    raise corrupt(f"the checksum of {clean(wrong[0].name[:1000])} is wrong: the file is damaged")


def _sum(data: bytes, member: Member) -> int:
    total = 0
    for piece in unpacked(data, member):
        total = zlib.crc32(piece, total)
    return total


def _code(what: str) -> SourceError:
    return refusal("E_UNSAFE_FORMAT", f"this is {what}", hint=CODE_HINT)
