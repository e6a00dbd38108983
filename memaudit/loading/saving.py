"""Writes checkpoints in every format that is read, and the small files that belong to them."""

from __future__ import annotations

import json
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from memaudit.errors import ArgumentError, SourceError, clean
from memaudit.loading.configs import ADAPTER_NAME
from memaudit.loading.files import INDEX, kind_of, open_within, read_beside, read_whole
from memaudit.report_files import replacing, writing

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from torch import Tensor

    from memaudit.loading.checkpoint import Checkpoint

#: What transformers wants to read in the header of a safetensors file.
WRITTEN_BY = {"format": "pt"}
#: The number of arrays among the extension types of flax.
FLAX_ARRAY = 1
#: The file that makes a folder that of a retrofit.
RECORD_NAME = "retrofit_config.json"
COMPANION_SUFFIXES = (".json", ".txt", ".model", ".jinja", ".yaml", ".yml", ".md")
#: The tokenizers of large vocabularies have some thirty megabytes.
LARGEST_COMPANION = 256 << 20


def is_retrofit(folder: Path) -> bool:
    """Whether the folder says that its weights stand behind forms."""
    return os.path.lexists(folder / RECORD_NAME)


def require_vacant(folder: Path) -> None:
    """Refuse to write where something is already; an empty folder is nothing."""
    with writing(folder):
        vacant = not os.path.lexists(folder) or (folder.is_dir() and not os.listdir(folder))
    if not vacant:
        raise ArgumentError(
            "the output folder is there already and is not empty",
            hint="choose another --out, or remove it",
            source=folder,
        )


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """A temporary folder to write into, which becomes `folder` as a whole or not at all."""
    require_vacant(folder)
    target = folder.absolute()
    with writing(folder):
        target.parent.mkdir(parents=True, exist_ok=True)
        with replacing(target) as temporary:
            temporary.mkdir()
            yield temporary


def write_weights(
    path: Path,
    tensors: Mapping[str, Tensor],
    metadata: Mapping[str, str],
    *,
    file_format: str = "safetensors",
    container: str = "",
) -> None:
    """Write tensors in their dtypes; `metadata` are the texts and plain values beside them.

    Tied tensors are written as often as they are named. `container` is the dotted path of the
    dictionary of a torch file in which the tensors stand.
    """
    alone = _independent(tensors)
    if file_format == "safetensors":
        _write_safetensors(path, alone, dict(metadata))
        return
    beside = {name: text for name, text in metadata.items() if (name, text) != ("format", "pt")}
    if file_format == "npz":
        texts = {name: np.asarray(text) for name, text in beside.items()}
        arrays: dict[str, Any] = {name: value.numpy() for name, value in alone.items()}
        with writing(path), path.open("wb") as stream:
            np.savez(stream, **texts, **arrays)
    elif file_format == "msgpack":
        _write_msgpack(path, {**{n: plain_value(text) for n, text in beside.items()}, **alone})
    else:
        with writing(path), path.open("wb") as stream:
            torch.save(_contained(alone, container, beside), stream)


def _independent(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors, dense and with memory of their own.

    Shared memory is refused by safetensors, and written as a whole by torch.
    """
    seen: set[int] = set()
    found: dict[str, Tensor] = {}
    for name, value in tensors.items():
        dense = value.detach().cpu().contiguous()
        memory = dense.untyped_storage()
        if memory.data_ptr() in seen or memory.nbytes() != dense.nbytes:
            dense = dense.clone()
        seen.add(memory.data_ptr())
        found[name] = dense
    return found


def _write_safetensors(path: Path, tensors: dict[str, Tensor], metadata: dict[str, str]) -> None:
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    for name, value in tensors.items():
        if value.dtype in (torch.complex128, torch.complex32):
            raise SourceError(
                "E_UNSUPPORTED",
                f"the tensor {clean(name)!r} has the dtype {value.dtype}, for which the "
                "safetensors format has no name",
                hint="save the checkpoint in complex64 first",
                stage="write",
            )
    with writing(path):
        path.touch()
        usual = path.stat().st_mode & 0o777
        try:
            save_file(tensors, path, metadata=metadata)
        except SafetensorError as error:
            raise OSError(str(error)) from error
        path.chmod(usual)  # the library writes for the owner alone


def _contained(
    tensors: dict[str, Tensor], container: str, beside: Mapping[str, str]
) -> dict[str, Any]:
    """Nested dictionaries with the tensors in the innermost, plain values where they were."""
    root: dict[str, Any] = {}
    levels, prefix = [("", root)], ""
    for key in container.split(".") if container else ():
        prefix += f"{key}."
        levels.append((prefix, levels[-1][1].setdefault(key, {})))
    for name, text in beside.items():
        above, level = next(one for one in reversed(levels) if name.startswith(one[0]))
        level.setdefault(name.removeprefix(above), plain_value(text))
    levels[-1][1].update(tensors)
    return root


def plain_value(text: str) -> Any:
    """The value that a text stands for: what JSON says, or the text itself."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _write_msgpack(path: Path, leaves: Mapping[str, Any]) -> None:
    """Maps in maps, which a slash in the names stands for, with arrays as flax has them."""
    import msgpack

    tree: dict[str, Any] = {}
    for name, value in leaves.items():
        *above, last = name.split("/")
        node = tree
        for key in above:
            node = node.setdefault(key, {})
        node[last] = value

    def array(value: Tensor) -> msgpack.ExtType:
        dtype = str(value.dtype).removeprefix("torch.")
        numbers = value.reshape(-1).view(torch.uint8).numpy().tobytes()
        return msgpack.ExtType(FLAX_ARRAY, msgpack.packb([list(value.shape), dtype, numbers]))

    try:
        with writing(path), path.open("wb") as stream:
            msgpack.pack(tree, stream, default=array)
    except (ValueError, OverflowError) as error:
        raise SourceError(
            "E_LIMIT",
            f"the weights do not fit into msgpack: {clean(error)}",
            hint="keep the retrofit folder, whose weights are safetensors",
            stage="write",
        ) from error


def copy_companions(checkpoint: Checkpoint, out: Path) -> None:
    """Copy configs, tokenizers and texts beside the weights; beside a single file, its config only.

    No code and no weights are copied. Links that lead out of the folder are refused.
    """
    copied: dict[str, bytes] = {}
    root = checkpoint.path
    if kind_of(root) != "folder":
        root = root.parent
    else:
        for name in sorted(os.listdir(root)):
            if _is_companion(name) and not (root / name).is_dir():
                copied[name] = read_beside(root, name, most=LARGEST_COMPANION) or b""
    config = checkpoint.config_path
    if config is not None and config.name not in copied:
        below = config.parent.name if config.parent != root else ""  # it may have its own folder
        with open_within(root, config.name, below=below) as file:
            copied[os.path.join(below, config.name)] = read_whole(file, most=LARGEST_COMPANION)
    for name, data in copied.items():
        with writing(out / name):
            (out / name).parent.mkdir(exist_ok=True)
            (out / name).write_bytes(data)


def _is_companion(name: str) -> bool:
    low = name.lower()
    own = low.endswith(INDEX) or low in (RECORD_NAME, ADAPTER_NAME)
    return low.endswith(COMPANION_SUFFIXES) and not own
