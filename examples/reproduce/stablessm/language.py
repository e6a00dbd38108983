"""Byte-level language models on enwik8, which stands in for WikiText-103."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from examples.reproduce.data import enwik8
from examples.reproduce.row import Effort
from examples.reproduce.stablessm.hyena import Size, TokenModel
from examples.reproduce.stablessm.training import Batch, Recipe, Run, cross_entropy, train
from memaudit import registry

#: Of the hundred million bytes of enwik8: the usual parts for training and for the test.
TRAINING, TEST = slice(0, 90_000_000), slice(95_000_000, None)
#: StableSSM, C.2: the recurrent layers are trained with four fifths of the learning rate.
RECURRENT_PART, WEIGHT_DECAY = 0.8, 0.25


@dataclass(frozen=True, slots=True)
class Language:
    """A size of the model, batches, and the number of updates."""

    size: Size
    batch: int
    steps: int
    warmup: int

    def recipe(self, lr: float) -> Recipe:
        """The paper's recipe at a learning rate."""
        return Recipe(self.steps, lr, RECURRENT_PART * lr, WEIGHT_DECAY, self.warmup)

    def settings(self) -> dict[str, Any]:
        """What reproduces a run, for the record."""
        return {
            **asdict(self.size),
            "batch": self.batch,
            "steps": self.steps,
            "warm-up": self.warmup,
            "optimizer": "AdamW, constant rate after the warm-up, no clipping of gradients",
            "weight decay": WEIGHT_DECAY,
            "rate of the recurrent weights": f"{RECURRENT_PART} of the learning rate",
            "modes at the start": "exp(-rate), rates log-spaced from 0.001 to 0.1",
            "data": "enwik8, bytes; first 90 million for training, last 5 million for the test",
        }


#: StableSSM, C.2. It does not print width, depth and length: these are Hyena's of 125 million.
PAPER = Language(Size(256, 768, 12, 1024), batch=16, steps=115_200, warmup=1000)
SMALL = Language(Size(256, 32, 2, 512), batch=2, steps=120, warmup=10)
#: Pieces of text in a test.
PIECES = 64
#: What is smaller than in the paper at any setting, and in the quick one.
STANDS_IN = "bytes of enwik8 stand in for WikiText-103; only orderings are compared"


def scaled(effort: Effort, language: Language) -> str:
    """What was made smaller."""
    if not effort.quick:
        return STANDS_IN
    size = language.size
    return (
        f"{STANDS_IN}; width {size.width}, depth {size.depth}, length {size.length} and "
        f"{language.steps} steps instead of {PAPER.steps}"
    )


def texts() -> tuple[Tensor, Tensor]:
    """The bytes for training and for the test."""
    text = enwik8()
    return text[TRAINING], text[TEST]


def model(form: str, language: Language, seed: int) -> TokenModel:
    """A model whose modes stand behind a discrete form; all forms start as the same function."""
    reparam = registry.build("reparams", form, time="discrete")
    return TokenModel(language.size, form=reparam, generator=torch.Generator().manual_seed(seed))


def batches(text: Tensor, language: Language, seed: int) -> Iterator[Batch]:
    """Endless pieces of a text with the next byte at every place."""
    draw = torch.Generator().manual_seed(seed)
    span = torch.arange(language.size.length + 1)
    while True:
        starts = torch.randint(len(text) - len(span), (language.batch, 1), generator=draw)
        pieces = text[starts + span].long()
        yield pieces[:, :-1], pieces[:, 1:]


def learn(
    form: str,
    lr: float,
    language: Language,
    text: Tensor,
    seed: int,
    *,
    watch: Callable[[int, float, nn.Module], None] | None = None,
) -> tuple[TokenModel, Run]:
    """Train one model on one text; the same seed gives every form the same weights and batches."""
    made = model(form, language, seed)
    return made, train(made, batches(text, language, seed), language.recipe(lr), watch=watch)


@torch.no_grad()
def evaluate(made: nn.Module, text: Tensor, language: Language) -> float:
    """The mean loss for a byte over pieces of a text, always the same; infinite if it is none."""
    total, draws = 0.0, -(-PIECES // language.batch)
    source = batches(text, language, 0)
    for _ in range(draws):
        inputs, wanted = next(source)
        total += float(cross_entropy(made(inputs), wanted))
    return total / draws if math.isfinite(total) else math.inf
