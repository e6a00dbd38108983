"""What the probes of one query read at every lag, and the curve that follows from it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from memaudit.interfaces import Status
from memaudit.memory.curve import RULE_OF_THREE, UNKNOWABLE, AtSize, Curve, HorizonStatus
from memaudit.memory.driven import CHAOTIC_SHARE
from memaudit.numerics.decay import (
    FEWEST_LAGS,
    LOUDER,
    SIGNAL_OVER_FLOOR,
    Decay,
    classify,
    half_life_of,
    horizon_lag,
    horizon_of,
    noise_floor,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from memaudit.interfaces import AbstractQuery, AbstractTrialQuery, Setting, TrialReadings

#: Probes within this factor of the supremum count as attaining it; the one of least floor counts.
TIE = 1 - 1e-6
#: The supremum sits at the edge when the outermost amplitudes exceed the others by this much.
EDGE_EXCESS = 1.05
#: Superposition holds up to this many roundings of the largest answer, one more for every step
#: that may have added one, and up to this share of the largest reading: a small nonlinear memory
#: must not hide behind a large present answer.
LINEAR_ROUNDINGS, LINEAR_SHARE = 100.0, 1e-3
#: With coarser numbers than this, superposition proves nothing.
COARSEST_LINEAR = 1e-5
#: Resamples of a bootstrap, and how many trials in a row are drawn together.
RESAMPLES, BLOCK = 500, 6
#: Lags that are resampled together.
STRETCH = 512
#: A memoryless model reads at most a few roundings; between this and signal lies what is open.
NOTHING_OVER_FLOOR = 3.0
#: In numbers this coarse a real memory may be one rounding: only exact zeros are no memory.
COARSE = 5e-4
#: Noise beyond this share of the answers may hide a memory: nothing above it is not no memory.
FAR_BELOW = 1e-3
#: A memory that ends where fewer of the trials show it may only be rarer than they are.
MOST_TRIALS = 0.5
#: Basis readings are kept for the linear supremum up to this many numbers (256 MB).
MOST_BASIS_NUMBERS = 2**25


# From signed readings to values


def normalizer(x: torch.Tensor, normalization: str) -> torch.Tensor:
    """What a reading for the probe x (P,D) is divided by."""
    size = x.abs().amax(-1)
    if normalization == "iatn":
        return size
    return size + 1 if normalization == "stablessm" else torch.ones_like(size)


def magnitude(readings: torch.Tensor, normalization: str) -> torch.Tensor:
    """Size of vector readings (P,n,M) as (P,n): the worst output, or the Euclidean norm."""
    if normalization in ("iatn", "stablessm"):
        low, high = readings.aminmax(dim=-1)  # no copy of the readings, unlike abs().amax()
        return torch.maximum(-low, high)
    return torch.linalg.vector_norm(readings, dim=-1)


def rounded_outputs(outputs: int, normalization: str) -> float:
    """How many times one output's rounding the `magnitude` of that many rounded outputs can be."""
    return 1.0 if normalization in ("iatn", "stablessm") else math.sqrt(outputs)


@dataclass(frozen=True, slots=True)
class Supremum:
    """The largest value over probes at every lag, its floor, and the median over probes.

    `holder` is the probe that attains it at the last lag above the floor.
    """

    values: torch.Tensor
    median: torch.Tensor
    floor: float
    holder: int | None = None


def supremum(values: torch.Tensor, floors: torch.Tensor) -> Supremum:
    """Largest of the values (P,n) that stand out of their own floor (P,).

    A probe of small amplitude has a high floor, because the answer is divided by a small norm;
    its noise must not hide what larger probes still show. Where none stands out the probe of the
    lowest floor counts. The floor of the result is the highest among the probes that attain it:
    below, the supremum is not known.
    """
    visible = values > SIGNAL_OVER_FLOOR * floors[:, None]
    seen = torch.where(visible, values, torch.zeros_like(values))
    top = seen.amax(0)
    attains = visible & (seen >= TIE * top)
    lowest = torch.where(attains, floors[:, None], torch.inf).amin(0)
    any_seen = visible.any(0)
    quiet_row = values[int(torch.argmin(floors))]
    median = values.quantile(0.5, dim=0)
    if not bool(any_seen.any()):
        return Supremum(quiet_row, median, float(floors.amin()))
    last = int(any_seen.nonzero()[-1])
    holder = int(seen[:, last].argmax())
    floor = float(lowest[any_seen].amax())
    return Supremum(torch.where(any_seen, top, quiet_row), median, floor, holder)


def linear_supremum(basis: torch.Tensor, floors: torch.Tensor) -> Supremum:
    """The exact supremum of a linear model: sum over inputs of |reading| (D,n,M).

    sup over |x|_inf <= 1 of |sum_i x_i r_i| = sum_i |r_i|, reached at x = sign(r).
    """
    total = basis.abs().sum(0).amax(-1)
    return Supremum(total, basis.abs().amax(-1).quantile(0.5, dim=0), float(floors.sum()))


def superposition_residual(
    readings: torch.Tensor, x: torch.Tensor, basis: torch.Tensor
) -> torch.Tensor:
    """Largest deviation of each reading (P,n,M) from the sum of its basis readings (D,n,M)."""
    predicted = torch.einsum("pd,dnm->pnm", x, basis)
    return (readings - predicted).abs().flatten(1).amax(1)


def at_edge(values: torch.Tensor, amplitude: torch.Tensor, floors: torch.Tensor) -> bool:
    """Whether the outermost amplitudes still raise the supremum over most of the curve."""
    outer = (amplitude == amplitude.max()) | (amplitude == amplitude.min())
    if bool(outer.all()):
        return False
    seen = torch.where(values > SIGNAL_OVER_FLOOR * floors[:, None], values, 0.0)
    inner, edge = seen[~outer].amax(0), seen[outer].amax(0)
    lags = torch.maximum(inner, edge) > 0
    if not bool(lags.any()):
        return False
    return bool((edge[lags] > EDGE_EXCESS * inner[lags]).double().mean() > 0.5)


# Queries on vectors


@dataclass(slots=True)
class Readings:
    """The readings of one query; chunks of probes are added as they come in.

    `sweep` is how many of the first probes are the basis, 0 where the model is not linear.
    `linear` is True as long as the readings superpose, `refuted` when they turned out not to.
    `hidden` holds the readings of the same query from the hidden state after every layer.
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
    sizes: list[torch.Tensor] = field(default_factory=list)
    noises: list[torch.Tensor] = field(default_factory=list)
    #: The largest noise as a share of the answers it was found in.
    noise_share: float = 0.0
    #: The share of an answer to which the model amplified a rounding of the input.
    chaos: float = 0.0
    linear: bool = True
    refuted: bool = False
    hidden: dict[str, Readings] = field(default_factory=dict)

    def add(
        self,
        x: torch.Tensor,
        amplitude: torch.Tensor,
        readings: torch.Tensor,
        *,
        largest: torch.Tensor,
        noise: torch.Tensor,
        chaos: float,
        drift: torch.Tensor | None,
    ) -> None:
        """Take in a chunk: readings (P,n,M), largest |answer|, noise, last step before lag 0."""
        self.chaos = max(self.chaos, chaos)
        norm = normalizer(x, self.normalization)
        self.values.append((magnitude(readings, self.normalization) / norm[:, None]).cpu())
        size = noise + self.rounding * largest
        size = size * rounded_outputs(readings.shape[-1], self.normalization)
        self.floors.append((size / norm).cpu())
        self.amplitudes.append(amplitude.cpu())
        self.sizes.append(x.abs().amax(-1).cpu())
        self.noises.append((noise / norm).cpu())
        shares = torch.where(largest > 0, noise / largest, torch.zeros_like(noise))
        self.noise_share = max(self.noise_share, float(shares.amax()))
        if drift is not None:
            self.drift = max(self.drift, float(torch.nan_to_num(drift / norm).amax()))
        self._superpose(x, readings, largest)

    def _superpose(self, x: torch.Tensor, readings: torch.Tensor, largest: torch.Tensor) -> None:
        """Keep the readings of the basis, and hold all others against their sums."""
        have = sum(len(block) for block in self.basis)
        missing = max(min(self.sweep - have, len(readings)), 0)
        if missing:
            size = x[:missing].abs().amax(-1)[:, None, None]
            self.basis.append((readings[:missing] / size).cpu())
        self.linear &= self.sweep > 0 and self.rounding <= COARSEST_LINEAR
        if not self.linear or have + missing < self.sweep:
            return
        rest, basis = readings[missing:], torch.cat(self.basis)
        self.basis = [basis]
        if basis.numel() > MOST_BASIS_NUMBERS:
            self.linear = False
        elif len(rest):
            rest, largest = rest.cpu(), largest[missing:].cpu()
            off = superposition_residual(rest, x[missing:].cpu(), basis)
            many = LINEAR_ROUNDINGS + float(self.lags[-1])
            rounding = many * self.rounding * largest
            past = rest[:, self.query.first_lag :].abs().flatten(1).amax(1)
            limit = torch.minimum(rounding, LINEAR_SHARE * past)
            # Where memory itself is no more than rounding there is nothing to superpose.
            empty = past <= SIGNAL_OVER_FLOOR * self.rounding * largest
            self.linear = bool(((off <= limit) | (empty & (off <= rounding))).all())
            self.refuted = not self.linear

    def snapshot(self) -> dict[str, Any]:
        """What was read so far, for `restore`."""
        held = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "hidden"}
        kept = {k: list(v) if isinstance(v, list) else v for k, v in held.items()}
        return kept | {"hidden": {name: inner.snapshot() for name, inner in self.hidden.items()}}

    def restore(self, snapshot: dict[str, Any]) -> None:
        """Drop what was added since the snapshot: that chunk failed half-way."""
        for name, value in snapshot.items():
            if name != "hidden":
                setattr(self, name, value)
        for name, inner in self.hidden.items():
            inner.restore(snapshot["hidden"][name])

    def settled(self, epsilon: float) -> bool:
        """Whether the last step of the prefix was small beside the readings after it."""
        if not self.values:
            return True
        largest = float(torch.nan_to_num(torch.cat(self.values), posinf=0.0).amax())
        return self.drift <= epsilon * largest

    def curve(self, setting: Setting, *, interrupted: bool) -> Curve:
        """The curve over all probes so far, and the verdict on it."""
        values, floors = torch.cat(self.values), torch.cat(self.floors)
        finite = torch.isfinite(values).all(0)
        end = len(finite) if bool(finite.all()) else int(torch.argmin(finite.int()))
        floors = torch.nan_to_num(floors, nan=0.0, posinf=0.0)
        exact = self._exact(end)
        if end == 0:
            top = Supremum(values[0, :0], values[0, :0], 0.0)
        elif exact:
            top = linear_supremum(self.basis[0][:, :end], floors[: self.sweep])
        else:
            top = supremum(values[:, :end], floors)
        amplitudes = torch.cat(self.amplitudes)
        status = Status.OK
        if end < len(finite):
            status = Status.DIVERGED
        elif self.chaos > CHAOTIC_SHARE:
            status = Status.CHAOTIC
        elif interrupted:
            status = Status.INTERRUPTED
        elif not self.settled(setting.epsilon):
            status = Status.UNSETTLED
        curve = Curve(
            query=self.query.name,
            normalization=self.normalization,
            lags=self.lags[:end].numpy(),
            values=top.values.numpy(),
            median=top.median.numpy(),
            floor=self._floor(top, values[:, :end], amplitudes) if end else 0.0,
            status=status,
            decay=Decay("undetermined"),
            horizon=None,
            half_life=None,
            epsilon=setting.epsilon,
            probes=len(values),
            exact=exact,
            at_edge=not exact and at_edge(values[:, :end], amplitudes, floors),
            noise=self._noise_at(top.floor, floors),
            holder=None if top.holder is None else float(torch.cat(self.sizes)[top.holder]),
            prefix=self.query.prefix(setting.horizon) or None,
        )
        judge = partial(
            judged, first=self.query.first_lag, rounding=self.rounding, noise=self.noise_share
        )
        sizes = () if exact or not end else self._by_size(curve, judge, values[:, :end], floors)
        return replace(judge(curve, floor=top.floor), sizes=sizes)

    def _by_size(
        self,
        curve: Curve,
        judge: Callable[..., Curve],
        values: torch.Tensor,
        floors: torch.Tensor,
    ) -> tuple[AtSize, ...]:
        """The verdict at every size of the inputs, the natural ones together."""
        sizes, amplitudes = torch.cat(self.sizes), torch.cat(self.amplitudes)
        natural = (sizes - amplitudes).abs() > 1e-6 * amplitudes
        groups = [~natural & (amplitudes == size) for size in amplitudes.unique()]
        found = []
        for rows in (group for group in (*groups, natural) if bool(group.any())):
            top = supremum(values[rows], floors[rows])
            floor = self._floor(top, values[rows], amplitudes[rows])
            own = replace(curve, values=top.values.numpy(), floor=floor)
            own = judge(own, floor=top.floor)
            beyond = own.last_lag if own.horizon_status is HorizonStatus.BEYOND else None
            size = float(sizes[rows].median())
            peak = float(own.memory()[1].max(initial=0.0))
            found.append(AtSize(size, peak, own.decay.kind, own.horizon, beyond))
        return tuple(sorted(found, key=lambda at: at.size))

    def _floor(self, top: Supremum, values: torch.Tensor, amplitudes: torch.Tensor) -> float:
        """The floor of the curve, with what probes larger than its holder read."""
        louder = None
        if top.holder is not None:
            rows = values[amplitudes >= LOUDER * amplitudes[top.holder]]
            louder = rows.amax(0).numpy() if len(rows) else None
        first = self.query.first_lag
        later = None if louder is None else louder[first:]
        return noise_floor(top.values.numpy()[first:], top.floor, self.rounding, later)

    def _noise_at(self, floor: float, floors: torch.Tensor) -> float:
        """The noise of the probe that the floor of the curve comes from."""
        return float(torch.cat(self.noises)[(floors - floor).abs().argmin()])

    def _exact(self, end: int) -> bool:
        swept = sum(len(block) for block in self.basis) == self.sweep > 0
        worst_output = self.normalization in ("iatn", "stablessm")
        # A query with a form for linear models is exact in that form only.
        formed = self.query == self.query.on_linear()
        return end > 0 and swept and self.linear and worst_output and formed


# Queries that read for themselves


def trial_curve(
    query: AbstractTrialQuery, readings: TrialReadings, setting: Setting, rounding: float
) -> Curve:
    """The trials joined as the query says, and the verdict on the curve.

    A mean of positive readings decays like the slowest of them; its floor is the mean floor.
    Readings with scales are divided by the mean of these, and get an interval.
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
    scale, low, high = 1.0, joined[:0], joined[:0]
    if not end:
        floor = 0.0
    elif readings.scales is not None:
        scales = readings.scales.double().cpu().numpy()
        scales = scales if scales.any() else np.ones_like(scales)
        scale, (low, high) = float(scales.mean()), _bootstrap(values, scales, setting.seed)
        joined, floor = joined / scale, floor / scale
        floor = max(floor, _rare(values, floors) / scale)
    curve = Curve(
        query=query.name,
        normalization="none",  # tokens have no size to divide by
        lags=lags,
        values=joined,
        median=np.median(values, axis=0) / scale if end else joined,
        floor=floor,
        status=readings.status if end == finite.size else Status.DIVERGED,
        decay=Decay("undetermined"),
        horizon=None,
        half_life=None,
        epsilon=setting.epsilon,
        probes=len(values),
        exact=False,
        at_edge=False,
        noise=readings.noise / scale,
        trials=readings.names,
        low=low,
        high=high,
        fed=readings.fed,
        reach=readings.reach,
        share=readings.share,
        limit=readings.limit,
        unfed=readings.unfed,
    )
    answers = (floor - curve.noise) / rounding  # the floor is noise and the rounding of answers
    noise = curve.noise / answers if answers > 0 else 0.0
    curve = judged(curve, first=query.first_lag, floor=floor, rounding=rounding, noise=noise)
    if readings.scales is not None and curve.decay.kind == "memoryless":
        # Other inputs must have no part in the answers either, wherever these vary at all.
        share, varies = curve.share, bool((readings.scales > 0).any())
        alone = share is not None and share <= SIGNAL_OVER_FLOOR * floor
        if curve.status is Status.DIVERGED or not (alone or (share is None and not varies)):
            curve = unknown(curve, Status.UNSEEN)
    if curve.horizon:  # pooled models are run at few lags
        past = curve.lags >= query.first_lag
        lags, values = curve.lags[past], curve.values[past]
        level = curve.epsilon * float(values.max())
        curve = replace(curve, horizon=horizon_lag(lags, values, level, between=True))
    return replace(curve, spread=_spread(curve, query.first_lag))


def _rare(values: np.ndarray, floors: np.ndarray) -> float:
    """The floor of readings (K,n) that only some of the trials show; 0 where most do to the end.

    Where every trial is all or nothing, as behind a threshold, the mean ends when the last one is
    over, which says how many there were, and not how long the memory is.
    """
    shown = values > SIGNAL_OVER_FLOOR * floors[:, None]
    lags = np.flatnonzero(shown.any(0))
    if not len(lags) or shown[:, lags[-1]].mean() >= MOST_TRIALS:
        return 0.0
    size = np.median(values[shown[:, lags[-1]], lags[-1]])
    return float(RULE_OF_THREE / len(values) * size / SIGNAL_OVER_FLOOR)


def _spread(curve: Curve, first: int) -> tuple[int, int | None] | None:
    """The horizons of the two ends of the interval, at the level that the horizon is read at."""
    if not len(curve.low) or curve.looked_to is None or curve.decay.kind == "growing":
        return None
    past = curve.lags >= first
    level = curve.epsilon * float(curve.values[past].max())
    if level < SIGNAL_OVER_FLOOR * curve.floor:
        return None
    ends = [
        horizon_lag(curve.lags[past], end[past], level, between=True)
        for end in (curve.low, curve.high)
    ]
    ends.append(curve.horizon)
    seen = [end for end in ends if end is not None]
    return None if not seen else (min(seen), max(seen) if len(seen) == len(ends) else None)


def _bootstrap(values: np.ndarray, scales: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """The interval of mean(values) / mean(scales) over resampled trials (K,n) and (K,).

    Trials that follow each other share a sequence, so they are drawn in blocks. Resamples of a few
    trials vary too little: n draws have (n - 1) / n of the variance, and the quantiles of a normal
    distribution where a t distribution belongs, whose 0.975 is 1.96 (1 + 1.21 / (n - 1)) or so.
    """
    count = len(values)
    block = max(1, min(BLOCK, count // 4))
    starts = np.random.default_rng(seed).integers(count, size=(RESAMPLES, -(-count // block)))
    picked = (starts[..., None] + np.arange(block)).reshape(RESAMPLES, -1) % count
    weights = np.stack([np.bincount(row, minlength=count) for row in picked]).astype(float)
    total = weights @ scales
    weights = weights[total > 0] / total[total > 0, None]
    # By stretches of lags: all resamples of a long curve would take hundreds of megabytes.
    stretches = (values[:, at : at + STRETCH] for at in range(0, values.shape[1], STRETCH))
    ends = [np.quantile(weights @ stretch, [0.025, 0.975], axis=0) for stretch in stretches]
    low, high = np.concatenate(ends, axis=1)
    wider = math.sqrt(count / (count - 1)) * (1 + 1.21 / (count - 1)) if count > 1 else 1.0
    middle = values.mean(0) / scales.mean()
    known = (low > 0) & (middle > 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        # Ratios: a curve that is a hundredth of its top has an interval of its own size.
        low, high = (np.where(known, middle * (e / middle) ** wider, e) for e in (low, high))
    return low, high


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


# The verdict


def judged(curve: Curve, *, first: int, floor: float, rounding: float, noise: float = 0.0) -> Curve:
    """The curve with its decay, horizon, half-life, and a status where there is no memory.

    `first` is the first lag that is memory, `floor` that of the probes without later corrections,
    `rounding` the relative rounding of the answers, `noise` the share of them by which two runs
    differed that should not.
    """
    nothing = 0.0 if rounding > COARSE else NOTHING_OVER_FLOOR * floor
    past = curve.lags >= first
    lags, values = curve.lags[past], curve.values[past]
    if len(lags) == 0:
        return curve
    decay = classify(lags, values, curve.floor)
    status = curve.status
    if decay.kind == "memoryless" and (values > nothing).any():
        # Something stands above the rounding, if not far enough: that is some memory.
        decay = replace(decay, kind="undetermined", confidence=0.0)
        status = Status.TOO_FEW_LAGS if status is Status.OK else status
    seen = values > SIGNAL_OVER_FLOOR * curve.floor
    if decay.kind == "memoryless" and noise > FAR_BELOW and status is not Status.CHAOTIC:
        status = Status.HIDDEN
    if status in UNKNOWABLE:
        return unknown(replace(curve, decay=decay), status)
    if status is Status.OK and decay.kind == "memoryless":
        status = Status.BELOW_FLOOR
    elif status is Status.OK and decay.kind == "undetermined" and seen.sum() < FEWEST_LAGS:
        status = Status.TOO_FEW_LAGS
    return replace(
        curve,
        status=status,
        decay=decay,
        horizon=horizon_of(decay, lags, values, floor=curve.floor, epsilon=curve.epsilon),
        half_life=half_life_of(decay, lags, values, floor=curve.floor),
    )


def unknown(curve: Curve, status: Status) -> Curve:
    """The curve without a verdict: what it shows does not say how long the memory is."""
    decay = Decay("undetermined", window=curve.decay.window)
    return replace(curve, status=status, decay=decay, horizon=None, half_life=None)
