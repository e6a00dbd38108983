"""What the rows on movie reviews share: words, batches, and a classifier that can be audited."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from torch import Tensor, nn

import memaudit
from memaudit.interfaces import AbstractSubject
from memaudit.memory.result import Curve
from memaudit.report import Identity

Review = tuple[str, int]
PADDING, UNKNOWN = 0, 1


def words_of(text: str) -> list[str]:
    """The words of a review in small letters; line breaks are none."""
    return re.findall(r"[a-z']+", text.replace("<br />", " ").lower())


class Vocabulary:
    """The commonest words of some texts, and their ids; 0 is padding, 1 is any other word."""

    def __init__(self, texts: Sequence[str], size: int) -> None:
        counts = Counter(word for text in texts for word in words_of(text))
        common = [word for word, _ in counts.most_common(size - 2)]
        self.words = ["", "?", *common]
        self.ids = {word: k for k, word in enumerate(self.words)}

    def __len__(self) -> int:
        return len(self.words)

    def __call__(self, text: str) -> Tensor:
        """The ids (T,) of a text."""
        return torch.tensor([self.ids.get(word, UNKNOWN) for word in words_of(text)])


def shuffled(reviews: list[Review], generator: torch.Generator) -> list[Review]:
    """The reviews in a random order: they come sorted by sentiment."""
    return [reviews[k] for k in torch.randperm(len(reviews), generator=generator).tolist()]


def batches(
    ids: list[Tensor], labels: Tensor, size: int, longest: int, generator: torch.Generator
) -> Iterator[tuple[Tensor, Tensor]]:
    """Batches without padding, for ever: the first L words, L of the shortest of the batch.

    L is drawn anew up to `longest`, so that a model sees texts of all lengths.
    """
    while True:
        for chosen in torch.randperm(len(ids), generator=generator).split(size):
            some = [ids[k] for k in chosen.tolist()]
            shortest = min(len(text) for text in some)
            most = int(torch.randint(longest // 4, longest + 1, (1,), generator=generator))
            length = max(1, min(shortest, most))
            yield torch.stack([text[:length] for text in some]), labels[chosen]


def accuracy(score: Callable[[Tensor], Tensor], ids: list[Tensor], labels: Tensor) -> float:
    """The share of reviews, read one by one and whole, whose score is on the right side of 1/2."""
    with torch.no_grad():
        said = torch.stack([score(text[None])[0, 0] > 0.5 for text in ids])
    return float((said == labels.bool()).float().mean())


class SentimentSubject(AbstractSubject):
    """A classifier of texts as a subject: ids (B,T), or embeddings (B,T,D), to scores (B,1)."""

    pooled = True

    def __init__(
        self,
        model: nn.Module,
        *,
        width: int,
        vocabulary: int,
        tokenize: Callable[[str], Tensor],
        frame: Callable[[Tensor], Tensor] = lambda tokens: tokens,
        longest: int | None = None,
        unknown: int = UNKNOWN,
    ) -> None:
        self.model, self.input_size, self.vocabulary = model, width, vocabulary
        self.longest, self.unknown = longest, unknown
        self._tokenize, self._frame = tokenize, frame
        first = next(model.parameters())
        self.device, self.dtype = first.device, first.dtype
        self.identity = Identity(
            source=type(model).__name__,
            adapter="wrap",
            family="module",
            parameters=sum(weight.numel() for weight in model.parameters()),
            dtype=str(first.dtype).removeprefix("torch."),
            device=str(first.device),
            sha256="",
            description="a sentiment classifier",
        )

    def respond(self, inputs: Tensor) -> Tensor:
        """The scores (B,1)."""
        with torch.no_grad():
            return self.model(inputs)

    def tokens_of(self, text: str) -> Tensor:
        """The ids of the words."""
        return self._tokenize(text)

    def framed(self, tokens: Tensor) -> Tensor:
        """The ids with what stands around a text."""
        return self._frame(tokens)


def repeated(subject: AbstractSubject, word: str, horizon: int) -> Curve:
    """The repeat memory of one word, |s(n+1) - s(n)|."""
    options = {"words": (word,), "level": "quick", "probes": []}
    return memaudit.scan(subject, queries=["repeat"], horizon=horizon, **options).memory["repeat"]


def log_slope(curve: Curve) -> tuple[float, float]:
    """The rate of the least-squares line through log memory, and how far values scatter around it.

    Over the values above ten times the floor; the scatter is a standard deviation in decades.
    """
    above = curve.values > 10 * curve.floor
    if above.sum() < 3:
        return 0.0, 0.0
    lags, logs = curve.lags[above], np.log(curve.values[above])
    line = np.polyfit(lags, logs, 1)
    scatter = float(np.std(logs - np.polyval(line, lags)) / np.log(10.0))
    return -float(line[0]), scatter


def rises(curve: Curve) -> float:
    """The share of neighbouring lags at which memory grows: 0 for a decay, 1/2 for mere noise."""
    return float((np.diff(curve.values) > 0).mean()) if len(curve.values) > 1 else 0.0
