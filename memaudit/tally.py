"""What one query has heard so far, probe by probe, and the curve that follows from it."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from memaudit.memory.result import Curve, Decay, Status
from memaudit.numerics import memory
from memaudit.numerics.decay import FEWEST_LAGS, classify
from memaudit.numerics.envelope import (
    LOUDER,
    SIGNAL_OVER_FLOOR,
    noise_floor,
)
from memaudit.numerics.lifetimes import half_life_of, horizon_of
from memaudit.numerics.memory import Supremum

if TYPE_CHECKING:
    from memaudit.contracts import AbstractQuery, Setting

#: A memoryless model reads at most a few roundings; between this and signal lies what is open.
SILENCE_OVER_FLOOR = 3.0
#: In numbers this coarse a real memory may be one rounding: only nothing at all is silence.
COARSE = 5e-4
#: Basis readings are kept for the linear supremum up to this many numbers (256 MB).
MOST_BASIS_NUMBERS = 2**25


@dataclass(slots=True)
class Tally:
    """The readings of one query; chunks of probes are added as they come in.

    `hidden` holds a tally of the same query for every layer whose hidden state is heard.
    """

    query: AbstractQuery
    lags: torch.Tensor
    normalization: str
    rounding: float
    sweep: int
    values: list[torch.Tensor] = field(default_factory=list)
    floors: list[torch.Tensor] = field(default_factory=list)
    amplitudes: list[torch.Tensor] = field(default_factory=list)
    basis: list[torch.Tensor] = field(default_factory=list)
    drift: float = 0.0
    noise: float = 0.0
    linear: bool = True
    refuted: bool = False
    hidden: dict[str, Tally] = field(default_factory=dict)

    def add(
        self,
        x: torch.Tensor,
        amplitude: torch.Tensor,
        readings: torch.Tensor,
        *,
        loudest: torch.Tensor,
        noise: float,
        drift: torch.Tensor | None,
    ) -> None:
        """Take in a chunk: readings (P,n,M), largest |answer|, last step before lag 0."""
        norm = memory.normalizer(x, self.normalization)
        self.values.append((memory.magnitude(readings, self.normalization) / norm[:, None]).cpu())
        size = noise + self.rounding * loudest
        size = size * memory.rounded_outputs(readings.shape[-1], self.normalization)
        self.floors.append((size / norm).cpu())
        self.amplitudes.append(amplitude.cpu())
        self.noise = max(self.noise, float((noise / norm).amax()))
        if drift is not None:
            self.drift = max(self.drift, float(torch.nan_to_num(drift / norm).amax()))
        self._superpose(x, readings, loudest)

    def mark(self) -> dict[str, Any]:
        """What is in the tally now, for `rewind`."""
        held = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "hidden"}
        mark = {k: list(v) if isinstance(v, list) else v for k, v in held.items()}
        return mark | {"hidden": {name: inner.mark() for name, inner in self.hidden.items()}}

    def rewind(self, mark: dict[str, Any]) -> None:
        """Forget what was added since the mark: that chunk failed half-way."""
        for name, value in mark.items():
            if name != "hidden":
                setattr(self, name, value)
        for name, inner in self.hidden.items():
            inner.rewind(mark["hidden"][name])

    def _superpose(self, x: torch.Tensor, readings: torch.Tensor, loudest: torch.Tensor) -> None:
        have = sum(len(block) for block in self.basis)
        missing = min(self.sweep - have, len(readings))
        if missing > 0:
            size = x[:missing].abs().amax(-1)[:, None, None]
            self.basis.append((readings[:missing] / size).cpu())
        self.linear &= self.sweep > 0 and self.rounding <= memory.COARSEST_LINEAR
        if not self.linear or have + max(missing, 0) < self.sweep:
            return
        rest, basis = readings[max(missing, 0) :], torch.cat(self.basis)
        self.basis = [basis]
        if basis.numel() > MOST_BASIS_NUMBERS:
            self.linear = False
        elif len(rest):
            rest = rest.cpu()
            off = memory.superposition_residual(rest, x[max(missing, 0) :].cpu(), basis)
            many = memory.LINEAR_ROUNDINGS + float(self.lags[-1])
            rounding = many * self.rounding * loudest[max(missing, 0) :].cpu()
            heard = rest[:, self.query.first_lag :].abs().flatten(1).amax(1)
            limit = torch.minimum(rounding, memory.LINEAR_SHARE * heard)
            # Where memory itself is no more than rounding there is nothing to superpose.
            silent = heard <= SIGNAL_OVER_FLOOR * self.rounding * loudest[max(missing, 0) :].cpu()
            self.linear = bool(((off <= limit) | (silent & (off <= rounding))).all())
            self.refuted = not self.linear

    def settled(self, epsilon: float) -> bool:
        """Whether the last step of the prefix was small beside the readings after it."""
        if not self.values:
            return True
        largest = float(torch.nan_to_num(torch.cat(self.values), posinf=0.0).amax())
        return self.drift <= epsilon * largest

    def curve(self, *, epsilon: float, prefix: int, interrupted: bool, unsettled: bool) -> Curve:
        """The curve over all probes heard, and the verdict on it."""
        values, floors = torch.cat(self.values), torch.cat(self.floors)
        finite = torch.isfinite(values).all(0)
        end = len(finite) if bool(finite.all()) else int(torch.argmin(finite.int()))
        floors = torch.nan_to_num(floors, nan=0.0, posinf=0.0)
        exact = self._exact(end)
        if end == 0:
            top = Supremum(values[0, :0], values[0, :0], 0.0)
        elif exact:
            top = memory.linear_supremum(self.basis[0][:, :end], floors[: self.sweep])
        else:
            top = memory.supremum(values[:, :end], floors)
        amplitudes = torch.cat(self.amplitudes)
        edge = not exact and memory.at_edge(values[:, :end], amplitudes, floors)
        status = _status(end < len(finite), interrupted=interrupted, unsettled=unsettled)
        lags = self.lags[:end].numpy()
        return judged(
            Curve(
                query=self.query.name,
                normalization=self.normalization,
                lags=lags,
                values=top.values.numpy(),
                median=top.median.numpy(),
                floor=self._floor(top, values[:, :end], amplitudes) if end else 0.0,
                status=status,
                decay=Decay("undetermined"),
                horizon=None,
                half_life=None,
                epsilon=epsilon,
                probes=len(values),
                exact=exact,
                at_edge=edge,
                noise=self.noise,
                holder=None if top.holder is None else float(amplitudes[top.holder]),
                prefix=prefix or None,
            ),
            first=self.query.first_lag,
            silence=0.0 if self.rounding > COARSE else SILENCE_OVER_FLOOR * top.floor,
        )

    def _floor(self, top: Supremum, values: torch.Tensor, amplitudes: torch.Tensor) -> float:
        """The floor of the curve, with what probes louder than its holder read."""
        louder = None
        if top.holder is not None:
            rows = values[amplitudes >= LOUDER * amplitudes[top.holder]]
            louder = rows.amax(0).numpy() if len(rows) else None
        first = self.query.first_lag
        later = None if louder is None else louder[first:]
        return noise_floor(top.values.numpy()[first:], top.floor, self.rounding, later)

    def _exact(self, end: int) -> bool:
        swept = sum(len(block) for block in self.basis) == self.sweep > 0
        worst_output = self.normalization in ("iatn", "stablessm")
        # A query with a form for linear models is exact in that form only.
        formed = self.query == self.query.on_linear()
        return end > 0 and swept and self.linear and worst_output and formed


def unmeasured(query: str, setting: Setting, status: Status = Status.TOO_SHORT) -> Curve:
    """A curve without a value, with the reason."""
    nothing = np.zeros(0)
    return Curve(
        query=query,
        normalization=setting.normalization,
        lags=nothing.astype(np.int64),
        values=nothing,
        median=nothing,
        floor=0.0,
        status=status,
        decay=Decay("undetermined"),
        horizon=None,
        half_life=None,
        epsilon=setting.epsilon,
        probes=0,
        exact=False,
        at_edge=False,
    )


def _status(diverged: bool, *, interrupted: bool, unsettled: bool) -> Status:
    if diverged:
        return Status.DIVERGED
    if interrupted:
        return Status.INTERRUPTED
    return Status.UNSETTLED if unsettled else Status.OK


def judged(curve: Curve, *, first: int, silence: float) -> Curve:
    """The curve with its decay, horizon, half-life, and a status where nothing was heard."""
    memory_part = curve.lags >= first
    lags, values = curve.lags[memory_part], curve.values[memory_part]
    if len(lags) == 0:
        return curve
    decay = classify(lags, values, curve.floor)
    status = curve.status
    if decay.kind == "memoryless" and (values > silence).any():
        # Something stands above the rounding, if not far enough: that is not silence.
        decay = replace(decay, kind="undetermined", confidence=0.0)
        status = Status.TOO_FEW_LAGS if status is Status.OK else status
    heard = values > SIGNAL_OVER_FLOOR * curve.floor
    if status is Status.OK and decay.kind == "memoryless":
        status = Status.BELOW_FLOOR
    elif status is Status.OK and decay.kind == "undetermined" and heard.sum() < FEWEST_LAGS:
        status = Status.TOO_FEW_LAGS
    return replace(
        curve,
        status=status,
        decay=decay,
        horizon=horizon_of(decay, lags, values, floor=curve.floor, epsilon=curve.epsilon),
        half_life=half_life_of(decay, lags, values, floor=curve.floor),
    )
