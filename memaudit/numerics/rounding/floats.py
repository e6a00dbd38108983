"""Rounding to floating-point formats, mantissa by mantissa, in float64."""

from __future__ import annotations

from dataclasses import dataclass

import torch


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
