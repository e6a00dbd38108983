"""What is watched while a model trains, whoever trains it."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from memaudit.errors import ArgumentError, MemauditError, clean
from memaudit.retrofitting.checking import nothing_recurrent
from memaudit.training.drift import Drift
from memaudit.training.groups import undecayed_recurrent
from memaudit.training.horizon import quick_horizon
from memaudit.training.reading import Reading, extreme
from memaudit.training.recurrent_weights import recurrent_weights
from memaudit.training.stopping import StopConditions, stop_conditions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import torch
    from torch import nn

#: Lags of a quick horizon.
WINDOW = 128


@dataclass(frozen=True, slots=True)
class Watch:
    """How often what is measured, and when a run is stopped.

    `every` steps the weights are read, None leaves that to the trainer. The horizon takes a scan
    of `window` lags every `horizon_every` steps; None switches it off.
    """

    every: int | None
    horizon_every: int | None
    window: int
    stop_on: StopConditions
    audible: Callable[[nn.Module], Any] | None


def make_watch(
    *,
    every: int | None,
    horizon_every: int | None,
    window: int,
    stop_on: Sequence[str] | str,
    audible: Callable[[nn.Module], Any] | None,
) -> Watch:
    """The options of a callback, checked."""
    whole = {"every": every, "horizon_every": horizon_every, "window": window}
    for name, value in whole.items():
        if value is not None and (isinstance(value, bool) or value < 1):
            raise ArgumentError(f"{name} is {value}", hint="give a whole number from 1 on")
    return Watch(every, horizon_every, window, stop_conditions(stop_on), audible)


class Monitor:
    """Reads the recurrent weights of one model during one run."""

    def __init__(self, model: nn.Module, watch: Watch) -> None:
        self._model = model
        self._watch = watch
        self._weights = recurrent_weights(model)
        if not self._weights:
            raise nothing_recurrent(model)
        self._drift = Drift()
        self._silent = watch.horizon_every is None
        self._ratios: dict[str, float] = {}
        self._finite = True

    def due(self, step: int, every: int) -> bool:
        """Whether something is to be measured after that many steps."""
        return step % (self._watch.every or every) == 0 or self._horizon_due(step)

    def before_step(self) -> None:
        """Look at the gradients, which the optimizer is about to use."""
        told = [(w.layer, w.gradient_over_weight()) for w in self._weights]
        self._ratios = _by_layer(told, max)
        self._finite = all(w.finite() for w in self._weights)

    def after_step(self, step: int, *, first: bool = False) -> tuple[Reading, str]:
        """What is to be logged, and the reason to stop or nothing; warns of drift once each."""
        reading = Reading(
            step=step,
            ratios=self._ratios,
            margins=_by_layer([(w.layer, w.margin()) for w in self._weights], min),
            horizon=self._horizon() if first or self._horizon_due(step) else None,
            window=self._watch.window,
            finite=self._finite and all(w.finite() for w in self._weights),
        )
        alarms = self._drift.alarms(reading)
        for alarm in alarms:
            warnings.warn(f"memaudit: {alarm}", UserWarning, stacklevel=2)
        return reading, self._watch.stop_on.reason(reading, alarms)

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
        every = self._watch.horizon_every
        return every is not None and step % every == 0

    def _horizon(self) -> float | None:
        if self._silent:
            return None
        try:
            watch = self._watch
            return quick_horizon(self._model, window=watch.window, audible=watch.audible)
        except MemauditError as error:
            self._silent = True
            warnings.warn(
                f"memaudit: no memory horizon is measured: {clean(error.fact)}",
                UserWarning,
                stacklevel=2,
            )
            return None


def _by_layer(
    told: Iterable[tuple[str, float | None]], which: Callable[[Iterable[float]], float]
) -> dict[str, float]:
    """One number for every layer, which may have several weights."""
    found: dict[str, list[float]] = {}
    for layer, value in told:
        if value is not None:
            found.setdefault(layer, []).append(value)
    return {layer: extreme(values, which) for layer, values in found.items()}
