"""The options of the adapter: what a file of weights does not say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from memaudit.errors import ArgumentError, clean, nearest

if TYPE_CHECKING:
    from collections.abc import Mapping

OPTIONS: Final[dict[str, str]] = {
    "nonlinearity": "tanh or relu, for vanilla RNNs: the weights do not say which (default tanh)",
    "encoder": "auto, none, or the name of the embedding or linear layer in front (default auto)",
    "head": "auto, none, or the name of the linear layer behind (default auto)",
    "output": "auto, hidden or logits: what is read; language models give hidden (default auto)",
    "pool": "none, final, last, mean or max: one answer per sequence (default none)",
    "batch_first": "how the model was trained; recorded only, sequences are fed as (B,T,D)",
}
CHOICES: Final[dict[str, tuple[str, ...]]] = {
    "nonlinearity": ("tanh", "relu"),
    "output": ("auto", "hidden", "logits"),
    "pool": ("none", "final", "last", "mean", "max"),
    "batch_first": ("true", "false"),
}


@dataclass(frozen=True, slots=True)
class Settings:
    """The options as given; None where the user left the choice to the source."""

    nonlinearity: str | None = None
    encoder: str = "auto"
    head: str = "auto"
    output: str = "auto"
    pool: str | None = None
    batch_first: str | None = None

    def notes(self) -> tuple[str, ...]:
        """What was accepted without changing a number."""
        if self.batch_first is None:
            return ()
        return (f"batch_first={self.batch_first} is recorded; sequences are fed as (B,T,D)",)


def read_settings(options: Mapping[str, Any]) -> Settings:
    """The settings behind the user's options; unknown names and values are refused."""
    values: dict[str, str] = {}
    for name, value in options.items():
        if name not in OPTIONS:
            raise ArgumentError(f"unknown option {clean(name)!r}", hint=nearest(name, OPTIONS))
        text = "none" if value is None else str(value)
        choices = CHOICES.get(name)
        if choices is not None:
            text = text.lower()
            if text not in choices:
                raise ArgumentError(
                    f"{name}={clean(value)!r} is not possible", hint=nearest(text, choices)
                )
        values[name] = text
    return Settings(**values)
