"""What torch.save wrote: tensors and plain containers only, never other Python objects."""

from __future__ import annotations

import io
import pickle
import pickletools
import re
import struct
import warnings
import zipfile
from typing import Any

import torch

from memaudit.errors import MachineError, SourceError
from memaudit.loading.magic import SAFETENSORS_HINT

#: What torch raises on damaged input: it promises nothing, so the list is of what was seen.
_DAMAGE = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    BufferError,
    EOFError,
    ImportError,
    LookupError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
    struct.error,
)
#: Globals that belong to tensors and plain containers.
_HARMLESS = re.compile(
    r"collections\.(OrderedDict|Counter)|torch\._utils\._rebuild_\w+|torch\._tensor\.\w+"
    r"|torch\.storage\.\w+|torch\.nn\.parameter\.(Parameter|Buffer)|torch\.(Size|device)"
    r"|torch\.\w*Storage|torch\.(float|bfloat|int|uint|complex|bool)\w*"
    r"|torch\.serialization\._get_layout|(builtins|__builtin__)\.(set|complex|bytearray)"
)
_REFUSED = re.compile(r"Unsupported|unsupported|Can only|Only persistent_load|must be imported")


def read_torch(data: bytes) -> Any:
    """The object in a torch file, zip or legacy, with every tensor on the CPU."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            # Said aloud: TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD overrides the default only.
            return torch.load(io.BytesIO(data), map_location="cpu", weights_only=True, mmap=False)
    except pickle.UnpicklingError as error:
        raise _refusal(data, str(error)) from None
    except MemoryError:
        raise _too_large() from None
    except _DAMAGE as error:
        if "allocate memory" in str(error):
            raise _too_large() from None
        raise _damaged() from None


def _too_large() -> MachineError:
    return MachineError(
        "E_MEMORY",
        "the tensors do not fit into memory, or the file lies about their sizes",
        hint="use a machine with more memory, or copy the file again",
        stage="open",
    )


def _damaged() -> SourceError:
    return SourceError(
        "E_CORRUPT",
        "the torch file is cut short or damaged",
        hint="copy or download the file again",
        stage="open",
    )


def _refusal(data: bytes, message: str) -> SourceError:
    names = foreign_globals(data)
    # torch's own message advises unsafe loading; only its kind is read, the text is not shown.
    if not names and not _REFUSED.search(message.partition("WeightsUnpickler error:")[2]):
        return _damaged()
    shown = ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
    if any(name.startswith("torch.nn.modules") for name in names):
        fact = f"the file holds a whole pickled module, not its weights: {shown}"
    elif names:
        fact = f"the file needs Python objects besides tensors: {shown}"
    else:
        fact = "the file needs Python objects besides tensors and plain containers"
    return SourceError("E_UNSAFE_FORMAT", fact, hint=SAFETENSORS_HINT, stage="open")


def foreign_globals(data: bytes) -> list[str]:
    """The classes and functions that a torch file would import, those of tensors left out.

    Nothing is imported or called: the pickle's instructions are only read.
    """
    found: dict[str, None] = {}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # odd escapes in damaged text
            for stream in _pickles(data):
                for name in _globals(stream):
                    found[name] = None
    except (ValueError, LookupError, struct.error, zipfile.BadZipFile, OSError):
        pass  # a broken pickle names what stood before the break
    return [name for name in found if not _HARMLESS.fullmatch(name)]


def _pickles(data: bytes) -> list[io.BytesIO]:
    if not data.startswith(b"PK"):
        stream = io.BytesIO(data)
        return [stream] * 4  # magic number, protocol, system, object: one after another
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        names = [name for name in archive.namelist() if name.endswith("data.pkl")]
        return [io.BytesIO(archive.read(name)) for name in names]


def _globals(stream: io.BytesIO) -> list[str]:
    names: list[str] = []
    strings: list[str] = []
    for opcode, argument, _ in pickletools.genops(stream):
        if opcode.name in ("GLOBAL", "INST"):
            names.append(str(argument).replace(" ", "."))
        elif opcode.name == "STACK_GLOBAL":
            names.append(".".join(strings[-2:]))
        elif isinstance(argument, str):
            strings.append(argument)
    return names
