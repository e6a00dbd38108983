"""A numpy archive of named arrays."""

from __future__ import annotations

import io
import math
import tokenize
import warnings
import zipfile
from typing import TYPE_CHECKING

import numpy as np
import torch

from memaudit.errors import SourceError
from memaudit.loading.tensors import plain_tensor

if TYPE_CHECKING:
    from typing import IO

#: What numpy's header parser was seen to raise.
_DAMAGE = (
    EOFError,
    KeyError,
    MemoryError,
    OSError,
    RecursionError,
    SyntaxError,
    TypeError,
    ValueError,
    tokenize.TokenError,
)


def read_npz(data: bytes) -> tuple[dict[str, torch.Tensor], dict[str, str], list[str]]:
    """The numeric arrays in file order, single strings as metadata, and notes on the rest."""
    tensors: dict[str, torch.Tensor] = {}
    metadata: dict[str, str] = {}
    left_out: list[str] = []
    with zipfile.ZipFile(io.BytesIO(data)) as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # headers written by Python 2 are read with a warning
        for member in archive.infolist():
            name = member.filename.removesuffix(".npy")
            with archive.open(member) as stream:
                _check_header(name, stream, size=member.file_size)
            with archive.open(member) as stream:
                array = _array(name, stream)
            if array.dtype.kind not in "US":
                tensors[name] = plain_tensor(name, _tensor(name, array))
            elif array.ndim == 0:
                metadata[name] = str(array)
            else:
                left_out.append(name)
    notes = [f"arrays of text were left out: {', '.join(left_out)}"] if left_out else []
    return tensors, metadata, notes


def _check_header(name: str, stream: IO[bytes], *, size: int) -> None:
    """Refuse Python objects, and shapes that ask for more memory than the member has bytes."""
    try:
        version = np.lib.format.read_magic(stream)
        read = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }[version]
        shape, _, dtype = read(stream)
        claimed = math.prod(shape) * dtype.itemsize
    except _DAMAGE:
        raise _damaged(name) from None
    if dtype.hasobject:
        raise SourceError(
            "E_UNSAFE_FORMAT",
            f"the array {name!r} holds pickled Python objects",
            hint="save arrays of numbers only",
            stage="open",
        )
    if min(shape, default=0) < 0 or claimed != size - stream.tell():
        raise _damaged(name)


def _array(name: str, stream: IO[bytes]) -> np.ndarray:
    try:
        return np.lib.format.read_array(stream, allow_pickle=False)
    except _DAMAGE:
        raise _damaged(name) from None


def _tensor(name: str, array: np.ndarray) -> torch.Tensor:
    native = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("="))
    try:
        return torch.from_numpy(native.reshape(array.shape))
    except TypeError:
        raise SourceError(
            "E_UNSUPPORTED",
            f"the array {name!r} has the dtype {array.dtype}",
            hint="save it in float32 or float64",
            stage="open",
        ) from None


def _damaged(name: str) -> SourceError:
    return SourceError(
        "E_CORRUPT",
        f"the array {name!r} is cut short or damaged",
        hint="copy or download the file again",
        stage="open",
    )
