"""The search for the input width of a module that does not say it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from memaudit.errors import SourceError
from memaudit.numerics.signals import seeded
from memaudit.wrapping import wrap

if TYPE_CHECKING:
    from torch import nn

    from memaudit.contracts import AbstractSubject

#: What a module raises when it cannot take the input of a trial.
TRIAL_ERRORS = (
    RuntimeError,
    TypeError,
    ValueError,
    IndexError,
    KeyError,
    AttributeError,
    AssertionError,
    NotImplementedError,
)
#: Attributes by which modules commonly say how wide their input is.
WIDTH_NAMES = ("input_size", "in_features", "d_input", "input_dim", "in_channels", "d_model")
MOST_TRIALS = 24


def discover(module: nn.Module, *, dtype: torch.dtype | None) -> AbstractSubject | None:
    """The module as a whole, with its input width found by trial; None when nothing fits.

    Two lengths must be answered in shape, and a row must not depend on its neighbour: a module
    that takes time first would pass by shape alone.
    """
    for width in _width_candidates(module):
        for pooled in (False, True):
            subject = wrap(module, input_size=width, pooled=pooled, dtype=dtype)
            if _plausible(subject, width):
                return subject
    return None


def _plausible(subject: AbstractSubject, width: int) -> bool:
    generator = seeded(0)
    try:
        for length in (7, 11):
            inputs = torch.randn(2, length, width, generator=generator, dtype=torch.float64)
            changed = inputs.clone()
            changed[0] += 1.0
            # The later row: where rows are really steps, it depends on the earlier one.
            one, two = subject.respond(inputs)[1], subject.respond(changed)[1]
            if not torch.allclose(one, two, rtol=1e-4, atol=1e-6):
                return False
    except (*TRIAL_ERRORS, SourceError):
        return False
    return True


def _width_candidates(module: nn.Module) -> list[int]:
    """Widths worth a trial: named attributes first, then the sizes of the parameters, then 1."""
    named = [getattr(m, name, None) for m in module.modules() for name in WIDTH_NAMES]
    sizes = [size for p in module.parameters() for size in reversed(p.shape)]
    widths = [w for w in (*named, *sizes, 1) if isinstance(w, int) and 0 < w <= 65536]
    return list(dict.fromkeys(widths))[:MOST_TRIALS]
