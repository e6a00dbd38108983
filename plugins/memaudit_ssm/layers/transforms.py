"""The functions that families put between a raw weight and a positive number."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor
from torch.nn import functional

#: Added by S4 to what relu gives, so that no rate is zero.
RELU_FLOOR = 1e-4
#: The constant of `best` in the public code of StableSSM: rate = 1 / (w² + 0.1).
BEST_OFFSET = 0.1

#: As S4 names them: all give a number that is not negative, except none.
POSITIVE: Mapping[str, Callable[[Tensor], Tensor]] = {
    "none": lambda w: w,
    "exp": torch.exp,
    "relu": lambda w: functional.relu(w) + RELU_FLOOR,
    "sigmoid": torch.sigmoid,
    "softplus": functional.softplus,
}
#: As StableSSM names them: the real part of A in continuous time.
REAL_PART: Mapping[str, Callable[[Tensor], Tensor]] = {
    "exp": lambda w: -torch.exp(w),
    "softplus": lambda w: -functional.softplus(w),
    "best": lambda w: -1.0 / (w * w + BEST_OFFSET),
    "direct": lambda w: w,
}
