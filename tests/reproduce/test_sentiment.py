"""What the rows on movie reviews share."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from examples.reproduce.iatn.sentiment import (
    SentimentSubject,
    Vocabulary,
    batches,
    log_slope,
    repeated,
    rises,
)

RATE = 0.1


class Fading(nn.Module):
    """A score that n words have brought to 1 - exp(-RATE n)."""

    def __init__(self) -> None:
        super().__init__()
        self.rate = nn.Parameter(torch.tensor(RATE, dtype=torch.float64))

    def forward(self, inputs: Tensor) -> Tensor:
        count = torch.full((len(inputs), 1), inputs.shape[1], dtype=torch.float64)
        return 1 - torch.exp(-self.rate * count)


def test_batches_have_no_padding_and_keep_text_and_label_together() -> None:
    ids = [torch.full((length,), length) for length in range(5, 25)]
    labels = torch.arange(5, 25)
    feed = batches(ids, labels, 4, 16, torch.Generator().manual_seed(0))
    for _, (some, wanted) in zip(range(20), feed, strict=False):
        assert some.shape[1] <= min(16, int(wanted.min()))
        assert torch.equal(some, wanted[:, None].expand_as(some))


def test_the_repeat_memory_of_a_known_score_is_found() -> None:
    vocabulary = Vocabulary(["ha ha bad"], 4)
    given = {"width": 2, "vocabulary": len(vocabulary), "tokenize": vocabulary}
    curve = repeated(SentimentSubject(Fading(), **given), "ha", 100)
    exact = np.exp(-RATE * curve.lags) * -np.expm1(-RATE)
    np.testing.assert_allclose(curve.values, exact, rtol=1e-9)
    assert curve.decay.kind == "exponential"
    rate, scatter = log_slope(curve)
    assert rate == pytest.approx(RATE, rel=1e-6)
    assert scatter < 1e-6
    assert rises(curve) == 0.0
