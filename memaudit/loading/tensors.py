"""The tensors that an audit accepts: strided, on the CPU, of a known dtype."""

from __future__ import annotations

import torch

from memaudit.errors import SourceError, clean

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
#: All tensors of a file together may show this much more than they store.
MOST_OVERLAP = 4
SMALL = 1 << 28


class Tally:
    """Adds up what tensors claim and what they store, before any of them is copied.

    Views may overlap, as tied weights do, but every one of them is copied sooner or later.
    """

    def __init__(self) -> None:
        self._claimed = 0
        self._stored: dict[int, int] = {}
        self._held = 0

    def add(self, tensor: torch.Tensor) -> None:
        """Count a tensor; E_LIMIT when all together claim far more than they store."""
        self._claimed += tensor.numel() * tensor.element_size()
        storage = tensor.untyped_storage()
        size = storage.nbytes()
        self._held += size - self._stored.get(storage.data_ptr(), 0)
        self._stored[storage.data_ptr()] = size
        if self._claimed > MOST_OVERLAP * self._held + SMALL:
            raise SourceError(
                "E_LIMIT",
                f"the tensors claim {self._claimed} bytes together and store {self._held}",
                hint="save plain dense tensors, e.g. with tensor.contiguous()",
                stage="open",
            )


def plain_tensor(name: str, value: torch.Tensor, tally: Tally | None = None) -> torch.Tensor:
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
    if tally is not None:
        tally.add(plain)
    return plain.resolve_conj().resolve_neg()


def _refusal(code: str, name: str, fact: str) -> SourceError:
    return SourceError(
        code,
        f"the tensor {clean(name)!r} {fact}",
        hint="save plain dense tensors, e.g. tensor.to_dense().dequantize().contiguous()",
        stage="open",
    )
