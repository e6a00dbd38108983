"""The laws of a query in token space, on a model whose answers are known in closed form."""

from __future__ import annotations

import math

import torch

from memaudit.audit import scan
from memaudit.contracts import AbstractSubject, AbstractTokenQuery
from memaudit.memory.result import Curve, Status
from memaudit.report import Identity
from memaudit.testing.law import check_words, must
from memaudit.testing.models import HORIZON

LETTERS = "abcdefghijklmnopqrstuvwxyz "
DECAY = 0.8
#: Rates are read from a fit over a window of some dozens of lags.
RATE_TOLERANCE = 0.01


class LetterFilter(AbstractSubject):
    """y_t = sum_s decay^s e(u_{t-s}) over the letters of a text; e(k) = 1 + k / 8 for letter k.

    `decay` 0 is a model without memory. Pooled, it answers by y at the last letter.
    """

    def __init__(self, decay: float = DECAY, *, pooled: bool = False, tokens: bool = True) -> None:
        self.identity = Identity("letters", "wrap", "callable", 0, "float64", "cpu")
        self.input_size, self.pooled = 1, pooled
        self.device, self.dtype = torch.device("cpu"), torch.float64
        self.vocabulary = len(LETTERS) if tokens else None
        self.decay = decay

    def respond(self, inputs: torch.Tensor) -> torch.Tensor:
        """Answer letters (B,T) or numbers (B,T,1)."""
        values = inputs.double() if inputs.ndim == 3 else (1 + inputs.double() / 8)[..., None]
        state, answers = torch.zeros_like(values[:, 0]), []
        for step in values.unbind(1):
            state = self.decay * state + step
            answers.append(state)
        return answers[-1] if self.pooled else torch.stack(answers, 1)

    def tokens_of(self, text: str) -> torch.Tensor | None:
        """One token a letter; everything else is a blank."""
        if self.vocabulary is None:
            return None
        return torch.tensor([LETTERS.find(c) % len(LETTERS) for c in text.lower()])


def check_token_query(query: AbstractTokenQuery) -> None:
    """The laws of `AbstractTokenQuery`: the closed form, no memory, repetition, a status."""
    must(isinstance(query, AbstractTokenQuery), f"{query!r} is no AbstractTokenQuery")
    check_words(query, "name", "summary", "joined")
    must(query.joined in ("supremum", "mean"), f"joined is {query.joined!r}")
    for pooled in (False, True):
        curve = _curve(query, LetterFilter(pooled=pooled))
        must(bool((curve.values >= 0).all()), "a reading is negative")
        decay, rate = curve.decay, -math.log(DECAY)
        near = decay.rate is not None and abs(decay.rate - rate) <= RATE_TOLERANCE * rate
        must(decay.kind == "exponential", f"a memory of {DECAY}^t comes out as {decay.kind}")
        must(near, f"a memory of {DECAY}^t comes out with the rate {decay.rate}, not {rate:.4g}")
        kind = _curve(query, LetterFilter(0.0, pooled=pooled)).decay.kind
        must(kind == "memoryless", f"a model without memory comes out as {kind}")
    first, second = (_curve(query, LetterFilter(), seed=3) for _ in range(2))
    must(first == second, "the same seed gives other numbers the second time")
    deaf = _curve(query, LetterFilter(tokens=False))
    must(deaf.status is Status.NO_TOKENS, "a model without tokens gives no status that says so")


def _curve(query: AbstractTokenQuery, subject: AbstractSubject, *, seed: int = 0) -> Curve:
    report = scan(subject, horizon=HORIZON, queries=[query], probes=[], seed=seed)
    must(query.name in report.memory, f"the report has no curve called {query.name}")
    return report.memory[query.name]
