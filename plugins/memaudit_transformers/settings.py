"""The options of the adapter: what is built, and what is read of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from memaudit.errors import ArgumentError, clean, nearest

if TYPE_CHECKING:
    from collections.abc import Mapping

OPTIONS: Final[dict[str, str]] = {
    "output": "auto, hidden or logits: what is read; sequence classifiers give their scores "
    "by default, everything else its last hidden state",
    "architecture": "the class of transformers to build, e.g. BertForMaskedLM; by default the one "
    "that config.json names, or that fits the tensors",
}
CHOICES: Final = ("auto", "hidden", "logits")


@dataclass(frozen=True, slots=True)
class Settings:
    """The options as given."""

    output: str = "auto"
    architecture: str | None = None


def read_settings(options: Mapping[str, Any]) -> Settings:
    """The settings behind the user's options; unknown names and values are refused."""
    for name in options:
        if name not in OPTIONS:
            raise ArgumentError(f"unknown option {clean(name)!r}", hint=nearest(name, OPTIONS))
    output = str(options.get("output", "auto")).lower()
    if output not in CHOICES:
        fact = f"output={clean(options['output'])!r} is not possible"
        raise ArgumentError(fact, hint=nearest(output, CHOICES))
    named = options.get("architecture")
    if named is not None and (not isinstance(named, str) or not named.isidentifier()):
        fact = f"architecture={clean(named)!r} is not the name of a class"
        raise ArgumentError(fact, hint="give one of transformers, such as BertForMaskedLM")
    return Settings(output, named)
