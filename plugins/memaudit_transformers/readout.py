"""What is read of a model: its hidden state, or what its head answers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from memaudit.errors import ArgumentError
from memaudit_transformers.anatomy import Core, takes_embeddings

if TYPE_CHECKING:
    from torch import nn

    from memaudit_transformers.settings import Settings

_SCORES = "ForSequenceClassification"
_HINT = "leave output alone, or give output=hidden"


@dataclass(frozen=True, slots=True)
class Readout:
    """The module that is run, whether its logits are read, and what that rests on."""

    speaker: nn.Module
    logits: bool
    assumed: dict[str, str] = field(default_factory=dict)


def read_out(model: Any, core: Core, settings: Settings) -> Readout:
    """The readout of a model, from the option, else from the kind of its head."""
    title = type(model).__name__
    headed = model is not core.module and not core.note and takes_embeddings(model)
    if settings.output == "logits" and not headed:
        fact = core.note or f"{title} has no head that answers embeddings"
        raise ArgumentError(f"output=logits is not possible: {fact}", hint=_HINT)
    if settings.output != "auto":
        logits = settings.output == "logits"
        return Readout(model if logits else core.module, logits)
    if headed and _SCORES in title:
        assumed = {"output": f"logits (the scores of {title}; --set output=hidden to change)"}
        return Readout(model, True, assumed)
    if not headed:
        return Readout(core.module, False)
    assumed = {"output": f"hidden (of {title}; --set output=logits to change)"}
    return Readout(core.module, False, assumed)
