"""The largest Lyapunov exponent of a recurrence whose modes keep apart."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from memaudit.spectrum.jacobian import Exponent, exponent_of
from memaudit_transformers.recurrent.kernels import DELTA_RULE

if TYPE_CHECKING:
    from memaudit_transformers.recurrent.finding import Recurrent
    from memaudit_transformers.recurrent.steps import Steps


def largest_exponent(recurrent: Recurrent, steps: Steps | None) -> Exponent | None:
    """The largest mean of log decay over the tokens, exact where modes keep apart.

    A delta rule erases beside its gate, so that its modes mix: it has none here. Neither has a
    layer that follows its input and heard none, or forgets everything at once.
    """
    if recurrent.kind.kernel is DELTA_RULE:
        return None
    if not recurrent.kind.selective:
        largest = float(recurrent.at_rest().max())
        value = float(np.log(largest)) if largest > 0.0 else None
        return None if value is None else Exponent(value, (value, value))
    return None if steps is None else _over_data(steps)


def _over_data(steps: Steps) -> Exponent | None:
    sizes = steps.sizes.detach().flatten(0, 1).cpu().double().numpy()
    sizes = sizes.reshape(len(sizes), -1)
    rates = np.ones((sizes.shape[1], 1))
    if steps.rates is not None:
        rates = steps.rates.detach().cpu().double().numpy().reshape(sizes.shape[1], -1)
    forgotten = sizes.mean(0)[:, None] * rates
    if not len(sizes) or not np.isfinite(forgotten).any():
        return None
    channel, mode = np.unravel_index(int(np.nanargmin(forgotten)), forgotten.shape)
    return exponent_of(-sizes[:, channel] * rates[channel, mode])
