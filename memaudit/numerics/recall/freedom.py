"""Which real numbers of a complex state are free, and which another one tells."""

from __future__ import annotations

import torch
from torch import Tensor

#: A conjugate is as near to its twin as single precision, in which weights are kept, puts it.
_TWINS = 1e-5
#: What is real is so but for the rounding of sines.
_REAL = 1e-13
#: States that are compared.
_LOOKED_AT = 64


def free_numbers(reach: Tensor) -> Tensor:
    """Indices among the real parts, then imaginary ones, of the states A^s B (H,k,N,D).

    Of two entries that are conjugates for every input only one is free, and of an entry that is
    always real only its real part. Real states are free in every entry.
    """
    size = reach.shape[2]
    if not reach.is_complex():
        return torch.arange(size)
    states = reach.transpose(2, 3).reshape(-1, size)
    at = torch.linspace(0, len(states) - 1, min(len(states), _LOOKED_AT)).round().long()
    seen = states[at]
    tall = seen.abs().amax(0)
    apart = torch.zeros(size, size, dtype=tall.dtype)
    for state in seen:
        apart = torch.maximum(apart, (state[:, None] - state.conj()).abs())
    twins = (apart <= _TWINS * tall[:, None]) & (tall > 0)[:, None]
    single = ~twins.triu(1).any(0)
    turning = states.imag.abs().amax(0) > _REAL * states.abs().amax(0)
    return torch.cat([single, single & turning]).nonzero().squeeze(1)
