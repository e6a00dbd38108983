"""What has to be said beside the numbers of recall."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from memaudit.recall.result import Decoding

#: Share of the capacity that the lags may leave out without a word.
CUT = 0.01


def notes(decodings: Sequence[Decoding]) -> Iterator[str]:
    """Sentences about what limits the values."""
    used = [item for item in decodings if 0 < item.used < item.numbers]
    if used:
        yield f"wide states were projected at random to {used[0].used} numbers"
    cut = [d for d in decodings if d.whole and (d.capacity or 0.0) < (1 - CUT) * d.whole]
    for item in cut:
        yield (
            f"{len(item.values)} lags cut the capacity: {item.capacity:.4g} "
            f"of {item.whole:.4g} over all lags"
        )
    moving = [item for item in decodings if not item.stationary and len(item.values)]
    if any(item.exact for item in moving):
        yield (
            "some |lambda| is 1 or more, or the layer does not forget in time: there is no "
            f"stationary R^2, that of {len(moving[0].values)} steps from rest is told"
        )
    elif moving:
        named = ", ".join(item.state for item in moving[:3]) + (", ..." if moving[3:] else "")
        yield f"not yet stationary, R^2 may depend on when it is read: {named}"
