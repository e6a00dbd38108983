"""The sizes of an original Mamba-2: what most of its tensors say."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from memaudit_transformers.original.keys import (
    TABLE,
    count_layers,
    layer_prefix,
    weights_error,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from torch import Tensor


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes of the language model; `mixed` are the channels of the convolution: x, B and C."""

    layers: int
    vocabulary: int
    width: int
    inner: int
    heads: int
    mixed: int
    kernel: int

    @property
    def state(self) -> int:
        """States per channel; the channels of B and C are that many each."""
        return (self.mixed - self.inner) // 2

    @property
    def head(self) -> int:
        """Channels of one head."""
        return self.inner // self.heads


def read_sizes(tensors: Mapping[str, Tensor]) -> Sizes:
    """The sizes that most tensors agree on, so that the odd one can be named afterwards."""
    table = tensors[TABLE]
    if table.ndim != 2 or not table.numel():
        raise weights_error(f"{TABLE} has the form {tuple(table.shape)}, which is no table")
    layers = count_layers(tensors)
    prefixes = [layer_prefix(number) for number in range(layers)]

    def told(end: str, axis: int = 0, *, rank: int = 1) -> list[int]:
        return _told(tensors, (prefix + end for prefix in prefixes), axis, rank=rank)

    widths = [table.shape[1], *told("norm.weight"), *told("mixer.in_proj.weight", 1, rank=2)]
    heads = _most("A_log", told("mixer.A_log") + told("mixer.dt_bias") + told("mixer.D"))
    rows = told("mixer.in_proj.weight", rank=2)
    mixed = told("mixer.conv1d.weight", rank=3) + told("mixer.conv1d.bias")
    # The rows of in_proj are those of z, x, B, C and dt: they decide where two others differ.
    implied = [all_ - channels - heads for all_, channels in zip(rows, mixed, strict=False)]
    inner = told("mixer.out_proj.weight", 1, rank=2) + told("mixer.norm.weight") + implied
    broad = _most("out_proj.weight", inner)
    return Sizes(
        layers=layers,
        vocabulary=table.shape[0],
        width=_most("norm.weight", widths),
        inner=broad,
        heads=heads,
        mixed=_most("conv1d.weight", mixed + [all_ - broad - heads for all_ in rows]),
        kernel=_most("conv1d.weight", told("mixer.conv1d.weight", 2, rank=3)),
    )


def _told(
    tensors: Mapping[str, Tensor], names: Iterable[str], axis: int, *, rank: int
) -> list[int]:
    """The sizes of one axis of all these tensors, as far as they are there and of this rank."""
    found = (tensors[name] for name in names if name in tensors)
    return [tensor.shape[axis] for tensor in found if tensor.ndim == rank]


def _most(name: str, sizes: Iterable[int]) -> int:
    """The most frequent size; the first of several."""
    counted = Counter(size for size in sizes if size > 0)
    if not counted:
        raise weights_error(f"no layer has a {name} of the form that it has in a Mamba-2")
    return counted.most_common(1)[0][0]
