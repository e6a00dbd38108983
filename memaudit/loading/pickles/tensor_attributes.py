"""Attributes that people give to tensors, and those that would turn a tensor into another one."""

from __future__ import annotations

from typing import Any

from memaudit.loading.pickles.inert import Made, Pairs

#: What torch itself keeps in a tensor: setting one of them is more than a remark.
TENSOR_FIELDS = frozenset(
    (
        *("H", "T", "_backward_hooks", "_base", "_cdata", "_grad", "_grad_fn"),
        *("_has_symbolic_sizes_strides", "_post_accumulate_grad_hooks", "_python_dispatch"),
        *("_version", "data", "device", "dtype", "grad", "grad_dtype", "grad_fn", "imag"),
        *("is_cpu", "is_cuda", "is_hpu", "is_ipu", "is_leaf", "is_maia", "is_meta", "is_mkldnn"),
        *("is_mps", "is_mtia", "is_nested", "is_ort", "is_quantized", "is_sparse"),
        *("is_sparse_csr", "is_vulkan", "is_xla", "is_xpu", "itemsize", "layout", "mH", "mT"),
        *("name", "names", "nbytes", "ndim", "output_nr", "real", "requires_grad"),
        *("retains_grad", "shape", "volatile"),
    )
)
#: More than anybody notes down at a tensor.
MOST_ATTRIBUTES = 100
_REBUILD = ("torch._utils._rebuild", "torch._tensor._rebuild")


def changes_tensor(states: tuple[Any, ...]) -> bool:
    """Whether a state holds more than remarks: fields of a tensor, tensors, or what is unknown."""
    found = [part for state in states for part in (state if _is_split(state) else (state,))]
    return any(map(_is_more_than_remarks, found))


def _is_split(state: Any) -> bool:
    """Whether a state is the pair of an object's dictionary and its slots."""
    return isinstance(state, tuple) and len(state) == 2


def _is_more_than_remarks(state: Any) -> bool:
    if state is None:
        return False
    if not isinstance(state, Pairs) or len(state.pairs) > MOST_ATTRIBUTES:
        return True
    return any(not _is_remark(key, value) for key, value in state.pairs)


def _is_remark(key: Any, value: Any) -> bool:
    if not isinstance(key, str) or key in TENSOR_FIELDS or key.startswith("__"):
        return False
    return not (isinstance(value, Made) and value.name.startswith(_REBUILD))
