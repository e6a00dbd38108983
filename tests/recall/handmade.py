"""Recall built by hand: three states, two linear layers, no model behind them."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from memaudit.interfaces import Status
from memaudit.recall.result import Decoding, LinearRecall, RecallResult, StateRecall


def decoding(state: str, numbers: int, values: np.ndarray, **changes) -> Decoding:
    made = Decoding(
        *(state, "state", numbers, numbers, 1, values, 0.009, 13.53, 2, 8192, False, Status.OK)
    )
    return replace(made, **changes)


def ring(**changes) -> LinearRecall:
    lengths = (
        StateRecall(2, 4, 4, 10.0, 0.0, 1e-6),
        StateRecall(4, 8, 6, 123456.0, 0.0, 1e-2),
        StateRecall(16, 8, 6, math.inf, 0.5, 0.5),
    )
    sparse = (StateRecall(4, 8, 8, 3.0, 0.0, 1e-6), StateRecall(8, 8, 6, math.inf, 0.3, 0.3))
    flat = np.full(16, 0.5)
    made = ("ring", 8, 2, 0, 16, "float32", Status.OK, lengths, sparse, *(flat,) * 4, 8.0, 7.5)
    return replace(LinearRecall(*made), **changes)


def sample() -> RecallResult:
    none, falling = np.zeros(0), np.linspace(1.0, 0.0, 9)
    falling[[1, 8]] = 0.75, 0.25
    decodings = (
        decoding("gru", 32, falling),
        decoding("layer", 8, np.ones(9), exact=True, capacity=8.0, half=9, floor=0.0),
        decoding("lost", 4, none, kind="hidden", capacity=None, half=0, floor=0.0),
    )
    lost = replace(decodings[2], status=Status.DIVERGED)
    shut = ring(layer="shut", status=Status.NO_STATE, lengths=(), sparse=(), capacity=None)
    linear = (ring(), shut)
    return RecallResult(linear, (*decodings[:2], lost), 9, "noise", Status.OK, note="projected")
