"""What queries in token space share: no readings, and the frame around a text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memaudit.contracts import TokenReadings

if TYPE_CHECKING:
    import torch

    from memaudit.contracts import AbstractSubject
    from memaudit.results import Status


def nothing(status: Status) -> TokenReadings:
    """No readings, and why."""
    import torch

    empty = torch.zeros(0, dtype=torch.float64)
    return TokenReadings(empty.long(), empty[None, :0], empty, 0.0, status)


def frame_of(subject: AbstractSubject, tokens: torch.Tensor) -> tuple[int, int]:
    """How many tokens the tokenizer puts around a text (T,), and how many of them in front."""
    framed = subject.framed(tokens[None])[0]
    extra = len(framed) - len(tokens)
    places = range(extra + 1)
    front = next((k for k in places if framed[k : k + len(tokens)].equal(tokens)), 0)
    return extra, front
