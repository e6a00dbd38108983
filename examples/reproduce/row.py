"""What a row of the reproduction is: the claim of a paper, and what came out here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Verdict(StrEnum):
    """How a row ends; the value is the word that is printed."""

    HOLDS = "HOLDS"
    FAILS = "DOES NOT HOLD"
    SCALED = "SCALED DOWN"
    NOT_RUN = "NOT RUN"


#: What the words mean, for the page and for --help.
MEANINGS = {
    "HOLDS": "the claim was seen at the paper's settings, or at ones that do not matter for it",
    "DOES NOT HOLD": "it was not seen there; the evidence is in the row",
    "SCALED DOWN, seen / not seen": "something was made smaller, as the row says, and the claim "
    "was looked at in that size",
    "NOT RUN": "the data could not be had",
}


@dataclass(frozen=True, slots=True)
class Effort:
    """How much a run may cost, its seed, and where its progress goes.

    `quick` asks for the reduced settings; without it the settings are the paper's.
    """

    quick: bool = False
    seed: int = 0
    tick: Callable[[int, int], None] = lambda done, of: None

    def pick(self, *, quick: Any, full: Any) -> Any:
        """The setting of this run out of two."""
        return quick if self.quick else full


@dataclass(frozen=True, slots=True)
class Number:
    """One measured number, beside the one that the paper prints (None: it prints none)."""

    name: str
    measured: float | int | str | None
    printed: float | int | str | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a row found.

    `holds` says whether the claim was seen to hold at the settings of this run, `reason` is the
    evidence in a sentence or two. `scaled` is empty when the settings are the paper's, or do not
    matter; else it says what was made smaller, and the verdict is SCALED DOWN, never HOLDS.
    `errata` is what is known to be wrong in the paper. `explained` says that it is the reason why
    the claim does not hold: the criterion that fails is the erratum itself.
    """

    holds: bool
    reason: str
    numbers: tuple[Number, ...]
    settings: dict[str, Any]
    figure: Figure
    scaled: str = ""
    errata: str = ""
    explained: bool = False

    @property
    def verdict(self) -> Verdict:
        """The word for it."""
        if self.scaled:
            return Verdict.SCALED
        return Verdict.HOLDS if self.holds else Verdict.FAILS


@dataclass(frozen=True, slots=True)
class Row:
    """A claim of a paper, and the function that puts it to the test.

    `id` is the paper's letter and figure, table or equation; `ids` are further names for it.
    """

    id: str
    title: str
    claim: str
    run: Callable[[Effort], Outcome]
    ids: tuple[str, ...] = field(default=())
