"""Which format a file has, by its first bytes; its suffix is not believed."""

from __future__ import annotations

from memaudit.errors import SourceError

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
        raise _corrupt("the file is empty", hint="copy or download it again")
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
        raise _corrupt(
            f"the file does not begin with {_BEGINNINGS[suffix]}", hint="copy or download it again"
        )
    raise _corrupt(known, hint="give the weight file itself, or the folder that holds it")


def _corrupt(fact: str, *, hint: str) -> SourceError:
    return SourceError("E_CORRUPT", fact, hint=hint, stage="open")


def _refuse_text(data: bytes) -> None:
    if data.startswith(b"version https://git-lfs"):
        raise _corrupt("this is a git-lfs pointer, not the weights", hint="run git lfs pull")
    start = data[:512].removeprefix(b"\xef\xbb\xbf").lstrip().lower()
    if start.startswith((b"<!doctype", b"<html", b"<?xml", b"<head")):
        raise _corrupt(
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
        raise SourceError(code, f"this is {what}", hint=hint, stage="open")


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
