"""The tensors that an original Mamba-2 must have, compared with those of a file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memaudit.errors import listed
from memaudit_transformers.describing import SHOWN
from memaudit_transformers.original.keys import HEAD, LAST_NORM, TABLE, layer_prefix, weights_error

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from torch import Tensor

    from memaudit_transformers.original.sizes import Sizes

Shapes = dict[str, tuple[int, ...]]


def parts_of(sizes: Sizes, *, bias: bool, conv_bias: bool, head: bool) -> Shapes:
    """The shape of every tensor by its name; the flags say which of the optional ones there are."""
    layer = _layer(sizes, bias=bias, conv_bias=conv_bias)
    parts: Shapes = {TABLE: (sizes.vocabulary, sizes.width)}
    for number in range(sizes.layers):
        parts |= {layer_prefix(number) + end: shape for end, shape in layer.items()}
    parts[f"{LAST_NORM}weight"] = (sizes.width,)
    return parts | ({HEAD: parts[TABLE]} if head else {})


def require_parts(tensors: Mapping[str, Tensor], parts: Shapes) -> None:
    """Raise E_WEIGHTS, naming what is missing, what is not known and what has another form."""
    facts = (
        ("missing in the file", [name for name in parts if name not in tensors]),
        ("not known to the model", [name for name in tensors if name not in parts]),
        ("of another form", _misshaped(tensors, parts)),
    )
    found = [f"{what}: {listed(names, most=SHOWN, limit=120)}" for what, names in facts if names]
    if found:
        raise weights_error("these are not the tensors of one Mamba-2; " + "; ".join(found))


def has_any(tensors: Collection[str], sizes: Sizes, *ends: str) -> bool:
    """Whether any layer has one of these tensors."""
    prefixes = map(layer_prefix, range(sizes.layers))
    return any(prefix + end in tensors for prefix in prefixes for end in ends)


def _layer(sizes: Sizes, *, bias: bool, conv_bias: bool) -> Shapes:
    rows = sizes.inner + sizes.mixed + sizes.heads  # z, then x with B and C, then dt
    shapes: Shapes = {
        "norm.weight": (sizes.width,),
        "mixer.in_proj.weight": (rows, sizes.width),
        "mixer.conv1d.weight": (sizes.mixed, 1, sizes.kernel),
        "mixer.dt_bias": (sizes.heads,),
        "mixer.A_log": (sizes.heads,),
        "mixer.D": (sizes.heads,),
        "mixer.norm.weight": (sizes.inner,),
        "mixer.out_proj.weight": (sizes.width, sizes.inner),
    }
    if bias:
        shapes |= {"mixer.in_proj.bias": (rows,), "mixer.out_proj.bias": (sizes.width,)}
    return shapes | ({"mixer.conv1d.bias": (sizes.mixed,)} if conv_bias else {})


def _misshaped(tensors: Mapping[str, Tensor], parts: Shapes) -> list[str]:
    return [
        f"{name} {tuple(tensors[name].shape)} instead of {shape}"
        for name, shape in parts.items()
        if name in tensors and tuple(tensors[name].shape) != shape
    ]
