"""A quick memory horizon in the middle of a run, which leaves no trace in it."""

from __future__ import annotations

import math
import random
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from memaudit.audit import scan
from memaudit.errors import SourceError
from memaudit.memory.result import Status

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import nn

#: The query that is asked: it takes one pass.
QUERY = "heaviside"
#: A curve may be too short for a verdict and still show where memory ends.
TELLING = (Status.OK, Status.TOO_FEW_LAGS)


def quick_horizon(
    model: nn.Module, *, window: int, audible: Callable[[nn.Module], Any] | None = None
) -> float:
    """The horizon of the model as it is, in steps; infinite beyond the window.

    `audible` makes of the model what memaudit can scan, where that is not the model itself.
    """
    with _undisturbed(model):
        source = model if audible is None else audible(model)
        report = scan(source, horizon=window, queries=[QUERY], probes=[], level="quick")
    curve = report.memory.get(QUERY)
    if curve is not None and curve.status is Status.BELOW_FLOOR:
        return 0.0
    if curve is None or curve.status not in TELLING:
        told = report.errors[0]["message"] if report.errors else ""
        reason = told or (str(curve.status) if curve else str(Status.NOT_MEASURED))
        raise SourceError("E_UNSUPPORTED", reason, stage="training")
    return math.inf if curve.horizon is None else float(curve.horizon)


@contextmanager
def _undisturbed(model: nn.Module) -> Iterator[None]:
    """Without dropout and gradients; then every part trains as before, with the same dice."""
    modes = [(part, part.training) for part in model.modules()]
    dice = random.getstate(), np.random.get_state()
    cards = {p.device.index or 0 for p in model.parameters() if p.device.type == "cuda"}
    with torch.random.fork_rng(devices=sorted(cards)), torch.no_grad():
        model.eval()
        try:
            yield
        finally:
            for part, training in modes:
                part.training = training
            random.setstate(dice[0])
            np.random.set_state(dice[1])
