"""I-F5: bidirectional LSTMs that judge movie reviews, and one word said again and again."""

from __future__ import annotations

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy

from examples.reproduce.data import imdb
from examples.reproduce.drawing import lines, panels
from examples.reproduce.iatn.sentiment import (
    SentimentSubject,
    Vocabulary,
    accuracy,
    batches,
    log_slope,
    repeated,
    rises,
    shuffled,
)
from examples.reproduce.row import Effort, Number, Outcome, Row
from memaudit.memory.result import Curve

WORDS, REPEATS = ("ha", "good", "bad"), 201
#: The paper names none of these.
EMBEDDING, UNITS, VOCABULARY, BATCH, RATE = 64, 64, 10_000, 64, 3e-3
LAYERS = {"Bidirectional LSTM": 1, "Stacked Bidirectional LSTM": 2}

#: Model → word → memory.
Curves = dict[str, dict[str, Curve]]


class BiLstm(nn.Module):
    """Embedding, bidirectional LSTMs, and a score between 0 and 1 from both final states."""

    def __init__(self, vocabulary: int, layers: int, generator: torch.Generator) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, EMBEDDING)
        shape = {"num_layers": layers, "bidirectional": True, "batch_first": True}
        self.lstm = nn.LSTM(EMBEDDING, UNITS, **shape)
        self.dense, self.score = nn.Linear(2 * UNITS, UNITS), nn.Linear(UNITS, 1)
        with torch.no_grad():
            for weight in self.parameters():
                weight.uniform_(-(UNITS**-0.5), UNITS**-0.5, generator=generator)

    def forward(self, inputs: Tensor) -> Tensor:
        """The scores (B,1) of ids (B,T), or of embeddings (B,T,D)."""
        fed = inputs if inputs.is_floating_point() else self.embedding(inputs)
        final = self.lstm(fed)[1][0]
        both = torch.cat([final[-2], final[-1]], dim=1)
        return torch.sigmoid(self.score(torch.relu(self.dense(both))))


def train(layers: int, vocabulary: Vocabulary, ids: list, labels: Tensor, plan: dict) -> BiLstm:
    """Adam on the cross entropy of the scores."""
    draw = torch.Generator().manual_seed(plan["seed"])
    model = BiLstm(len(vocabulary), layers, draw)
    stepping = torch.optim.Adam(model.parameters(), lr=RATE)
    feed = batches(ids, labels, BATCH, plan["longest"], draw)
    for update, (some, wanted) in zip(range(plan["updates"]), feed, strict=False):
        loss = binary_cross_entropy(model(some)[:, 0], wanted.float())
        stepping.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        stepping.step()
        plan["tick"](update + 1)
    return model


def run(effort: Effort) -> Outcome:
    """Train both, ask both."""
    updates, longest, reviews, tested = effort.pick(
        quick=(300, 64, 12_000, 300), full=(10 * 390, 400, 25_000, 25_000)
    )
    draw = torch.Generator().manual_seed(effort.seed)
    training = shuffled(imdb(split="train"), draw)[:reviews]
    test = shuffled(imdb(split="test"), draw)[:tested]
    vocabulary = Vocabulary([text for text, _ in training], VOCABULARY)
    ids, labels = [vocabulary(text) for text, _ in training], _labels(training)
    test_ids = [vocabulary(text)[: effort.pick(quick=128, full=1000)] for text, _ in test]
    curves: Curves = {}
    right = {}
    for number, (name, layers) in enumerate(LAYERS.items()):
        plan = {"seed": effort.seed, "updates": updates, "longest": longest}
        plan["tick"] = lambda k, n=number: effort.tick(n * updates + k, 2 * updates)
        model = train(layers, vocabulary, ids, labels, plan)
        right[name] = accuracy(model, test_ids, _labels(test))
        # In float64 the floor of the differences is far below the figure's 1e-6.
        given = {"width": EMBEDDING, "vocabulary": len(vocabulary), "tokenize": vocabulary}
        subject = SentimentSubject(model.double().eval(), **given)
        curves[name] = {word: repeated(subject, word, REPEATS) for word in WORDS}
    return _outcome(effort, curves, right, vocabulary, (updates, longest, reviews))


def _labels(reviews: list[tuple[str, int]]) -> Tensor:
    return torch.tensor([label for _, label in reviews])


def _outcome(
    effort: Effort, curves: Curves, right: dict, vocabulary: Vocabulary, plan: tuple
) -> Outcome:
    rates = {
        name: {word: log_slope(curve)[0] for word, curve in some.items()}
        for name, some in curves.items()
    }
    pairs = [some[word].decay.kind for some in curves.values() for word in ("good", "bad")]
    decays = all(kind == "exponential" for kind in pairs)
    slower = all(some["ha"] < min(some["good"], some["bad"]) for some in rates.values())
    updates, longest, reviews = plan
    return Outcome(
        holds=decays and slower,
        reason=_told(curves, rates, right)
        + ("" if decays else "; good and bad do not all decay exponentially")
        + ("" if slower else "; ha is not slower than both in both models"),
        numbers=(
            *_numbers(curves, rates, right),
            Number("rank of 'ha' among the words", vocabulary.ids.get("ha", 0)),
        ),
        settings={
            "words": WORDS,
            "repeats": REPEATS - 1,
            "updates": updates,
            "batch": BATCH,
            "longest text": longest,
            "reviews": reviews,
            "vocabulary": VOCABULARY,
            "embedding": EMBEDDING,
            "units": UNITS,
            "optimizer": f"Adam {RATE:g}",
            "silent in the paper": "all but words and repeats",
        },
        figure=_figure(curves),
        scaled=effort.pick(
            quick=f"{updates} updates on the first {longest} words of {reviews} reviews", full=""
        ),
    )


def _told(curves: Curves, rates: dict[str, dict[str, float]], right: dict[str, float]) -> str:
    return "; ".join(
        f"{name} ({right[name]:.0%} right): "
        + ", ".join(f"{w} {c.decay.kind} at rate {rates[name][w]:.3g}" for w, c in some.items())
        for name, some in curves.items()
    )


def _numbers(
    curves: Curves, rates: dict[str, dict[str, float]], right: dict[str, float]
) -> list[Number]:
    numbers = []
    for name, some in curves.items():
        numbers.append(Number(f"{name}: accuracy on test reviews", right[name]))
        for word, curve in some.items():
            numbers.append(Number(f"{name}, {word!r}: memory", str(curve.decay)))
            numbers.append(Number(f"{name}, {word!r}: mean rate", rates[name][word]))
            numbers.append(Number(f"{name}, {word!r}: share of lags with growth", rises(curve)))
    return numbers


def _figure(curves: Curves) -> Figure:
    figure, axes = panels(*curves)
    for at, some in zip(axes, curves.values(), strict=True):
        shown = {w: (c.lags, np.maximum(c.values, 1e-17)) for w, c in some.items()}
        lines(at, shown, x="repeat times", y="memory of the score", logs="y")
    return figure


ROW = Row(
    id="I-F5",
    title="BiLSTMs on movie reviews",
    claim='the memory of "good" and "bad" decays exponentially, that of "ha" more slowly',
    run=run,
)
