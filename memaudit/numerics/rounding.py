"""Number formats as functions: a tensor in, the tensor that its stored form stands for out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

import torch

Rule = Callable[[torch.Tensor], torch.Tensor]


@dataclass(frozen=True, slots=True)
class FloatFormat:
    """Numbers ±m·2^e with so many `digits` of m, and e from the exponent of `smallest` up.

    Rounds to the nearest, halves to even, in one go: a cast by way of float32 would round twice.
    Below `smallest`, the smallest normal number, the steps stay as they are there. Beyond
    `largest` a number is infinite, or `largest` itself where the format `saturates`.
    """

    digits: int
    smallest: float
    largest: float
    saturates: bool = False

    def nearest(self, values: torch.Tensor) -> torch.Tensor:
        """The nearest numbers of the format to float64 values; what is not finite stays."""
        sizes = values.abs().clamp(min=self.smallest, max=torch.finfo(values.dtype).max)
        # A number by its mantissa is a power of two without a rounding, which ldexp is not.
        step = sizes / torch.frexp(sizes).mantissa * 2.0**-self.digits
        near = torch.round(values / step) * step
        beyond = near.abs() > self.largest
        edge = self.largest if self.saturates else torch.inf
        near = torch.where(beyond, torch.sign(values) * edge, near)
        return torch.where(values.isfinite(), near, values)


#: float32; the range of the other formats with 8 bits of exponent is the same.
FP32 = FloatFormat(24, 2.0**-126, (2 - 2.0**-23) * 2.0**127)
TF32 = FloatFormat(11, 2.0**-126, (2 - 2.0**-10) * 2.0**127)
BF16 = FloatFormat(8, 2.0**-126, (2 - 2.0**-7) * 2.0**127)
FP16 = FloatFormat(11, 2.0**-14, 65504.0)
E5M2 = FloatFormat(3, 2.0**-14, 57344.0)
#: It has no infinity; conversions saturate.
E4M3 = FloatFormat(4, 2.0**-6, 448.0, saturates=True)


# Whole multiples of a scale: the largest number of a block sets it


def _absmax(values: torch.Tensor, levels: int) -> torch.Tensor:
    """The nearest multiples of max|x| / levels, the maximum being over the last axis.

    The quotient comes first: the largest number is then met exactly, and rounding again changes
    nothing.
    """
    top = _largest(values)
    counts = torch.round(values / top * levels)
    return torch.where(values.isfinite(), counts / levels * top, values)


def _largest(values: torch.Tensor) -> torch.Tensor:
    """The largest finite |x| of every block, 1 where there is none but zeros."""
    sizes = torch.where(values.isfinite(), values.abs(), 0.0)
    top = sizes.amax(-1, keepdim=True)
    return torch.where(top > 0, top, 1.0)


def _whole(values: torch.Tensor, rule: Rule) -> torch.Tensor:
    """A rule for one block, on the whole tensor."""
    return rule(values.reshape(-1)).reshape(values.shape)


def _by_row(values: torch.Tensor, rule: Rule) -> torch.Tensor:
    """A rule for blocks along the last axis; a number alone is a row."""
    return rule(values.reshape(-1, values.shape[-1] if values.ndim else 1)).reshape(values.shape)


def _by_group(values: torch.Tensor, rule: Rule, *, size: int) -> torch.Tensor:
    """A rule for groups of so many neighbours on the last axis; the last group may be smaller."""
    rows = values.reshape(-1, values.shape[-1] if values.ndim else 1)
    groups = [rule(group) for group in rows.split(size, dim=-1)]
    return torch.cat(groups, dim=-1).reshape(values.shape)


INT8, INT4, GROUP = 127, 7, 32


def _scaled(values: torch.Tensor) -> torch.Tensor:
    """The format e4m3 after the largest number was scaled to the largest of the format."""
    top, limit = _largest(values), E4M3.largest
    near = E4M3.nearest(values / top * limit)
    return torch.where(values.isfinite(), near / limit * top, values)


_INT8, _INT4 = partial(_absmax, levels=INT8), partial(_absmax, levels=INT4)

#: name → the function of float64 values, from the finest format to the coarsest. Scales are kept
#: exactly: `int8`, `int4` and `fp8-e4m3-scaled` have one for the tensor, `int8-row` one for every
#: row, `int4-group` one for 32 neighbours.
FORMATS: Final[dict[str, Rule]] = {
    "fp32": FP32.nearest,
    "tf32": TF32.nearest,
    "fp16": FP16.nearest,
    "bf16": BF16.nearest,
    "fp8-e4m3": E4M3.nearest,
    "fp8-e4m3-scaled": partial(_whole, rule=_scaled),
    "fp8-e5m2": E5M2.nearest,
    "int8": partial(_whole, rule=_INT8),
    "int8-row": partial(_by_row, rule=_INT8),
    "int4": partial(_whole, rule=_INT4),
    "int4-group": partial(_by_group, rule=_INT4, size=GROUP),
}


def rounded(tensor: torch.Tensor, name: str) -> torch.Tensor:
    """What is left of a tensor in a format, in its own dtype; a complex one by its two parts."""
    if tensor.is_complex():
        return torch.complex(rounded(tensor.real, name), rounded(tensor.imag, name))
    values = tensor.detach().to(torch.float64)
    if not values.numel():
        return values.to(tensor.dtype)
    return FORMATS[name](values).to(tensor.dtype)
