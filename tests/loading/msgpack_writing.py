"""Writes msgpack as flax does, and as nobody would: every value is the bytes that spell it."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch


def text(value: str) -> bytes:
    raw = value.encode()
    if len(raw) < 32:
        return bytes([0xA0 | len(raw)]) + raw
    return b"\xdb" + struct.pack(">I", len(raw)) + raw


def whole(value: int) -> bytes:
    return bytes([value]) if 0 <= value < 128 else b"\xd3" + struct.pack(">q", value)


def raw(value: bytes) -> bytes:
    return b"\xc6" + struct.pack(">I", len(value)) + value


def listed(*values: bytes) -> bytes:
    return b"\xdd" + struct.pack(">I", len(values)) + b"".join(values)


def pairs(*values: tuple[str, bytes]) -> bytes:
    """A map; a name may come twice."""
    few = len(values) < 16
    head = bytes([0x80 | len(values)]) if few else b"\xdf" + struct.pack(">I", len(values))
    return head + b"".join(text(key) + value for key, value in values)


def entries(values: Mapping[str, bytes]) -> bytes:
    return pairs(*values.items())


def extension(code: int, body: bytes) -> bytes:
    return b"\xc9" + struct.pack(">Ib", len(body), code) + body


def array(shape: tuple[int, ...], dtype: str, body: bytes, *, code: int = 1) -> bytes:
    return extension(code, listed(listed(*map(whole, shape)), text(dtype), raw(body)))


def flax(value: Any) -> bytes:
    """What flax writes for a tree of tensors and plain values."""
    import torch

    if isinstance(value, dict):
        return pairs(*((str(key), flax(inner)) for key, inner in value.items()))
    if isinstance(value, torch.Tensor):
        return of_tensor(value)
    if isinstance(value, list):
        return listed(*map(flax, value))
    if value is None or isinstance(value, bool):
        return {None: b"\xc0", False: b"\xc2", True: b"\xc3"}[value]
    if isinstance(value, float):
        return b"\xcb" + struct.pack(">d", value)
    return text(value) if isinstance(value, str) else whole(value)


def of_tensor(value: torch.Tensor) -> bytes:
    import torch

    body = bytes(value.contiguous().reshape(-1).view(torch.uint8).numpy())
    return array(tuple(value.shape), str(value.dtype).removeprefix("torch."), body)
