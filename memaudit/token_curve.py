"""From readings in token space to a curve."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from memaudit.memory.result import Curve, Decay, Status
from memaudit.tally import COARSE, SILENCE_OVER_FLOOR, judged, unmeasured

if TYPE_CHECKING:
    from memaudit.contracts import AbstractTokenQuery, Setting, TokenReadings

#: Tokens have no size to divide by.
UNNORMALIZED = "none"


def token_curve(
    query: AbstractTokenQuery, readings: TokenReadings, setting: Setting, rounding: float
) -> Curve:
    """The trials joined as the query says, and the verdict on the curve.

    A mean of positive readings decays like the slowest of them; its floor is the mean floor.
    """
    values = readings.values.double().cpu().numpy()
    lags = readings.lags.cpu().numpy()
    if not values.size:
        return unmeasured(query.name, setting, readings.status)
    finite = np.asarray(np.isfinite(values).all(axis=0))
    end = finite.size if finite.all() else int(np.argmin(finite))
    values, lags = values[:, :end], lags[:end]
    floors = readings.floors.double().cpu().numpy()
    joined = values.max(0) if query.joined == "supremum" else values.mean(0)
    floor = float(floors.max() if query.joined == "supremum" else floors.mean())
    curve = Curve(
        query=query.name,
        normalization=UNNORMALIZED,
        lags=lags,
        values=joined,
        median=np.median(values, axis=0) if end else joined,
        floor=floor,
        status=readings.status if end == finite.size else Status.DIVERGED,
        decay=Decay("undetermined"),
        horizon=None,
        half_life=None,
        epsilon=setting.epsilon,
        probes=len(values),
        exact=False,
        at_edge=False,
        noise=readings.noise,
        trials=readings.names,
    )
    silence = 0.0 if rounding > COARSE else SILENCE_OVER_FLOOR * floor
    return judged(curve, first=query.first_lag, silence=silence)
