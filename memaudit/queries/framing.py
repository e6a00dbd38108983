"""What queries in token space share: no readings, and the frame around a text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memaudit.contracts import TokenReadings

if TYPE_CHECKING:
    from memaudit.contracts import AbstractSubject
    from memaudit.memory.result import Status


def nothing(status: Status) -> TokenReadings:
    """No readings, and why."""
    import torch

    empty = torch.zeros(0, dtype=torch.float64)
    return TokenReadings(empty.long(), empty[None, :0], empty, 0.0, status)


def frame_of(subject: AbstractSubject) -> tuple[int, int]:
    """How many tokens the tokenizer puts around a text, and how many of them in front.

    Two texts of one token each differ, inside the same frame, at the place of the text.
    """
    import torch

    one, other = subject.framed(torch.tensor([[0], [1]]))
    return len(one) - 1, int((one != other).nonzero()[0])
