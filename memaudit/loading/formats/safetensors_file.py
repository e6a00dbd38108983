"""A safetensors file: every tensor read straight into its place, never a second copy."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from memaudit.errors import SourceError, clean
from memaudit.loading.disk.one_pass import Meter, OnePass
from memaudit.loading.disk.regular_file import out_of_memory
from memaudit.loading.formats.safetensors_header import Entry, Header, read_header

if TYPE_CHECKING:
    from memaudit.loading.access import Access
    from memaudit.loading.disk.regular_file import RegularFile

_TORCH = {
    "BOOL": torch.bool,
    "U8": torch.uint8,
    "I8": torch.int8,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "F8_E4M3FNUZ": torch.float8_e4m3fnuz,
    "F8_E5M2FNUZ": torch.float8_e5m2fnuz,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I16": torch.int16,
    "U16": torch.uint16,
    "F32": torch.float32,
    "I32": torch.int32,
    "U32": torch.uint32,
    "F64": torch.float64,
    "I64": torch.int64,
    "U64": torch.uint64,
    "C64": torch.complex64,
}


def read_safetensors(
    file: RegularFile, access: Access, meter: Meter
) -> tuple[dict[str, torch.Tensor], Header, str]:
    """The tensors in the order of their data, the header, and the SHA-256 of the file."""
    header = read_header(file, access.limits)
    one_pass = OnePass(file, meter)
    one_pass.expect(header.raw)
    tensors = {entry.name: _tensor(entry, one_pass) for entry in header.entries}
    return tensors, header, one_pass.finish()


def _tensor(entry: Entry, one_pass: OnePass) -> torch.Tensor:
    try:
        raw = torch.empty(entry.end - entry.start, dtype=torch.uint8)
    except (MemoryError, RuntimeError):
        raise out_of_memory() from None
    one_pass.fill(raw.numpy().data)
    if entry.dtype == "BOOL" and bool((raw > 1).any()):  # torch takes any byte for a truth value
        raise SourceError(
            "E_CORRUPT",
            f"the tensor {clean(entry.name, limit=120)!r} holds truth values besides 0 and 1",
            hint="copy or download the file again",
            stage="open",
        )
    return raw.view(_TORCH[entry.dtype]).reshape(entry.shape)
