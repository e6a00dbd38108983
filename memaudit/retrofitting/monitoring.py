"""Training of retrofitted models: parameter groups, and what is measured during a run."""

from __future__ import annotations

import math
import random
import re
import warnings
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from memaudit.audit import load, scan
from memaudit.devices import random_state_kept
from memaudit.errors import ArgumentError, MemauditError, SourceError, clean, nearest
from memaudit.interfaces import DiagonalDecay, NoDecay, Status
from memaudit.modes import margin as smallest_margin
from memaudit.modes import place_of
from memaudit.retrofitting.finding import find_decays
from memaudit.retrofitting.model import nothing_recurrent
from memaudit.retrofitting.weights import BEHIND, numbers_of, weight_of
from memaudit.subjects.jacobian import resting_modes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from memaudit.interfaces import AbstractSubject, DenseDecay

    Decay = DiagonalDecay | DenseDecay


#: Weights that transformers does not decay either: biases, and the scales of norms.
UNDECAYED = re.compile(r"bias|layernorm|rmsnorm|(?:^|[._])norm(?:$|[._])", re.IGNORECASE)


def parameter_groups(
    model: nn.Module, *, weight_decay: float, lr: float | None = None
) -> list[dict[str, Any]]:
    """The parameters of a model in up to three groups, for any optimizer of torch.

    `decayed` has the weight decay; `undecayed`, biases and norms, has none; nor has `recurrent`:
    the raw weights of retrofitted layers, and rates that a model stores one by one, such as
    A_log. `lr` is the learning rate of that group alone. Raw weights are no sizes: to pull them
    to zero is to pull the modes to wherever the form has its middle.
    """
    if not weight_decay >= 0.0:
        raise ArgumentError(f"weight_decay is {weight_decay}", hint="give a number from 0 on")
    recurrent = undecayed_recurrent(model)
    named = {"decayed": [], "undecayed": [], "recurrent": []}
    scales = {id(p) for p in _scales(model)}
    for name, weight in model.named_parameters():
        if not weight.requires_grad:
            continue
        if id(weight) in recurrent:
            named["recurrent"].append(weight)
        elif id(weight) in scales or UNDECAYED.search(name):
            named["undecayed"].append(weight)
        else:
            named["decayed"].append(weight)
    groups = [
        {"params": params, "weight_decay": weight_decay if name == "decayed" else 0.0, "name": name}
        for name, params in named.items()
        if params
    ]
    for group in groups:
        if lr is not None and group["name"] == "recurrent":
            group["lr"] = lr
    return groups


def undecayed_recurrent(model: nn.Module) -> set[int]:
    """The ids of the parameters that weight decay would move for no good reason.

    A plain recurrent matrix is none: to decay it is to make its modes faster. A rate that is
    stored as it is would decay to the boundary.
    """
    return {
        id(raw)
        for decay in recurrent_weights(model)
        if is_retrofitted(decay) or isinstance(decay, DiagonalDecay)
        for raw in raws(decay)
    }


def _scales(model: nn.Module) -> Iterator[nn.Parameter]:
    for part in model.modules():
        if isinstance(part, nn.LayerNorm):
            yield from part.parameters(recurse=False)


#: Raw numbers below this part of their root mean square are as good as zero.
SMALL_NUMBER = 1e-3
#: Weights that are all zero do not divide by zero.
TINY = torch.finfo(torch.float64).tiny


def recurrent_weights(model: nn.Module) -> tuple[Decay, ...]:
    """The stored weights of a model that make modes, in the order of its layers."""
    return tuple(d for d in find_decays({"": model}) if not isinstance(d, NoDecay))


def is_retrofitted(decay: Decay) -> bool:
    """Whether the weight stands behind a form."""
    return weight_of(decay.owner, decay.name) is not None


def raws(decay: Decay) -> list[nn.Parameter]:
    """What is trained in the place of a weight: its raw weights, or itself."""
    if not is_retrofitted(decay):
        return [decay.owner.get_parameter(decay.name)]
    return list(decay.owner.get_submodule(f"{BEHIND}.{decay.name}").parameters())


class Margins:
    """The margins of a model as the spectrum of a report has them, by the names of its layers.

    `source_of` makes of the model what memaudit can open, where that is not the model itself. A
    subject that reads the model's own weights is opened once, one that copies them every time.
    """

    def __init__(
        self, model: nn.Module, source_of: Callable[[nn.Module], Any] | None = None
    ) -> None:
        self._model = model
        self._source_of = source_of
        self._subject: AbstractSubject | None = None

    def read(self) -> dict[str, float]:
        """Layer → the smallest 1 - |eigenvalue| of one step at rest, negative beyond the edge."""
        with _undisturbed(self._model):
            subject = self._subject or self._opened()
            return {
                place_of(layer, part): smallest_margin(modes)
                for part, inside in (dict(subject.parts()) or {"": subject}).items()
                for layer, modes in resting_modes(inside, moving=True).items()
            }

    def _opened(self) -> AbstractSubject:
        source = self._model if self._source_of is None else self._source_of(self._model)
        subject = load(source)
        if any(module is self._model for module in subject.live_modules().values()):
            self._subject = subject
        return subject


def gradient_over_weight(decay: Decay) -> float | None:
    """The largest |gradient| / |w| of the raw numbers w; None without a gradient.

    Numbers that happen to be near zero, such as the logarithm of a rate of one, count as a
    thousandth of the typical one: their own ratio tells nothing.
    """
    makers = raws(decay)[0]  # the others turn modes, or are gates
    if makers.grad is None:
        return None
    part = decay.part if isinstance(decay, DiagonalDecay) else "all"
    weight = numbers_of(makers.detach(), part).abs().double()
    slope = numbers_of(makers.grad.detach(), part).abs().double()
    least = SMALL_NUMBER * weight.square().mean().sqrt()
    return float((slope / weight.clamp(min=max(float(least), TINY))).amax())


def is_finite(decay: Decay) -> bool:
    """Whether the raw weights and their gradients are numbers."""
    own = raws(decay)
    all_numbers = [*own, *(raw.grad for raw in own if raw.grad is not None)]
    return all(bool(torch.isfinite(one.detach()).all()) for one in all_numbers)


PREFIX = "memaudit/"
#: The measured quantities, by the names that are logged and that a run can be stopped on.
QUANTITIES = ("gradient_over_weight", "margin", "horizon")


@dataclass(frozen=True, slots=True)
class Reading:
    """The numbers of one step.

    `ratios` are the largest |gradient| / |w| of the raw recurrent weights by layer, `margins` the
    distances of the slowest modes to the boundary, min(1 - |lambda|) of one step at rest; layers
    have the names that they have in a report. `horizon` is the memory horizon in steps, infinite
    when it lies beyond the `window` that was measured, None when it was not.
    `finite` is False when a raw weight or its gradient is no number any more.
    """

    step: int
    ratios: dict[str, float] = field(default_factory=dict)
    margins: dict[str, float] = field(default_factory=dict)
    horizon: float | None = None
    window: int = 0
    finite: bool = True

    def value(self, name: str) -> float | None:
        """The quantity of the whole model: the largest ratio, the smallest margin, the horizon."""
        if name == "gradient_over_weight":
            return extreme(self.ratios.values(), max) if self.ratios else None
        if name == "margin":
            return extreme(self.margins.values(), min) if self.margins else None
        return self.horizon

    def logs(self) -> dict[str, float]:
        """The numbers by the names that are logged, those of the layers behind a slash.

        A horizon beyond the window is no number: the window is logged as `horizon_beyond`.
        """
        logged: dict[str, float] = {}
        for name, layers in (("gradient_over_weight", self.ratios), ("margin", self.margins)):
            whole = self.value(name)
            if whole is not None:
                logged[PREFIX + name] = whole
                logged |= {f"{PREFIX}{name}/{layer}": value for layer, value in layers.items()}
        if self.horizon is not None:
            beyond = math.isinf(self.horizon)
            name = "horizon_beyond" if beyond else "horizon"
            logged[PREFIX + name] = float(self.window) if beyond else self.horizon
        return logged


def extreme(values: Iterable[float], which: Callable[[Iterable[float]], float]) -> float:
    """The largest, or the smallest; one that is no number does not hide behind the others."""
    known = list(values)
    return math.nan if any(math.isnan(value) for value in known) else which(known)


#: The margin is alarming at this part of the first one: the slowest mode is ten times slower.
LEAST_MARGIN = 0.1
#: The horizon is alarming below this part of the first one.
LEAST_HORIZON = 0.8
#: The gradient over weight is alarming at this multiple of the first one.
MOST_RATIO = 100.0


class Drift:
    """Remembers the first value of every quantity, and gives each alarm once."""

    def __init__(self) -> None:
        self._first: dict[str, float] = {}
        self._reported: set[str] = set()

    def alarms(self, reading: Reading) -> list[str]:
        """Sentences about what has drifted since the first reading and was not reported before."""
        found = {
            "margin": self._margin(reading.value("margin")),
            "horizon": self._horizon(reading),
            "gradient_over_weight": self._ratio(reading.value("gradient_over_weight")),
            "nonfinite": "" if reading.finite else _NONFINITE,
        }
        new = {name: said for name, said in found.items() if said and name not in self._reported}
        self._reported |= set(new)
        return [f"step {reading.step}: {said}" for said in new.values()]

    def _margin(self, value: float | None) -> str:
        if value is None or math.isnan(value):
            return ""
        if value <= 0.0:
            return (
                f"the slowest mode is on or behind the boundary of stability (margin {value:.3g})"
            )
        first = self._first.setdefault("margin", value)
        if value >= LEAST_MARGIN * first:
            return ""
        return f"the distance to the boundary of stability fell from {first:.3g} to {value:.3g}"

    def _horizon(self, reading: Reading) -> str:
        if reading.horizon is None:
            return ""
        # Beyond the window the horizon is at least as long as the window.
        value = min(reading.horizon, float(reading.window))
        first = self._first.setdefault("horizon", value)
        if value >= LEAST_HORIZON * first:
            return ""
        return f"the memory horizon fell from {first:g} to {value:g} steps"

    def _ratio(self, value: float | None) -> str:
        if value is None or not math.isfinite(value):
            return ""
        first = self._first.setdefault("gradient_over_weight", value)
        if value <= MOST_RATIO * first or first == 0.0:
            return ""
        return f"the largest gradient over weight rose from {first:.3g} to {value:.3g}"


_NONFINITE = "a recurrent weight or its gradient is no number any more"


NONFINITE = "nonfinite"
DRIFT = "drift"
_COMPARISON = re.compile(r"\s*(?P<name>\w+)\s*(?P<way>[<>])\s*(?P<limit>[-+.\w]+)\s*")


@dataclass(frozen=True, slots=True)
class StopConditions:
    """When a run is stopped: limits as (quantity, `<` or `>`, number), `nonfinite` and `drift`."""

    limits: tuple[tuple[str, str, float], ...] = ()
    names: frozenset[str] = frozenset()

    def reason(self, reading: Reading, drifts: Sequence[str]) -> str:
        """Why the run should stop, or nothing."""
        if NONFINITE in self.names and not reading.finite:
            return _NONFINITE
        for name, way, limit in self.limits:
            value = reading.value(name)
            if value is None or math.isnan(value):
                continue
            if value < limit if way == "<" else value > limit:
                which = "below" if way == "<" else "above"
                return f"{name} is {value:.4g}, {which} {limit:g}"
        return drifts[0] if DRIFT in self.names and drifts else ""


def stop_conditions(words: Sequence[str] | str) -> StopConditions:
    """The conditions that the words spell, such as `margin<1e-5` and `nonfinite`."""
    limits, names = [], set()
    for word in [words] if isinstance(words, str) else words:
        if word in (NONFINITE, DRIFT):
            names.add(word)
            continue
        found = _COMPARISON.fullmatch(word)
        if found is None:
            raise ArgumentError(
                f"stop_on has {clean(word)!r}",
                hint=f"write margin<1e-5, or one of: {NONFINITE}, {DRIFT}",
            )
        if found["name"] not in QUANTITIES:
            raise ArgumentError(
                f"nothing called {clean(found['name'])!r} is measured",
                hint=nearest(found["name"], QUANTITIES),
            )
        try:
            limits.append((found["name"], found["way"], float(found["limit"])))
        except ValueError:
            raise ArgumentError(
                f"stop_on has {clean(word)!r}", hint="behind < or > stands a number, such as 1e-5"
            ) from None
    return StopConditions(tuple(limits), frozenset(names))


#: The query that is asked: it takes one pass.
QUERY = "heaviside"
#: A curve may be too short for a verdict and still show where memory ends.
TELLING = (Status.OK, Status.TOO_FEW_LAGS)


def quick_horizon(
    model: nn.Module, *, window: int, source_of: Callable[[nn.Module], Any] | None = None
) -> float:
    """The horizon of the model as it is, in steps; infinite beyond the window.

    `source_of` makes of the model what memaudit can scan, where that is not the model itself.
    """
    with _undisturbed(model):
        source = model if source_of is None else source_of(model)
        report = scan(source, horizon=window, queries=[QUERY], probes=[], level="quick")
    curve = report.memory.get(QUERY)
    if curve is not None and curve.status is Status.BELOW_FLOOR:
        return 0.0
    if curve is None or curve.status not in TELLING:
        error = report.errors[0]["message"] if report.errors else ""
        reason = error or (str(curve.status) if curve else str(Status.NOT_MEASURED))
        raise SourceError("E_UNSUPPORTED", reason, stage="training")
    return math.inf if curve.horizon is None else float(curve.horizon)


@contextmanager
def _undisturbed(model: nn.Module) -> Iterator[None]:
    """Without dropout and gradients; then every part trains as before, with the same dice."""
    modes = [(part, part.training) for part in model.modules()]
    dice = random.getstate(), np.random.get_state()
    with random_state_kept(model.parameters()), torch.no_grad():
        model.eval()
        try:
            yield
        finally:
            for part, training in modes:
                part.training = training
            random.setstate(dice[0])
            np.random.set_state(dice[1])


#: Lags of a quick horizon.
WINDOW = 128


@dataclass(frozen=True, slots=True)
class MonitorOptions:
    """How often what is measured, and when a run is stopped.

    `every` steps the weights are read, None leaves that to the trainer. The horizon takes a scan
    of `window` lags every `horizon_every` steps; None switches it off. `source_of` makes of the
    model what memaudit can scan, where that is not the model itself.
    """

    every: int | None = None
    horizon_every: int | None = 500
    window: int = WINDOW
    stop_on: Sequence[str] | str = (NONFINITE,)
    source_of: Callable[[nn.Module], Any] | None = None

    def __post_init__(self) -> None:
        for name in ("every", "horizon_every", "window"):
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or value < 1):
                raise ArgumentError(f"{name} is {value}", hint="give a whole number from 1 on")
        stop_conditions(self.stop_on)


class Monitor:
    """Reads the recurrent weights of one model during one run."""

    def __init__(self, model: nn.Module, options: MonitorOptions) -> None:
        self._model = model
        self._options = options
        self._stop_on = stop_conditions(options.stop_on)
        self._weights = recurrent_weights(model)
        if not self._weights:
            raise nothing_recurrent(model)
        self._drift = Drift()
        self._no_horizon = options.horizon_every is None
        self._margins: Margins | None = Margins(model, options.source_of)
        self._ratios: dict[str, float] = {}
        self._finite = True

    def due(self, step: int, every: int) -> bool:
        """Whether something is to be measured after that many steps."""
        return step % (self._options.every or every) == 0 or self._horizon_due(step)

    def before_step(self) -> None:
        """Look at the gradients, which the optimizer is about to use."""
        ratios = [(w.layer, gradient_over_weight(w)) for w in self._weights]
        self._ratios = _by_layer(ratios, max)
        self._finite = all(is_finite(w) for w in self._weights)

    def after_step(self, step: int, *, first: bool = False) -> tuple[Reading, str]:
        """What is to be logged, and the reason to stop or nothing; warns of drift once each."""
        finite = self._finite and all(is_finite(w) for w in self._weights)
        margins = self._read_margins() if finite else {}
        reading = Reading(
            step=step,
            ratios={_reported(layer, margins): ratio for layer, ratio in self._ratios.items()},
            margins=margins,
            horizon=self._horizon() if first or self._horizon_due(step) else None,
            window=self._options.window,
            finite=finite,
        )
        alarms = self._drift.alarms(reading)
        for alarm in alarms:
            warnings.warn(f"memaudit: {alarm}", UserWarning, stacklevel=2)
        return reading, self._stop_on.reason(reading, alarms)

    def check_decay(self, optimizer: torch.optim.Optimizer) -> None:
        """Warn of an optimizer that decays what makes the modes."""
        recurrent = undecayed_recurrent(self._model)
        held = [(id(p), g) for g in optimizer.param_groups for p in g["params"]]
        if any(key in recurrent and group.get("weight_decay") for key, group in held):
            warnings.warn(
                "memaudit: the optimizer decays recurrent weights, which moves the modes of the "
                "model; build it with memaudit.training.parameter_groups",
                UserWarning,
                stacklevel=2,
            )

    def _horizon_due(self, step: int) -> bool:
        every = self._options.horizon_every
        return every is not None and step % every == 0

    def _read_margins(self) -> dict[str, float]:
        if self._margins is None:
            return {}
        try:
            return self._margins.read()
        except MemauditError as error:
            self._margins = None
            warnings.warn(
                f"memaudit: no margin is measured: {clean(error.fact)}", UserWarning, stacklevel=2
            )
            return {}

    def _horizon(self) -> float | None:
        if self._no_horizon:
            return None
        try:
            window, source_of = self._options.window, self._options.source_of
            return quick_horizon(self._model, window=window, source_of=source_of)
        except MemauditError as error:
            self._no_horizon = True
            warnings.warn(
                f"memaudit: no memory horizon is measured: {clean(error.fact)}",
                UserWarning,
                stacklevel=2,
            )
            return None


def _reported(layer: str, places: Iterable[str]) -> str:
    """The name in a report of a layer that is known by its path in the module."""
    return next((place for place in places if f".{layer}".endswith(f".{place}")), layer)


def _by_layer(
    found: Iterable[tuple[str, float | None]], which: Callable[[Iterable[float]], float]
) -> dict[str, float]:
    """One number for every layer, which may have several weights."""
    by_layer: dict[str, list[float]] = {}
    for layer, value in found:
        if value is not None:
            by_layer.setdefault(layer, []).append(value)
    return {layer: extreme(values, which) for layer, values in by_layer.items()}


class MonitoringCallback:
    """What the callbacks of both trainers have in common: their options, and the run monitored."""

    def __init__(
        self,
        *,
        every: int | None = None,
        horizon_every: int | None = 500,
        window: int = WINDOW,
        stop_on: Sequence[str] | str = (NONFINITE,),
        source_of: Callable[[nn.Module], Any] | None = None,
    ) -> None:
        super().__init__()
        self._options = MonitorOptions(every, horizon_every, window, stop_on, source_of)
        self._monitor: Monitor | None = None
        self.stopped = ""

    def _begin(self, model: nn.Module, optimizers: Iterable[torch.optim.Optimizer]) -> None:
        self.stopped = ""
        self._monitor = Monitor(model, self._options)
        for optimizer in optimizers:
            self._monitor.check_decay(optimizer)

    def _due(self, step: int, logging_steps: float | None) -> bool:
        every = max(int(logging_steps or 1), 1)
        return self._monitor is not None and self._monitor.due(step, every)

    def _measure(self, step: int, *, first: bool = False) -> dict[str, float]:
        """The numbers to log; `stopped` says why the run is to end, if it is."""
        assert self._monitor is not None
        reading, reason = self._monitor.after_step(step, first=first)
        if reason:
            self.stopped = f"step {step}: {reason}"
            warnings.warn(f"memaudit: the run is stopped at {self.stopped}", stacklevel=2)
        return reading.logs()


def warn_of_missing_raw_weights() -> None:
    """Warn that a checkpoint of a retrofitted model was saved without the raw weights."""
    warnings.warn(
        "memaudit: the checkpoint has no raw weights of this model: they were made from the plain "
        "ones, and the optimizer's averages may not belong to them",
        UserWarning,
        stacklevel=3,
    )
