"""Writes checkpoints: every format that is read, the files beside them, and retrofit folders."""

from __future__ import annotations

import json
import os
import shutil
import struct
import tempfile
import zipfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from memaudit.errors import ArgumentError, MachineError, SourceError, clean
from memaudit.faults import step
from memaudit.loading.access import SAFE, Access
from memaudit.loading.checkpoint import read_weight_file
from memaudit.loading.configs import ADAPTER_NAME, LARGEST_CONFIG
from memaudit.loading.files import INDEX, kind_of, open_within, read_beside, read_whole
from memaudit.loading.formats import BadJson, TooManyPieces, parse_object
from memaudit.loading.msgpack_file import ARRAY
from memaudit.report_files import SUFFIX, TEMPORARY, write_json

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from torch import Tensor

    from memaudit.loading.checkpoint import Checkpoint
    from memaudit.loading.source import Source

# -- What goes wrong while a checkpoint is written, in one sentence.


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn a disk that fails into E_DISK, with the name of what was written."""
    try:
        yield
    except OSError as error:
        raise MachineError(
            "E_DISK",
            f"cannot write: {clean(error.strerror or error)}",
            hint="choose a place that is writable and has room",
            source=path,
            stage="write",
        ) from error


# -- A new folder that is there as a whole, or not at all.


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


# -- Writes a safetensors file.

#: What the format has no name for.
_UNNAMED = (torch.complex128, torch.complex32)


def write_safetensors(
    path: Path, tensors: Mapping[str, torch.Tensor], *, metadata: Mapping[str, str] | None = None
) -> None:
    """Write the tensors in their dtypes; tied ones are written as often as they are named."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    odd = next((name for name, value in tensors.items() if value.dtype in _UNNAMED), None)
    if odd is not None:
        raise SourceError(
            "E_UNSUPPORTED",
            f"the tensor {clean(odd)!r} has the dtype {tensors[odd].dtype}, for which the "
            "safetensors format has no name",
            hint="save the checkpoint in complex64 first",
            stage="write",
        )
    try:
        with writing(path):
            save_file(_alone(tensors), path, metadata=dict(metadata or {}))
            path.chmod(_usual_mode())  # the library writes for the owner alone
    except SafetensorError as error:
        raise MachineError(
            "E_DISK",
            f"cannot write: {clean(error)}",
            hint="choose a place that is writable and has room",
            source=path,
            stage="write",
        ) from error


def _usual_mode() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask


def _alone(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The tensors, dense and in storage of their own: the library refuses to share any."""
    seen: set[int] = set()
    found: dict[str, torch.Tensor] = {}
    for name, value in tensors.items():
        dense = value.detach().cpu().contiguous()
        place = dense.untyped_storage().data_ptr()
        size = dense.numel() * dense.element_size()
        if place in seen or size != dense.untyped_storage().nbytes():
            dense = dense.clone()
        seen.add(dense.untyped_storage().data_ptr())
        found[name] = dense
    return found


# -- Writes a numpy archive.


def write_npz(
    path: Path, tensors: Mapping[str, torch.Tensor], *, metadata: Mapping[str, str] | None = None
) -> None:
    """Write every tensor as an array of its name, and texts as arrays of one string.

    Not by numpy.savez, which cannot write an array that is called `file`.
    """
    arrays = {name: np.asarray(text) for name, text in (metadata or {}).items()}
    arrays |= {name: value.detach().cpu().numpy() for name, value in tensors.items()}
    with writing(path), zipfile.ZipFile(path, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asanyarray(array), allow_pickle=False)


# -- Writes a torch file: a dictionary of tensors and plain values, and nothing else.


def write_torch(
    path: Path,
    tensors: Mapping[str, torch.Tensor],
    *,
    container: str = "",
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Write the tensors under the dotted path of their dictionary, plain values where they were."""
    root: dict[str, Any] = {}
    node, levels = root, [("", root)]
    path_so_far = ""
    for key in container.split(".") if container else ():
        node = node.setdefault(key, {})
        path_so_far += f"{key}."
        levels.append((path_so_far, node))
    for name, text in (metadata or {}).items():
        prefix, level = next(one for one in reversed(levels) if name.startswith(one[0]))
        level.setdefault(name.removeprefix(prefix), plain_value(text))
    node.update({name: value.detach().clone() for name, value in tensors.items()})
    with writing(path), path.open("wb") as stream:
        torch.save(root, stream)


def plain_value(text: str) -> Any:
    """The value that a text stands for: what JSON says, or the text itself."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


# -- Writes a tree of arrays in the msgpack of flax.

#: Lengths in msgpack have four bytes, and an array needs some for its shape.
LONGEST_MSGPACK = (1 << 32) - 4096


def write_msgpack(
    path: Path, tensors: Mapping[str, torch.Tensor], *, metadata: Mapping[str, str] | None = None
) -> None:
    """Write the tensors as maps in maps, which a slash in their names stands for."""
    tree: dict[str, Any] = {}
    leaves = {name: plain_value(text) for name, text in (metadata or {}).items()}
    for name, value in {**leaves, **tensors}.items():
        if (
            isinstance(value, torch.Tensor)
            and value.numel() * value.element_size() > LONGEST_MSGPACK
        ):
            raise SourceError(
                "E_LIMIT",
                f"the tensor {clean(name)!r} is too large for msgpack",
                hint="keep the retrofit folder, whose weights are safetensors",
                stage="write",
            )
        *above, last = name.split("/")
        node = tree
        for key in above:
            node = node.setdefault(key, {})
        node[last] = value
    with writing(path), path.open("wb") as stream:
        for piece in _msgpack_bytes(tree):
            stream.write(piece)


def _msgpack_bytes(value: Any) -> Iterator[bytes]:
    """The bytes of a value, piece by piece."""
    if isinstance(value, dict):
        yield b"\xdf" + struct.pack(">I", len(value))
        for key, inner in value.items():
            yield _msgpack_text(str(key))
            yield from _msgpack_bytes(inner)
    elif isinstance(value, list):
        yield b"\xdd" + struct.pack(">I", len(value))
        for inner in value:
            yield from _msgpack_bytes(inner)
    elif isinstance(value, torch.Tensor):
        yield _msgpack_array(value)
    elif value is None or isinstance(value, bool):
        yield {None: b"\xc0", False: b"\xc2", True: b"\xc3"}[value]
    elif isinstance(value, int) and -(1 << 63) <= value < 1 << 63:
        yield b"\xd3" + struct.pack(">q", value)
    elif isinstance(value, float):
        yield b"\xcb" + struct.pack(">d", value)
    else:
        yield _msgpack_text(str(value))


def _msgpack_text(value: str) -> bytes:
    raw = value.encode("utf-8", "replace")
    return b"\xdb" + struct.pack(">I", len(raw)) + raw


def _msgpack_array(value: torch.Tensor) -> bytes:
    """An array as flax has it: its shape, the name of its dtype, and the numbers."""
    dense = value.detach().cpu().contiguous().reshape(-1)
    numbers = bytes(dense.view(torch.uint8).numpy()) if dense.numel() else b""
    shape = b"".join(b"\xd3" + struct.pack(">q", size) for size in value.shape)
    body = b"".join(
        (
            b"\xdd" + struct.pack(">I", 3),
            b"\xdd" + struct.pack(">I", value.ndim) + shape,
            _msgpack_text(str(value.dtype).removeprefix("torch.")),
            b"\xc6" + struct.pack(">I", len(numbers)) + numbers,
        )
    )
    return b"\xc9" + struct.pack(">Ib", len(body), ARRAY) + body


# -- Writes named tensors in the format that they came in.

#: What transformers wants to read in the header of a safetensors file.
WRITTEN_BY = {"format": "pt"}


def write_weights(
    path: Path,
    tensors: Mapping[str, Tensor],
    metadata: Mapping[str, str],
    *,
    file_format: str,
    container: str = "",
) -> None:
    """Write a checkpoint; `metadata` is what stood beside the weights."""
    if file_format == "safetensors":
        write_safetensors(path, tensors, metadata=metadata)
        return
    beside = {name: text for name, text in metadata.items() if (name, text) != ("format", "pt")}
    if file_format == "npz":
        write_npz(path, tensors, metadata=beside)
    elif file_format == "msgpack":
        write_msgpack(path, tensors, metadata=beside)
    else:
        write_torch(path, tensors, container=container, metadata=beside)


# -- The two files that make a folder that of a retrofit: the raw weights, and what they mean.

RAW_NAME = "retrofit.safetensors"
RECORD_NAME = "retrofit_config.json"
#: Every retrofitted weight takes about thirty.
MOST_RECORD_PIECES = 1_000_000


def is_retrofit(folder: Path) -> bool:
    """Whether the folder says that its weights stand behind forms."""
    return os.path.lexists(folder / RECORD_NAME)


def retrofit_folder(source: Source) -> Path | None:
    """The folder of a source that is one of a retrofit; None for every other source."""
    path = source.path
    if source.kind != "path" or path is None or not path.is_dir() or not is_retrofit(path):
        return None
    return path


def read_record(folder: Path) -> dict[str, Any]:
    """What retrofit_config.json spells, as strict JSON of a bounded size."""
    data = read_beside(folder, RECORD_NAME, most=LARGEST_CONFIG)
    if data is None:
        raise no_retrofit(folder)
    try:
        return parse_object(data, most_pieces=MOST_RECORD_PIECES)
    except BadJson as error:
        fact = f"{RECORD_NAME} {error}"
    except TooManyPieces:
        fact = f"{RECORD_NAME} has more pieces than any retrofit"
    raise SourceError("E_CONFIG", fact, hint="write the folder again", stage="open")


def read_raw_tensors(folder: Path, access: Access = SAFE) -> dict[str, torch.Tensor]:
    """The tensors of retrofit.safetensors."""
    with open_within(folder, RAW_NAME) as file:
        found = read_weight_file(file, access)
    if found.format != "safetensors":
        fact = f"{RAW_NAME} is no safetensors file"
        raise SourceError("E_CORRUPT", fact, hint="write the folder again", stage="open")
    return found.weights.tensors


def write_retrofit_files(
    folder: Path, record: dict[str, Any], raw: Mapping[str, torch.Tensor]
) -> None:
    """Write both; complex128, which the format does not have, as pairs of float64."""
    wide = {n: torch.view_as_real(v) if v.dtype is torch.complex128 else v for n, v in raw.items()}
    write_safetensors(folder / RAW_NAME, wide, metadata={"format": "pt"})
    write_json(record, folder / RECORD_NAME)


def no_retrofit(folder: Path) -> SourceError:
    """The refusal of a folder that is none of a retrofit."""
    return SourceError(
        "E_UNSUPPORTED",
        f"{folder.name or folder} is no retrofit folder: it has no {RECORD_NAME}",
        hint="memaudit retrofit SOURCE --reparam NAME --out DIR writes one",
        source=folder,
        stage="open",
    )


# -- The small files that go with a checkpoint wherever it goes: configs, tokenizers, texts.

COMPANION_SUFFIXES = (".json", ".txt", ".model", ".jinja", ".yaml", ".yml", ".md")
#: The tokenizers of large vocabularies have some thirty megabytes.
LARGEST_COMPANION = 256 << 20


def copy_companions(checkpoint: Checkpoint, out: Path) -> None:
    """Copy what lies beside the weights, byte for byte; beside a single file, its config only.

    No code and no weights are copied. Links that lead out of the folder are refused.
    """
    copied: set[str] = set()
    if kind_of(checkpoint.path) == "folder":
        for name in sorted(os.listdir(checkpoint.path)):
            if _goes_along(name) and not (checkpoint.path / name).is_dir():
                data = read_beside(checkpoint.path, name, most=LARGEST_COMPANION)
                _write_bytes(out / name, data or b"")
                copied.add(name)
    config = checkpoint.config_path
    if config is not None and config.name not in copied:
        _copy_config(checkpoint, config, out)


def _copy_config(checkpoint: Checkpoint, config: Path, out: Path) -> None:
    """The config that counts, which may lie in a folder of its own."""
    root = checkpoint.path if kind_of(checkpoint.path) == "folder" else checkpoint.path.parent
    below = config.parent.name if config.parent != root else ""
    with open_within(root, config.name, below=below) as file:
        data = read_whole(file, most=LARGEST_COMPANION)
    _write_bytes(out / below / config.name, data)


def _goes_along(name: str) -> bool:
    low = name.lower()
    if low.endswith(INDEX) or low in (RECORD_NAME, ADAPTER_NAME):
        return False
    return low.endswith(COMPANION_SUFFIXES)


def _write_bytes(path: Path, data: bytes) -> None:
    with writing(path):
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
