"""What memaudit raises: one root, four children that differ in their exit code."""

from __future__ import annotations

import re
import unicodedata
from difflib import get_close_matches
from typing import TYPE_CHECKING, ClassVar, Self

if TYPE_CHECKING:
    from collections.abc import Iterable

#: Foreign text (file names, tensor names, messages of other libraries) is cut here.
LONGEST_FOREIGN_TEXT = 300
#: Marks that stand on the letter before them: a few are language, a pile hides other lines.
_MARK = "[\u0300-\u036f\u0483-\u0489\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f]"
_PILES = re.compile(f"({_MARK}{{4}}){_MARK}+")
#: Build servers read ::command:: and ##[command] in whatever is printed as an order.
_ORDERS = re.compile(r":(?=:)|#(?=#)")


def clean(text: object, *, limit: int = LONGEST_FOREIGN_TEXT) -> str:
    """Foreign text made safe to print: no control or bidirectional characters, cut at `limit`.

    Unicode category C covers control, format (bidi overrides), surrogate and private characters.
    Doubled colons and hashes get a blank between them: build servers take them for commands.
    """
    # Cut first: a name of megabytes must not cost seconds; what is dropped below is made up for.
    flat = " ".join(str(text)[: 20 * limit].split())
    kept = "".join(c for c in flat if not unicodedata.category(c).startswith("C"))
    kept = _ORDERS.sub(r"\g<0> ", _PILES.sub(r"\1", kept))
    return kept if len(kept) <= limit else kept[: limit - 1] + "…"


def nearest(name: str, known: Iterable[str]) -> str:
    """The hint for an unknown name: its nearest neighbours, or every name there is."""
    names = sorted(known)
    close = get_close_matches(name, names, n=3, cutoff=0.5)
    if close:
        return "did you mean " + " or ".join(close) + "?"
    return "known are: " + (", ".join(names) if names else "none")


def listed(
    names: Iterable[object], *, most: int = 8, limit: int | None = None, joint: str = ", "
) -> str:
    """The first few names, cleaned and cut if there is a `limit`, and how many more there are."""
    every = list(names)
    shown = (str(name) if limit is None else clean(name, limit=limit) for name in every[:most])
    more = f" and {len(every) - most} more" if len(every) > most else ""
    return joint.join(shown) + more


class MemauditError(Exception):
    """The root of what memaudit raises: a permanent code, a fact, and the next step."""

    exit_code: ClassVar[int] = 3

    def __init__(
        self, code: str, fact: str, *, hint: str = "", source: object = "", stage: str = ""
    ) -> None:
        self.code = code
        self.fact = clean(fact, limit=1200)
        self.hint = hint
        self.source = clean(source)
        self.stage = stage
        super().__init__(self.line())

    def line(self) -> str:
        """One line: `error[E_CODE] SOURCE: fact; next step`."""
        where = f" {self.source}:" if self.source else ""
        step = f"; {self.hint}" if self.hint else ""
        return f"error[{self.code}]{where} {self.fact}{step}"

    def at(self, source: object) -> Self:
        """The same error with its source named, unless it already names one."""
        if self.source:
            return self
        return type(self)(self.code, self.fact, hint=self.hint, source=source, stage=self.stage)

    def to_dict(self) -> dict[str, str]:
        """The record that stands in a JSON report."""
        return {"code": self.code, "stage": self.stage, "message": self.fact, "hint": self.hint}


class SourceError(MemauditError):
    """The source was refused or cannot be audited."""

    exit_code = 3


class ArgumentError(MemauditError):
    """The caller asked for something that does not exist or contradicts itself."""

    exit_code = 2

    def __init__(self, fact: str, *, hint: str = "", source: object = "", stage: str = "") -> None:
        super().__init__("E_ARGUMENT", fact, hint=hint, source=source, stage=stage)

    def at(self, source: object) -> Self:
        """The same error with its source named, unless it already names one."""
        if self.source:
            return self
        return type(self)(self.fact, hint=self.hint, source=source, stage=self.stage)


class MachineError(MemauditError):
    """The machine failed: network, disk, memory, permission or a broken plugin."""

    exit_code = 5


class InternalError(MemauditError):
    """A bug of memaudit in one of several things to do: the others are done all the same."""

    exit_code = 70


class OutOfBudget(KeyboardInterrupt):
    """The budget of the audit is used up: what was measured counts, as after Ctrl-C."""
