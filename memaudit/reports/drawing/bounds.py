"""Numbers that a logarithmic axis of matplotlib can hold, with room for its margins and ticks."""

from __future__ import annotations

import numpy as np

#: Margins and ticks go beyond by a share of all powers of ten, and must stay numbers there.
LEAST, MOST = 1e-150, 1e150


def within(values: object) -> np.ndarray:
    """Positive numbers drawn at the nearest place that there is; the rest is a gap."""
    numbers = np.asarray(values, dtype=np.float64)
    return np.where(numbers > 0, np.clip(numbers, LEAST, MOST), np.nan)
