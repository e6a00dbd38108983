"""Associative recall: pairs of a key and its value, then a key whose value is asked for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from examples.reproduce.stablessm.training import Batch


@dataclass(frozen=True, slots=True)
class Recall:
    """Sequences of `length` tokens in pairs, the sign that a question comes, a key, its value.

    Of the vocabulary two tokens are signs (the second one is never used), half of the rest are
    keys, the others values. Every sequence has its own value for every key.
    """

    vocabulary: int
    length: int

    @property
    def keys(self) -> int:
        """How many keys there are, and values."""
        return (self.vocabulary - 2) // 2

    def draw(self, count: int, generator: torch.Generator) -> Tensor:
        """(count, length + 3) tokens; the last one is the answer."""
        values = torch.randint(self.keys, (count, self.keys), generator=generator)
        keys = torch.randint(self.keys, (count, self.length // 2), generator=generator)
        present = torch.zeros(count, self.keys).scatter_(1, keys, 1.0)
        asked = torch.multinomial(present, 1, generator=generator)
        pairs = torch.stack([keys, self.keys + values.gather(1, keys)], dim=-1).flatten(1)
        sign = torch.full_like(asked, 2 * self.keys)
        return torch.cat([pairs, sign, asked, self.keys + values.gather(1, asked)], dim=1)


def batches(examples: Tensor, size: int, generator: torch.Generator) -> Iterator[Batch]:
    """Endless batches of a set, in a new order every time; the next token is asked everywhere."""
    while True:
        order = torch.randperm(len(examples), generator=generator)
        for chosen in order[: len(order) // size * size].split(size):
            yield examples[chosen, :-1], examples[chosen, 1:]


@torch.no_grad()
def accuracy(model: torch.nn.Module, examples: Tensor, *, size: int = 100) -> float:
    """The share of right answers at the last place; scores that are no numbers are not right."""
    right = 0
    for part in examples.split(size):
        scores = model(part[:, :-1])[:, -1]
        answers = scores.argmax(-1).where(scores.isfinite().all(-1), -1)
        right += int((answers == part[:, -1]).sum())
    return right / len(examples)
