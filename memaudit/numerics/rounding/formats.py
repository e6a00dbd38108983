"""The common number formats of stored weights, by name."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

import torch

from memaudit.numerics.rounding import floats, integers

Rule = Callable[[torch.Tensor], torch.Tensor]

INT8, INT4, GROUP = 127, 7, 32


def _scaled(values: torch.Tensor) -> torch.Tensor:
    """The format e4m3 after the largest number was scaled to the largest of the format."""
    top, limit = integers.largest(values), floats.E4M3.largest
    near = floats.E4M3.nearest(values / top * limit)
    return torch.where(values.isfinite(), near / limit * top, values)


_INT8, _INT4 = partial(integers.absmax, levels=INT8), partial(integers.absmax, levels=INT4)

#: name → the function of float64 values, from the finest format to the coarsest. Scales are kept
#: exactly: `int8`, `int4` and `fp8-e4m3-scaled` have one for the tensor, `int8-row` one for every
#: row, `int4-group` one for 32 neighbours.
FORMATS: Final[dict[str, Rule]] = {
    "fp32": floats.FP32.nearest,
    "tf32": floats.TF32.nearest,
    "fp16": floats.FP16.nearest,
    "bf16": floats.BF16.nearest,
    "fp8-e4m3": floats.E4M3.nearest,
    "fp8-e4m3-scaled": partial(integers.whole, rule=_scaled),
    "fp8-e5m2": floats.E5M2.nearest,
    "int8": partial(integers.whole, rule=_INT8),
    "int8-row": partial(integers.by_row, rule=_INT8),
    "int4": partial(integers.whole, rule=_INT4),
    "int4-group": partial(integers.by_group, rule=_INT4, size=GROUP),
}


def rounded(tensor: torch.Tensor, name: str) -> torch.Tensor:
    """What is left of a tensor in a format, in its own dtype; a complex one by its two parts."""
    if tensor.is_complex():
        return torch.complex(rounded(tensor.real, name), rounded(tensor.imag, name))
    values = tensor.detach().to(torch.float64)
    if not values.numel():
        return values.to(tensor.dtype)
    return FORMATS[name](values).to(tensor.dtype)
