"""Where the error curves of neighbours in a family cross, and what that says of the family."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from memaudit.families.result import Crossing, FamilyMember, FamilyReport

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Curves that merge as models grow pass each other by a little: a smaller lead counts as none.
#: On fitted families over 400 steps 1.5, 2 and 3 give the same verdicts, 1.1 and 1.25 do not.
LEAD = 2.0
#: Crossings that lie within this factor of each other stay put.
STAY = 2.0
#: Errors are compared by their logarithms, which infinity and zero do not have.
LARGEST, SMALLEST = 1e300, 1e-300
#: Members that can be compared at all.
FEWEST = 2


def judged(report: FamilyReport) -> FamilyReport:
    """The report with its crossings and its verdict, from the curves alone."""
    pairs = zip(report.members, report.members[1:], strict=False)
    found = tuple(_crossing(report, small, large) for small, large in pairs)
    first = float(report.betas[0])
    verdict, reason = trend([Span(c.beta, *c.interval, below=0 < c.beta <= first) for c in found])
    if fact := _unlike_reference(report) or (_too_short(report) if verdict == "stable" else ""):
        verdict, reason = "undetermined", fact
    return replace(report, crossings=found, verdict=verdict, reason=reason)


def _unlike_reference(report: FamilyReport) -> str:
    """Why there is nothing to compare; empty when two neighbours can be.

    A member whose error is as large as the reference is lost before anything moves, and curves are
    compared as long as the smaller of two neighbours is not.
    """
    starts = [member.start for member in report.members]
    if len(starts) < FEWEST or any(start < report.scale for start in starts[:-1]):
        return ""
    fewer = f"only the largest member (E(0) = {starts[-1]:.3g})"
    which = fewer if starts[-1] < report.scale else f"no member (E(0) from {min(starts):.3g} on)"
    return f"{which} approximates the reference, of size {report.scale:.3g}: nothing to compare"


def _too_short(report: FamilyReport) -> str:
    """Why the inputs cannot show that a family is stable; empty when they can.

    Over T steps no mode grows by more than exp(T beta): what is slower than T stays unseen.
    """
    margins = [member.margin for member in report.members if member.margin is not None]
    slowest, steps = min(margins, default=1.0), report.settings["steps"]
    if slowest * steps >= 1:
        return ""
    words = f"{steps} steps are too few to tell: the slowest mode"
    if slowest <= 0:
        return f"{words} never decays"
    return f"{words} lasts {1 / slowest:.0f} steps; give steps={math.ceil(1 / slowest)} or more"


def _crossing(report: FamilyReport, small: FamilyMember, large: FamilyMember) -> Crossing:
    limits = {"starts": (small.start, large.start), "cap": report.scale}
    beta = crossing(report.betas, small.errors, large.errors, **limits)
    seeds = [
        crossing(report.betas, one, other, **limits)
        for one, other in zip(small.seeds, large.seeds, strict=True)
    ]
    error = height(report.betas, small.errors, beta) if 0 < beta < np.inf else None
    low, high = min([beta, *seeds]), max([beta, *seeds])
    # What has happened at the first beta may have happened anywhere below it.
    ends = (0.0 if low <= report.betas[0] else low), high
    return Crossing(small.size, large.size, beta, ends, error)


@dataclass(frozen=True, slots=True)
class Span:
    """A crossing with what different seeds make of it; infinite where curves do not cross.

    `below` says that it was passed at the first beta already, and lies anywhere between 0 and it.
    """

    beta: float
    low: float
    high: float
    below: bool = False

    def __str__(self) -> str:
        return f"< {self.beta:.3g}" if self.below else f"{self.beta:.3g}"

    @property
    def exists(self) -> bool:
        """Whether the curves cross, by the draws of all seeds together."""
        return 0 < self.beta < np.inf


def crossing(
    betas: np.ndarray,
    smaller: np.ndarray,
    larger: np.ndarray,
    *,
    starts: tuple[float, float],
    cap: float,
) -> float:
    """The first beta from which the larger model is worse, by log-log interpolation.

    It is worse where its error exceeds `LEAD` times that of the smaller one. `starts` are E(0) of
    both: 0 is answered when the larger one is no better there. Infinite when there is no crossing
    before the smaller one's error exceeds `cap`, where both models are lost. What has happened
    at the first beta already is answered by exactly that beta, an upper bound.
    """
    if starts[1] >= starts[0]:
        return 0.0
    low, gap = _log(smaller), _log(larger) - _log(smaller) - np.log(LEAD)
    x, lost = np.log(betas), float(_log(np.array(cap)))
    for i in range(len(betas)):
        if i and low[i - 1] > lost:
            break
        if gap[i] > 0:
            share = gap[i] / (gap[i] - gap[i - 1]) if i else 0.0
            height = low[i] - share * (low[i] - low[i - 1]) if i else low[i]
            at = float(np.exp(x[i] - share * (x[i] - x[i - 1]))) if i else float(betas[0])
            return at if height <= lost else np.inf
    return np.inf


def height(betas: np.ndarray, errors: np.ndarray, beta: float) -> float:
    """E at any beta of the grid's range, by log-log interpolation."""
    return float(np.exp(np.interp(np.log(beta), np.log(betas), _log(errors))))


def trend(spans: Sequence[Span]) -> tuple[str, str]:
    """The verdict on crossings in the order of growing models, and the sentence behind it.

    They shift left when a later one lies more than `STAY` times below an earlier one, whichever
    seed is taken.
    """
    if not spans:
        return "undetermined", "one curve crosses nothing; add members"
    if all(span.beta == 0 for span in spans):
        return "undetermined", "no member is better than the next smaller one, moved or not"
    there = [span for span in spans if span.exists]
    places = ", ".join(str(span) for span in there)
    pairs = [(early, late) for i, early in enumerate(there) for late in there[i + 1 :]]
    if any(late.high * STAY < early.low for early, late in pairs):
        return "unstable", f"the crossings shift left as the models grow (beta = {places})"
    if any(late.below for _, late in pairs):
        return "undetermined", f"crossings lie below the first beta ({places}); give smaller betas"
    if any(late.beta * STAY < early.beta for early, late in pairs):
        return "undetermined", f"the crossings shift by less than their noise ({places}); draw more"
    if not there and any(span.beta == 0 for span in spans):
        return "stable", "no crossings: a larger model is worse only where it starts so"
    if not there:
        return "stable", "no crossings: the larger model is never the worse one"
    if len(there) == 1 and there[0] is spans[-1]:
        return "undetermined", f"only the largest models cross (beta = {places}); add a larger one"
    if len(there) == 1:
        return "stable", f"one crossing (beta = {places}), and none of larger models"
    return "stable", f"the crossings stay put (beta = {places})"


def _log(errors: np.ndarray) -> np.ndarray:
    return np.log(np.clip(np.asarray(errors, float), SMALLEST, LARGEST))
