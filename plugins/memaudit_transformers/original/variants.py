"""Variants of the original Mamba-2 that shapes give away and transformers does not compute."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memaudit_transformers.original.keys import layer_prefix
from memaudit_transformers.original.surroundings import unsupported

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from memaudit_transformers.original.sizes import Sizes

#: What is looked at in every mixer.
_MIXER = ("D", "norm.weight", "out_proj.weight", "in_proj.weight")


def refuse_variants(sizes: Sizes, tensors: Mapping[str, Tensor]) -> None:
    """Raise E_UNSUPPORTED with the reason, before a variant is taken for a damaged file."""
    found = {name: _forms(tensors, sizes.layers, name) for name in _MIXER}
    if not found["norm.weight"]:
        raise unsupported("the mixers have no norm.weight: in transformers the gate has a norm")
    if found["D"] == {(sizes.inner,)} != {(sizes.heads,)}:
        raise unsupported(
            f"D has {sizes.inner} numbers for {sizes.heads} heads (D_has_hdim): in transformers "
            "it has one per head"
        )
    if any(len(forms) != 1 for forms in found.values()):
        return
    only = {name: forms.pop() for name, forms in found.items()}
    if [len(only[name]) for name in _MIXER] != [1, 1, 2, 2]:
        return
    scanned, all_ = only["norm.weight"][0], only["out_proj.weight"][1]
    # The rows of in_proj: z and x for the channels that are not scanned too, then B, C and dt.
    rows = 2 * all_ - scanned + sizes.mixed + sizes.heads
    if scanned < all_ and only["in_proj.weight"][0] == rows:
        raise unsupported(
            f"the mixers scan {scanned} of their {all_} channels (d_ssm): in transformers all"
        )


def _forms(tensors: Mapping[str, Tensor], layers: int, name: str) -> set[tuple[int, ...]]:
    """The shapes that a tensor of the mixers has, over all layers."""
    names = (f"{layer_prefix(number)}mixer.{name}" for number in range(layers))
    return {tuple(tensors[name].shape) for name in names if name in tensors}
