"""What a whole model is read as: hidden states or logits, per step or per sequence."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from memaudit.errors import ArgumentError

if TYPE_CHECKING:
    from memaudit_rnn.facts import Facts
    from memaudit_rnn.settings import Settings
    from memaudit_rnn.surroundings import Surroundings


@dataclass(frozen=True, slots=True)
class Readout:
    """Whether the head is run, how the steps are pooled, and what that rests on."""

    logits: bool
    pool: str
    assumed: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def read_out(around: Surroundings, settings: Settings, facts: Facts) -> Readout:
    """The readout of a model, from the options, else from its surroundings and config."""
    logits, output = _logits(around, settings)
    classes = facts.classes
    fits = around.head is not None and around.head.rows == classes
    notes: tuple[str, ...] = ()
    if classes is not None and not fits:
        notes = (f"the config states {classes} classes but no head answers as many: not pooled",)
    if settings.pool is not None:
        return Readout(logits, settings.pool, output)
    if fits:
        reason = f"final (the config states {classes} classes; --set pool=none to change)"
        return Readout(logits, "final", {**output, "pool": reason})
    if not logits:
        return Readout(logits, "none", output, notes)
    reason = "none (not stored in the file; --set pool=final for one answer per sequence)"
    return Readout(logits, "none", {**output, "pool": reason}, notes)


def _logits(around: Surroundings, settings: Settings) -> tuple[bool, dict[str, str]]:
    """Whether the head is run; a language model answers its last hidden state by default."""
    head, table = around.head, around.table
    if settings.output == "logits" and head is None:
        raise ArgumentError(
            "output=logits needs a head, and none was found",
            hint="name the linear layer with head=NAME, or leave output alone",
        )
    if settings.output != "auto" or head is None:
        return settings.output == "logits", {}
    if table is None or table.rows != head.rows or settings.head != "auto":
        return True, {}
    reason = f"hidden ({head.name} answers the {head.rows} tokens; --set output=logits to change)"
    return False, {"output": reason}
