"""Writes a tree of arrays in the msgpack of flax."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import torch

from memaudit.errors import SourceError, clean
from memaudit.loading.formats.flax_arrays import ARRAY
from memaudit.loading.writing.failing import writing
from memaudit.loading.writing.torch_writing import plain_value

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

#: Lengths in msgpack have four bytes, and an array needs some for its shape.
LONGEST = (1 << 32) - 4096


def write_msgpack(
    path: Path, tensors: Mapping[str, torch.Tensor], *, metadata: Mapping[str, str] | None = None
) -> None:
    """Write the tensors as maps in maps, which a slash in their names stands for."""
    tree: dict[str, Any] = {}
    leaves = {name: plain_value(text) for name, text in (metadata or {}).items()}
    for name, value in {**leaves, **tensors}.items():
        if isinstance(value, torch.Tensor) and value.numel() * value.element_size() > LONGEST:
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
        for piece in _spelled(tree):
            stream.write(piece)


def _spelled(value: Any) -> Iterator[bytes]:
    """The bytes of a value, piece by piece."""
    if isinstance(value, dict):
        yield b"\xdf" + struct.pack(">I", len(value))
        for key, inner in value.items():
            yield _text(str(key))
            yield from _spelled(inner)
    elif isinstance(value, list):
        yield b"\xdd" + struct.pack(">I", len(value))
        for inner in value:
            yield from _spelled(inner)
    elif isinstance(value, torch.Tensor):
        yield _array(value)
    elif value is None or isinstance(value, bool):
        yield {None: b"\xc0", False: b"\xc2", True: b"\xc3"}[value]
    elif isinstance(value, int) and -(1 << 63) <= value < 1 << 63:
        yield b"\xd3" + struct.pack(">q", value)
    elif isinstance(value, float):
        yield b"\xcb" + struct.pack(">d", value)
    else:
        yield _text(str(value))


def _text(value: str) -> bytes:
    raw = value.encode("utf-8", "replace")
    return b"\xdb" + struct.pack(">I", len(raw)) + raw


def _array(value: torch.Tensor) -> bytes:
    """An array as flax has it: its shape, the name of its dtype, and the numbers."""
    dense = value.detach().cpu().contiguous().reshape(-1)
    numbers = bytes(dense.view(torch.uint8).numpy()) if dense.numel() else b""
    shape = b"".join(b"\xd3" + struct.pack(">q", size) for size in value.shape)
    body = b"".join(
        (
            b"\xdd" + struct.pack(">I", 3),
            b"\xdd" + struct.pack(">I", value.ndim) + shape,
            _text(str(value.dtype).removeprefix("torch.")),
            b"\xc6" + struct.pack(">I", len(numbers)) + numbers,
        )
    )
    return b"\xc9" + struct.pack(">Ib", len(body), ARRAY) + body
