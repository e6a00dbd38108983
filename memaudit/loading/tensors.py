"""The tensors that an audit accepts: strided, on the CPU, of a known dtype."""

from __future__ import annotations

import torch

from memaudit.errors import SourceError

_DTYPES = frozenset(
    {
        *("float64", "float32", "float16", "bfloat16"),
        *("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"),
        *("complex128", "complex64", "complex32", "bool"),
        *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    }
)
#: A view may show more numbers than it stores (an expanded bias) up to this many bytes.
LARGEST_VIEW = 1 << 24


def plain_tensor(name: str, value: torch.Tensor) -> torch.Tensor:
    """The tensor without history and without attributes of its own, or a refusal.

    A hostile parameter may carry an attribute called `numel`: until it is detached, methods
    are called through the class (layout and its like are descriptors, which no attribute hides).
    """
    if value.layout is not torch.strided:
        raise _refusal("E_UNSUPPORTED", name, f"is not strided ({value.layout})")
    if value.is_nested:
        raise _refusal("E_UNSUPPORTED", name, "is nested")
    if value.is_quantized:
        raise _refusal("E_UNSUPPORTED", name, "is quantized")
    plain = torch.Tensor.detach(value)
    if type(plain) is not torch.Tensor:
        raise _refusal("E_UNSUPPORTED", name, f"is a {type(plain).__name__}")
    if plain.device.type != "cpu":
        raise _refusal("E_CORRUPT", name, f"holds no numbers (device {plain.device.type})")
    dtype = str(plain.dtype).removeprefix("torch.")
    if dtype not in _DTYPES:
        raise _refusal("E_UNSUPPORTED", name, f"has the dtype {dtype}")
    size = plain.numel() * plain.element_size()
    if size > LARGEST_VIEW and size > plain.untyped_storage().nbytes():
        raise _refusal("E_LIMIT", name, f"claims {size} bytes and stores fewer")
    return plain.resolve_conj().resolve_neg()


def _refusal(code: str, name: str, fact: str) -> SourceError:
    return SourceError(
        code,
        f"the tensor {name!r} {fact}",
        hint="save plain dense tensors, e.g. tensor.to_dense().dequantize().contiguous()",
        stage="open",
    )
