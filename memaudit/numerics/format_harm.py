"""What a number format breaks: modes on the boundary, memory that grows, horizons far off."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from memaudit.precision.result import RoundedLayer, RoundedMemory, Rounding

#: A horizon or a rate may change by this factor.
FACTOR = 2.0
#: The share of the answers up to which an error is no matter, as in the tolerance radius.
TOLERATED = 0.1
#: Kinds of decay that say how fast it is.
DECAYING = ("finite", "exponential", "polynomial")


@dataclass(frozen=True, slots=True)
class Harm:
    """One thing that a format breaks; `layer` is empty where it is the model as a whole.

    `short` is for a cell of a table, `words` for a sentence.
    """

    severity: str
    layer: str
    short: str
    words: str


def harms(rounding: Rounding) -> tuple[Harm, ...]:
    """Everything that a format breaks, the gravest first."""
    found = [*_overflow(rounding), *_modes(rounding), *_memory(rounding), *_answers(rounding)]
    return tuple(sorted(found, key=lambda harm: harm.severity != "error"))


def factor(memory: RoundedMemory) -> float:
    """By how much the horizon or the rate changed, up or down; 1 where neither can be compared."""
    horizons = (memory.horizon_before, memory.horizon_after)
    rates = (memory.rate_before, memory.rate_after)
    return max(_ratio(*horizons, least=1.0), _ratio(*rates, least=0.0))


def _ratio(before: float | None, after: float | None, *, least: float) -> float:
    if before is None or after is None or min(before, after) < 0:
        return 1.0
    low, high = sorted((max(before, least), max(after, least)))
    if low == high:
        return 1.0
    return high / low if low > 0 else math.inf


def _overflow(rounding: Rounding) -> Iterator[Harm]:
    if any(math.isinf(beta) for beta in rounding.betas.values()):
        note = rounding.note.partition(";")[0] or "numbers overflow"
        yield Harm("error", "", "overflow", note)


def _answers(rounding: Rounding) -> Iterator[Harm]:
    share = rounding.relative
    if share is not None and TOLERATED < share < math.inf:
        words = f"the answers change by {100 * share:.0f} % of their size"
        yield Harm("warning", "", "answers off", words)


def _modes(rounding: Rounding) -> Iterator[Harm]:
    for layer in rounding.layers:
        if layer.reached:
            yield Harm("error", layer.layer, "boundary", _margins(layer))


def _margins(layer: RoundedLayer) -> str:
    """How many modes got there; margins tell nothing where others were there before."""
    before, after = layer.margin_before, layer.margin_after
    free = before is not None and before > 0 and after is not None
    more = "" if free else " more"
    many = f"1{more} mode reaches" if layer.reached == 1 else f"{layer.reached}{more} modes reach"
    margins = f", margin {before:.2g} to {after:.2g}" if free else ""
    return f"{many} the boundary{margins}"


def _memory(rounding: Rounding) -> Iterator[Harm]:
    grown = [m for m in rounding.memory if m.kind_after == "growing" != m.kind_before]
    for memory in grown:
        yield Harm("error", "", "grows", f"the memory under {memory.query} grows")
    if grown or not rounding.memory:
        return
    worst = max(rounding.memory, key=factor)
    endless = [m for m in rounding.memory if m.kind_after == "persistent"]
    for memory in (m for m in endless if m.kind_before in DECAYING):
        words = f"the memory under {memory.query} no longer decays"
        yield Harm("warning", "", "no decay", words)
        return
    if factor(worst) > FACTOR:
        yield Harm("warning", "", "changes", _changed(worst))


def _changed(memory: RoundedMemory) -> str:
    before, after = memory.horizon_before, memory.horizon_after
    if _ratio(before, after, least=1.0) > FACTOR:
        return f"the horizon under {memory.query} goes from {before} to {after}"
    rates = f"from {memory.rate_before:.2g} to {memory.rate_after:.2g}"
    return f"the rate under {memory.query} goes {rates}"
