"""The formats of weight files: how each is recognised, and what is checked around its library."""

from __future__ import annotations

import io
import json
import math
import mmap
import os
import re
import struct
import tokenize
import warnings
import zipfile
import zlib
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import IO, TYPE_CHECKING, Any, NoReturn

import numpy as np
import torch

from memaudit.errors import SourceError, clean, listed
from memaudit.loading.access import human_size, require_room
from memaudit.loading.files import KERAS_HINT, ONNX_HINT, changed_while_read

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from memaudit.loading.access import Access, Limits
    from memaudit.loading.files import RegularFile

#: Tensors by name, plain values beside them as text, and notes on what was left out.
Contents = tuple[dict[str, torch.Tensor], dict[str, str], list[str]]

# -- Which format a file has, by its first bytes; its suffix is not believed.

#: The first pickle of a legacy torch file is one number (LONG1, ten bytes, STOP), since protocol 4
#: in a frame.
_LEGACY_TORCH = re.compile(
    rb"\x80.(\x95.{8})?\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19\.", re.DOTALL
)
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
#: A msgpack map begins with one of these; an empty one is no model, and begins every pickle.
_MAPS = (*range(0x81, 0x90), 0xDE, 0xDF)
_PICKLES = tuple(b"\x80" + bytes([protocol]) for protocol in (2, 3, 4, 5))

#: offset, bytes, code, what it is, next step.
_FOREIGN = (
    (0, b"\x89HDF\r\n\x1a\n", "E_UNSAFE_FORMAT", "an HDF5 file (.h5, Keras)", KERAS_HINT),
    (0, b"GGUF", "E_UNSUPPORTED", "a GGUF file", "--weights-only reads its spectra"),
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
    if _LEGACY_TORCH.match(data):
        return "torch-legacy"
    # The header's length fills eight bytes; a length with more than 40 bits is no length.
    if data[5:8] == b"\0\0\0" and data[8:9] == b"{":
        return "safetensors"
    _refuse_foreign(data, suffix=suffix)
    if data[0] in _MAPS:
        return "msgpack"
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
        found.append(("E_UNSAFE_FORMAT", "a Keras file", KERAS_HINT))
    if not found and suffix == ".pb":
        found.append(("E_UNSAFE_FORMAT", "a TensorFlow graph", ARRAYS_HINT))
    if not found and (suffix == ".onnx" or _looks_like_onnx(data)):
        found.append(("E_UNSAFE_FORMAT", "an ONNX graph", ONNX_HINT))
    if not found and data[:2] in _PICKLES:
        found.append(("E_UNSAFE_FORMAT", "a plain Python pickle", CODE_HINT))
    for code, what, hint in found:
        raise refusal(code, f"this is {what}", hint=hint)


def _looks_like_onnx(data: bytes) -> bool:
    # Protobuf: field 1 (ir_version) is a small number, field 2 the producer's name.
    return len(data) > 3 and data[0] == 8 and data[1] < 32 and data[2] == 0x12


# -- JSON: one object, in which nothing is stated twice with two values.


class BadJson(ValueError):  # noqa: N818
    """What is wrong with the text, as a fact to follow the name of the file."""


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON")


def parse_object(data: bytes, *, constant: Callable[[str], float] = _no_constant) -> dict[str, Any]:
    """The object that the bytes spell; a byte-order mark is forgiven.

    `constant` makes something of Infinity and NaN, which JSON does not have.
    """
    try:
        text = data.decode("utf-8-sig")
        found = json.loads(text, object_pairs_hook=_without_duplicates, parse_constant=constant)
    except BadJson:
        raise
    except UnicodeDecodeError:
        raise BadJson("is not UTF-8 text") from None
    except ValueError as error:
        raise BadJson(f"is not JSON ({clean(error, limit=100)})") from None
    except RecursionError:
        raise BadJson("is nested too deeply") from None
    if not isinstance(found, dict):
        kind = "null" if found is None else f"a {type(found).__name__}"
        raise BadJson(f"holds {kind}, not an object")
    return found


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Readers differ in which of two values they take; 1, 1.0 and true are different."""
    found = dict(pairs)
    if len(found) < len(pairs):
        for name, value in pairs:
            if repr(found[name]) != repr(value):
                raise BadJson(f"states {clean(name, limit=60)!r} twice, with different values")
    return found


# -- The types and shapes of tensors that are opened.

#: Dense numbers of a byte or more: other kinds have crashed torch.
DTYPES = frozenset(
    (
        *("float64", "float32", "float16", "bfloat16", "complex32", "complex64", "complex128"),
        *("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "bool"),
        *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    )
)
#: Torch and numpy know no more dimensions.
MOST_DIMENSIONS = 64


def count_bytes(shape: Sequence[object], item: int) -> int | None:
    """The bytes of a dense array of `item` bytes per number, or None when there is no such array.

    A zero does not excuse what stands beside it: (0, 2**62, 2**62) has no strides.
    """
    lengths = [n for n in shape if type(n) is int and n >= 0]
    if len(lengths) < len(shape) or len(shape) > MOST_DIMENSIONS:
        return None
    spanned = item * math.prod(max(n, 1) for n in lengths)
    return item * math.prod(lengths) if spanned < 1 << 63 else None


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
        try:
            text = value if isinstance(value, str) else _as_json(value)
        except (ValueError, RecursionError):
            continue
        if text and len(text) <= LONGEST_VALUE:
            found[".".join([*prefix, key])] = text
    return found


def _as_json(value: object) -> str:
    left = MOST_PARTS

    def copy(value: object) -> Any:
        nonlocal left
        left -= 1
        if left < 0:
            raise ValueError("more parts than a setting has")
        if isinstance(value, float):
            return value if math.isfinite(value) else _NOT_JSON
        if isinstance(value, dict):
            named = [
                (k, copy(v)) for k, v in value.items() if k is None or isinstance(k, str | int)
            ]
            return {key: part for key, part in named if part is not _NOT_JSON}
        if isinstance(value, list | tuple):
            parts = [copy(part) for part in value]
            return [None if part is _NOT_JSON else part for part in parts]
        return value if value is None or isinstance(value, bool | int | str) else _NOT_JSON

    copied = copy(value)
    return "" if copied is _NOT_JSON or copied == {} else json.dumps(copied)


# -- Safetensors: what the library leaves open is decided before it opens the file.

_HEADER_LENGTH = struct.Struct("<Q")
_METADATA = "__metadata__"
_COMMON_HINT = "save it in float32, float16 or bfloat16"


def read_safetensors(file: RegularFile, limits: Limits) -> Contents:
    """The tensors in the order of their data, as views of the mapped file."""
    from safetensors import SafetensorError, safe_open

    header = _safetensors_header(file, limits)
    metadata = header.pop(_METADATA, None) or {}
    try:
        with safe_open(file.path, framework="pt") as opened:
            order = sorted(header, key=lambda name: header[name]["data_offsets"])
            tensors = {name: opened.get_tensor(name) for name in order}
    except (SafetensorError, RuntimeError, TypeError) as error:
        fact = clean(error, limit=200)
        raise corrupt(f"the safetensors file is cut short or damaged: {fact}") from None
    except AttributeError:
        fact = "the safetensors file holds numbers of a type that this torch does not have"
        raise refusal("E_UNSUPPORTED", fact, hint=_COMMON_HINT) from None
    except OSError:
        raise changed_while_read() from None
    if not os.path.samestat(os.stat(file.path), file.stat):
        raise changed_while_read()
    for name, tensor in tensors.items():
        dtype = str(tensor.dtype).removeprefix("torch.")
        if dtype not in DTYPES:
            fact = f"the tensor {_shown(name)} has the dtype {dtype}"
            raise refusal("E_UNSUPPORTED", fact, hint=_COMMON_HINT)
        if count_bytes(tensor.shape, 1) is None:
            raise corrupt(f"the tensor {_shown(name)} has an impossible shape")
        if tensor.dtype == torch.bool and bool((tensor.view(torch.uint8) > 1).any()):
            raise corrupt(f"the tensor {_shown(name)} holds truth values besides 0 and 1")
    return tensors, metadata, []


def _safetensors_header(file: RegularFile, limits: Limits) -> dict[str, Any]:
    """The header as JSON; two readers may differ in which of two entries of one name they take."""
    if file.size < _HEADER_LENGTH.size:
        raise corrupt("the safetensors file is cut short")
    (length,) = _HEADER_LENGTH.unpack(file.read(0, _HEADER_LENGTH.size))
    if length > limits.max_header:
        raise refusal(
            "E_LIMIT",
            f"the safetensors header claims {human_size(length)}, "
            f"more than {human_size(limits.max_header)}",
            hint="the file is damaged, or raise the limit with --set max_header=SIZE",
        )
    if length > file.size - _HEADER_LENGTH.size:
        raise corrupt("the safetensors file ends inside its header")
    try:
        found = parse_object(file.read(_HEADER_LENGTH.size, length))
    except BadJson as error:
        raise corrupt(f"the safetensors header {error}") from None
    if len(found) - (_METADATA in found) > limits.max_tensors:
        raise too_many(f"the safetensors header names more than {limits.max_tensors} tensors")
    return found


def _shown(name: str) -> str:
    return repr(clean(name[:1000], limit=120))


# -- Zip archives, in the one form about which all readers agree.

#: The records at the end: their marks, the number of members, and where their list lies.
_END = struct.Struct("<4s6xHIIH")
_LOCATOR = struct.Struct("<8xQ4x")
_END_64 = struct.Struct("<4s28xQQQ")
#: Of what stands before a member's bytes: how long its name and its extra field are.
_LOCAL = struct.Struct("<26xHH")
#: Members of a torch file besides its tensors: the pickle, versions, byte order.
_BESIDES = 64


class BadArchive(ValueError):  # noqa: N818
    """What is wrong with an archive, as a fact to follow "the zip archive"."""


@dataclass(frozen=True, slots=True)
class Archive:
    """A zip archive: `torch` or `npz`, and where in the file each member's bytes begin and end."""

    format: str
    reader: zipfile.ZipFile
    spans: dict[str, tuple[int, int]]


@contextmanager
def open_archive(file: RegularFile, access: Access) -> Iterator[Archive]:
    """The archive, once nothing in its directory can be read in two ways."""
    try:
        start, count = _directory(file, access.limits)
        with (
            open(file.handle, "rb", closefd=False) as stream,
            zipfile.ZipFile(stream) as reader,
        ):
            spans = _spans(file, reader, start, count)
            found = _format(list(spans))
            _check_packing(reader.infolist(), access, compressed=found == "npz")
            if found == "torch":
                _check_torch_names(list(spans))
                if (wrong := reader.testzip()) is not None:
                    raise _wrong_sum(wrong)
            yield Archive(found, reader, spans)
    except BadArchive as error:
        raise corrupt(f"the zip archive {error}") from None
    except (zipfile.BadZipFile, zlib.error, EOFError, UnicodeDecodeError, struct.error):
        raise corrupt("the zip archive does not hold what its directory says") from None
    except NotImplementedError as error:  # a version or a packing that zipfile does not know
        fact = f"the zip archive cannot be read: {clean(error, limit=100)}"
        raise refusal("E_UNSUPPORTED", fact, hint=AGAIN) from None


def _directory(file: RegularFile, limits: Limits) -> tuple[int, int]:
    """Where the list of members begins, and how many they are.

    Readers differ in where they look for the end record, in which of two they believe, and in
    what they make of bytes before or behind the archive: none of that is accepted.
    """
    end = file.size - _END.size
    if end < 0:
        raise BadArchive("is cut short")
    magic, count, size, start, comment = _END.unpack(file.read(end, _END.size))
    if magic != b"PK\5\6" or comment:
        raise BadArchive("is cut short, or has bytes behind its end")
    tail = file.read(max(end - _LOCATOR.size, 0), min(end, _LOCATOR.size))
    if tail.startswith(b"PK\6\7"):
        end -= _LOCATOR.size + _END_64.size
        if _LOCATOR.unpack(tail) != (end,):
            raise BadArchive("has its 64-bit end record in the wrong place")
        magic, count, size, start = _END_64.unpack(file.read(end, _END_64.size))
        if magic != b"PK\6\6":
            raise BadArchive("does not end as an archive does")
    if start + size != end:
        raise BadArchive("does not hold its directory where it says")
    if count > limits.max_tensors + _BESIDES:
        raise too_many(f"the archive lists {count} members, more than {limits.max_tensors}")
    return start, count


def _spans(
    file: RegularFile, reader: zipfile.ZipFile, directory: int, count: int
) -> dict[str, tuple[int, int]]:
    """Where each member's bytes are, by its name; no two members share a name or a byte."""
    spans: dict[str, tuple[int, int]] = {}
    placed = [(directory, directory)]
    for member in reader.infolist():
        if member.header_offset > directory:
            raise BadArchive("has no member where its directory says")
        try:
            reader.open(member).close()  # compares its name with that before its bytes
        except NotImplementedError:
            raise
        except RuntimeError:
            hint = "unpack it with its password, and save the weights again"
            raise refusal("E_UNSUPPORTED", "the zip archive is encrypted", hint=hint) from None
        name, extra = _LOCAL.unpack(file.read(member.header_offset, _LOCAL.size))
        begin = member.header_offset + _LOCAL.size + name + extra
        end = begin + member.compress_size
        spans[member.orig_filename] = begin, end
        placed.append((member.header_offset, end))
    if not count == len(spans) == len(placed) - 1:
        raise BadArchive("counts its members otherwise, or holds two of one name")
    placed.sort()
    if placed[0][0] != 0 or any(end > begin for (_, end), (begin, _) in pairwise(placed)):
        raise BadArchive("has members that overlap, or bytes before its first member")
    return spans


def _wrong_sum(name: str) -> SourceError:
    hint = "or, if it was saved without checksums, save it again after set_crc32_options(True)"
    fact = f"the checksum of {clean(name[:1000])} is wrong: the file is damaged"
    return corrupt(fact, hint=f"{AGAIN}, {hint}")


def _format(names: Sequence[str]) -> str:
    if names and all(name.endswith(".npy") for name in names):
        return "npz"  # its names are those of arrays: code/kernel is one
    ends = {name.partition("/")[2] or name for name in names}
    if "constants.pkl" in ends or any(end.startswith("code/") for end in ends):
        raise refusal("E_UNSAFE_FORMAT", "this is a TorchScript archive", hint=CODE_HINT)
    if "data.pkl" in ends:
        return "torch"
    if "model.weights.h5" in names:
        raise refusal("E_UNSAFE_FORMAT", "this is a .keras archive", hint=KERAS_HINT)
    if any(end.startswith(("archive_format", "serialized_exported_program")) for end in ends):
        raise refusal("E_UNSAFE_FORMAT", "this is a torch.export archive", hint=CODE_HINT)
    raise refusal(
        "E_UNSUPPORTED",
        "this is a zip archive without a checkpoint in it",
        hint="if it holds one, unpack it and give the file inside",
    )


def _check_packing(members: Sequence[zipfile.ZipInfo], access: Access, *, compressed: bool) -> None:
    methods = (zipfile.ZIP_STORED, *((zipfile.ZIP_DEFLATED,) if compressed else ()))
    for member in members:
        if member.compress_type not in methods:
            raise refusal(
                "E_UNSUPPORTED",
                f"the archive is compressed as no checkpoint is: {clean(member.filename[:1000])}",
                hint="save it again with torch.save, or np.savez for arrays",
            )
        if member.compress_type == zipfile.ZIP_STORED and member.file_size != member.compress_size:
            raise BadArchive("states two sizes for a member")
    size = sum(member.file_size for member in members)
    require_room(size, access, mapped=not compressed)


def _check_torch_names(names: Sequence[str]) -> None:
    """Torch looks below the first member's folder, and is blind to case: names must allow that."""
    root = names[0].partition("/")[0]
    same = len({name.lower() for name in names}) < len(names)
    for name in names:
        parts = name.removesuffix("/").split("/")
        odd = {"", ".", ".."} & set(parts) or "\\" in name or "\0" in name
        if same or odd or parts[0] != root or len(parts) < 2:
            raise BadArchive("holds a member that torch.save never writes")


# -- Numpy: an archive of named arrays, or one array in a file of its own.

#: The lengths of 64 dimensions, with room to spare; numpy pads what it writes to some 128 bytes.
LONGEST_HEADER = 2048
#: What numpy raises for an array that is none, such as text with letters that do not exist.
_NO_ARRAY = (
    *(ValueError, TypeError, SyntaxError, ArithmeticError, LookupError, RecursionError),
    SystemError,
)
_NUMBERS, _TEXT = "biufc", "US"


def read_npz(archive: Archive, *, allow_pickle: bool) -> Contents:
    """The numeric arrays in file order, single strings as metadata, and notes on the rest.

    Arrays of Python objects are pickles: refused, or left out when the user allows that.
    """
    tensors: dict[str, torch.Tensor] = {}
    metadata: dict[str, str] = {}
    left_out: dict[str, list[str]] = {"text": [], "Python objects": []}
    for member in archive.reader.infolist():
        name = member.orig_filename.removesuffix(".npy")
        try:
            with archive.reader.open(member) as stream:
                dtype, shape = _array_form(stream, member.file_size)
            if dtype.hasobject:
                if not allow_pickle:
                    fact = "holds pickled Python objects (--allow-pickle leaves it out)"
                    raise _no_numbers("E_UNSAFE_FORMAT", name, fact)
                left_out["Python objects"].append(name)
                continue
            if dtype.kind not in _NUMBERS + _TEXT:
                raise _no_numbers("E_UNSUPPORTED", name, f"has the dtype {clean(dtype, limit=80)}")
            if dtype.kind in _TEXT and (shape or dtype.itemsize > LONGEST_VALUE):
                left_out["text"].append(name)
                continue
            with archive.reader.open(member) as stream:
                array = np.lib.format.read_array(
                    stream, allow_pickle=False, max_header_size=LONGEST_HEADER
                )
            if dtype.kind in _TEXT:
                text = array.item()
                metadata[name] = text if isinstance(text, str) else text.decode("latin-1")
            else:
                tensors[name] = _from_array(name, array)
        except _NO_ARRAY:
            raise corrupt(f"the array {_shown(name)} is cut short or damaged") from None
    notes = [
        f"arrays of {what} were left out: {listed(names, limit=120)}"
        for what, names in left_out.items()
        if names
    ]
    return tensors, metadata, notes


def read_npy(data: bytes) -> np.ndarray:
    """The real numbers of a .npy file in float64, along one to three axes."""
    try:
        dtype, shape = _array_form(io.BytesIO(data), len(data))
    except _NO_ARRAY:
        raise corrupt("this is no array of numpy, or it is cut short") from None
    hint = "save an array of real numbers of the shape (T,), (T, D) or (B, T, D)"
    if dtype.hasobject:
        raise refusal("E_UNSAFE_FORMAT", "the array holds pickled Python objects", hint=hint)
    if dtype.kind not in "iuf" or len(shape) not in (1, 2, 3) or 0 in shape:
        shown = f"{clean(dtype, limit=80)} of the shape {shape}"
        fact = f"the array holds {shown}, not real numbers along one to three axes"
        raise refusal("E_UNSUPPORTED", fact, hint=hint)
    return np.array(np.load(io.BytesIO(data), allow_pickle=False), np.float64, order="C")


def _array_form(stream: IO[bytes], size: int) -> tuple[np.dtype, tuple[int, ...]]:
    """The dtype and the shape in a header, which agree with the bytes behind it, or ValueError.

    Numpy takes seconds for long headers of Python 2, of which an archive may hold thousands.
    """
    readers = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }
    try:
        read = readers[np.lib.format.read_magic(stream)]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            shape, _, dtype = read(stream, max_header_size=LONGEST_HEADER)
    except tokenize.TokenError:
        raise ValueError("the header is no text of Python") from None
    if not dtype.hasobject and count_bytes(shape, dtype.itemsize) != size - stream.tell():
        raise ValueError("the shape does not fit the bytes")
    return dtype, shape


def _from_array(name: str, array: np.ndarray) -> torch.Tensor:
    """The tensor, in this machine's byte order and in rows."""
    if array.dtype.kind == "b" and bool((array.view(np.uint8) > 1).any()):
        raise ValueError("truth values besides 0 and 1")
    native = np.asarray(array, dtype=array.dtype.newbyteorder("="), order="C")
    try:
        return torch.from_numpy(native)
    except TypeError:
        raise _no_numbers("E_UNSUPPORTED", name, f"has the dtype {array.dtype}") from None


def _no_numbers(code: str, name: str, fact: str) -> SourceError:
    hint = "save arrays of numbers only, in float32 or float64"
    return refusal(code, f"the array {_shown(name)} {fact}", hint=hint)


# -- The msgpack files of flax: maps of maps with arrays as leaves.

#: The kinds of value that flax adds to msgpack.
ARRAY, COMPLEX, SCALAR = 1, 2, 3
#: Marks a map that holds one array in pieces: msgpack ends at four gigabytes.
CHUNKED = "__msgpack_chunked_array__"
#: Values for every tensor that may be there: its name, its parts, and the maps around it.
_VALUES_PER_TENSOR = 16
_FLAX_HINT = "save the parameters alone, as .npz or .safetensors"


class BadMsgpack(ValueError):  # noqa: N818
    """What is wrong with the bytes, as a fact to follow "the msgpack file"."""


@dataclass(frozen=True, slots=True)
class _Unknown:
    """An array of a dtype that torch does not have, or bytes without a meaning (no dtype)."""

    dtype: str = ""


def read_msgpack(file: RegularFile, access: Access, *, beside: Callable[[str], bool]) -> Contents:
    """The arrays in file order, plain values as metadata, and notes on the rest.

    The names are those of the maps, joined by a slash, as `flax.traverse_util` joins them.
    `beside` says by its name what is no part of the model, such as the state of an optimizer.
    """
    import msgpack

    require_room(file.size, access, mapped=False)
    limits = access.limits
    try:
        with mmap.mmap(file.handle, 0, access=mmap.ACCESS_READ) as data:
            root = _Flax(_VALUES_PER_TENSOR * limits.max_tensors).parse(data)
        if not isinstance(root, dict):
            what = "a bare array" if isinstance(root, torch.Tensor | _Unknown) else "no map"
            fact = f"the file holds {what}, not a map of named arrays"
            raise refusal("E_UNSUPPORTED", fact, hint=_FLAX_HINT)
        rich = dict | torch.Tensor | _Unknown
        aside = [key for key, part in root.items() if beside(key) and isinstance(part, rich)]
        kept = {key: part for key, part in root.items() if key not in aside}
        tensors, values, odd = _named(kept, limits)
    except msgpack.exceptions.StackError:
        raise corrupt("the msgpack file is nested too deeply") from None
    except msgpack.exceptions.ExtraData:
        raise corrupt("the msgpack file has bytes behind its end") from None
    except BadMsgpack as error:
        raise corrupt(f"the msgpack file {error}") from None
    except (ValueError, RecursionError) as error:
        fact = clean(error, limit=100)
        raise corrupt(f"the msgpack file is cut short or damaged: {fact}") from None
    left_out = (("what is no part of the model", aside), ("values of unknown kinds", odd))
    notes = [f"left out, {what}: {listed(names, limit=120)}" for what, names in left_out if names]
    notes += ["msgpack has no checksums: a damaged number goes unnoticed"]
    return tensors, plain_values(values), notes


class _Flax:
    """Parses msgpack as flax writes it, up to a number of values: maps take a byte each."""

    def __init__(self, most: int) -> None:
        self._left = most

    def parse(self, data: bytes | mmap.mmap) -> Any:
        """The one value that the bytes spell, with tensors for arrays."""
        import msgpack

        return msgpack.unpackb(
            data, object_pairs_hook=self._map, list_hook=self._list, ext_hook=self._extension
        )

    def _spend(self, values: int) -> None:
        self._left -= 1 + values
        if self._left < 0:
            raise too_many("the msgpack file holds more values than a model has")

    def _map(self, pairs: list[tuple[Any, Any]]) -> Any:
        self._spend(len(pairs))
        if not all(isinstance(key, str) for key, _ in pairs):
            raise BadMsgpack("has a key that is not text")
        found = dict(pairs)
        if len(found) < len(pairs):
            raise BadMsgpack("names a value twice")
        return _joined(found) if CHUNKED in found else found

    def _list(self, items: list[Any]) -> Any:
        self._spend(len(items))
        rich = any(isinstance(item, dict | torch.Tensor | _Unknown) for item in items)
        return {str(place): item for place, item in enumerate(items)} if rich else items

    def _extension(self, code: int, data: bytes) -> Any:
        if code == COMPLEX:
            match self.parse(data):
                case [int() | float() as real, int() | float() as imaginary]:
                    return complex(real, imaginary)
            raise BadMsgpack("holds a complex number that is none")
        if code not in (ARRAY, SCALAR):
            return _Unknown()
        match self.parse(data):
            case [[*shape], str(dtype), bytes(raw)]:
                if code == SCALAR and shape:
                    raise BadMsgpack("holds a single number with a shape")
                return _flax_array(shape, dtype, raw)
        raise BadMsgpack("holds an array that is cut short or damaged")


def _flax_array(shape: list[Any], dtype: str, raw: bytes) -> torch.Tensor | _Unknown:
    if dtype not in DTYPES:
        return _Unknown(dtype[:60])
    kind = getattr(torch, dtype)
    if count_bytes(shape, kind.itemsize) != len(raw):
        raise BadMsgpack("holds an array that is not as large as it says")
    if not raw:
        return torch.empty(shape, dtype=kind)
    flat = torch.frombuffer(bytearray(raw), dtype=torch.uint8)
    if kind is torch.bool and bool((flat > 1).any()):
        raise BadMsgpack("holds truth values that are neither true nor false")
    return flat.view(kind).reshape(shape)


def _joined(found: dict[str, Any]) -> torch.Tensor | _Unknown:
    """The array that a map holds in pieces."""
    if found.get(CHUNKED) is not True or set(found) != {CHUNKED, "shape", "chunks"}:
        raise BadMsgpack("holds an array in pieces that are none")
    shape, pieces = _sequence(found["shape"]), _sequence(found["chunks"])
    unknown = [piece for piece in pieces if isinstance(piece, _Unknown)]
    if unknown:
        return unknown[0]
    flat = [piece for piece in pieces if isinstance(piece, torch.Tensor) and piece.ndim == 1]
    if len(flat) < len(pieces) or len({piece.dtype for piece in flat}) != 1:
        raise BadMsgpack("holds an array in pieces that do not belong together")
    kind = flat[0].dtype
    whole = torch.cat([piece.view(torch.uint8) for piece in flat])
    if count_bytes(shape, kind.itemsize) != whole.numel():
        raise BadMsgpack("holds an array that is not as large as it says")
    return whole.view(kind).reshape(shape)


def _sequence(found: Any) -> list[Any]:
    """A tuple as flax writes it: a map with the names "0", "1", …; or a plain list."""
    if isinstance(found, dict) and set(found) == {str(i) for i in range(len(found))}:
        return [found[str(i)] for i in range(len(found))]
    if not isinstance(found, list):
        raise BadMsgpack("holds an array in pieces that are none")
    return found


def _named(
    tree: dict[str, Any], limits: Limits
) -> tuple[dict[str, torch.Tensor], dict[str, Any], list[str]]:
    """The tensors, the plain values and the names of unknown ones, under joined names."""
    import msgpack

    tensors: dict[str, torch.Tensor] = {}
    values: dict[str, Any] = {}
    odd: list[str] = []

    def walk(value: Any, name: str) -> None:
        if isinstance(value, dict):
            for key, inner in value.items():
                walk(inner, f"{name}/{key}" if name else key)
            return
        if name in tensors or name in values:
            raise corrupt(f"two values in the file have the name {_shown(name)}", hint=_FLAX_HINT)
        if isinstance(value, torch.Tensor):
            tensors[name] = value
        elif isinstance(value, _Unknown) and value.dtype:
            fact = f"the array {_shown(name)} has the dtype {clean(value.dtype, limit=60)}"
            raise refusal("E_UNSUPPORTED", fact, hint=_FLAX_HINT)
        elif isinstance(value, _Unknown | bytes | msgpack.Timestamp):
            odd.append(name)
        else:
            values[name] = [value.real, value.imag] if isinstance(value, complex) else value
        if len(tensors) > limits.max_tensors:
            raise too_many(f"the file holds more than {limits.max_tensors} tensors")

    walk(tree, "")
    return tensors, values, odd
