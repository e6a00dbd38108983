"""One model in many number formats: its answers, its eigenvalues, and its memory."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import torch

from memaudit.loading.digest import digest_tensors
from memaudit.memory.running import remember
from memaudit.numerics.mode_pairs import reached, shift
from memaudit.numerics.perturbation.errors import error_norm
from memaudit.precision.result import RoundedLayer, RoundedMemory, Rounding
from memaudit.probes.perturbing_inputs import perturbing_inputs
from memaudit.probes.standing_in import standing_in
from memaudit.spectrum.jacobian import resting_modes
from memaudit.spectrum.result import margin

if TYPE_CHECKING:
    from collections.abc import Mapping

    from memaudit.contracts import AbstractSubject, Setting, Tools
    from memaudit.memory.result import Curve
    from memaudit.probes.rounded_weights import RoundedWeights

#: Numbers (weights and answers) of all copies that answer together.
TOGETHER = 2**22

Found = tuple[tuple[RoundedLayer, ...], tuple[RoundedMemory, ...]]


@dataclass(frozen=True, slots=True, eq=False)
class Seen:
    """Eigenvalues by layer and curves by query, of the weights that stood in the model."""

    modes: dict[str, np.ndarray]
    curves: Mapping[str, Curve]


@dataclass(slots=True, eq=False)
class PrecisionTrial:
    """The formats one after the other; what is known already is not measured again."""

    subject: AbstractSubject
    weights: RoundedWeights
    setting: Setting
    norm: str
    tools: Tools
    known: dict[str, Found] = field(default_factory=dict)

    def roundings(self, formats: tuple[str, ...]) -> tuple[Rounding, ...]:
        """What every format does."""
        with torch.no_grad():
            scale, errors = self._errors(formats)
        self.tools.tick(1, len(formats) + 2)
        before = None if self.weights.live is None else self._seen()
        made = []
        for number, name in enumerate(formats):
            self.tools.tick(number + 2, len(formats) + 2)
            values = self.weights.rounded(name)
            error = errors[name]
            relative = error / scale if 0 < scale < math.inf else None
            found = Rounding(name, self.weights.betas(values), error, relative)
            made.append(self._looked_at(found, values, before))
        return tuple(made)

    def _looked_at(
        self, found: Rounding, values: Mapping[str, torch.Tensor], before: Seen | None
    ) -> Rounding:
        """With what happens to eigenvalues and memory while the rounded weights stand there."""
        lost = self.weights.overflows(values)
        if lost:
            many = "1 number overflows" if lost == 1 else f"{lost} numbers overflow"
            return replace(found, note=f"{many}; eigenvalues and memory were not measured")
        if before is None or self.weights.live is None:
            return found
        key = digest_tensors(values)
        if key not in self.known:
            after = before
            if found.betas["max-abs"] > 0:
                with standing_in(self.weights.live, values):
                    after = self._seen()
            self.known[key] = _layers(before, after), _memory(before, after)
        layers, memory = self.known[key]
        return replace(found, layers=layers, memory=memory)

    def _seen(self) -> Seen:
        modes = resting_modes(self.subject)
        # A pooled model pays for every lag with a run: that is for recurrences only.
        heard = bool(modes) or not self.subject.pooled
        memory = self.tools.results.get("memory")
        if not heard or memory is None:
            return Seen(modes, {})
        return Seen(modes, remember(self.subject, self.setting, memory))

    def _errors(self, formats: tuple[str, ...]) -> tuple[float, dict[str, float]]:
        """The size of the answers, and by how much every format changes them."""
        inputs = perturbing_inputs(self.subject, self.setting)
        own = self.subject.respond(inputs).double()
        rest = self.subject.respond(torch.zeros_like(inputs[:1])).double()
        scale = float(self._sizes((own - rest)[None])[0])
        numbers = sum(t.numel() for t in self.weights.tensors.values()) + own.numel()
        together = max(1, TOGETHER // numbers - 1)
        errors: dict[str, float] = {}
        for first in range(0, len(formats), together):
            some = formats[first : first + together]
            errors |= zip(some, self._errors_of(some, inputs, own), strict=True)
        return scale, errors

    def _errors_of(
        self, formats: tuple[str, ...], inputs: torch.Tensor, own: torch.Tensor
    ) -> list[float]:
        values = [self.weights.rounded(name) for name in formats]
        if self.weights.copies is None:
            return [self._error_in_place(rounded, inputs, own) for rounded in values]
        # The weights as they are come first: both answers then round in the same way.
        stacked = {
            key: torch.stack([tensor, *(rounded[key] for rounded in values)])
            for key, tensor in self.weights.tensors.items()
        }
        answers = self.weights.copies.respond(inputs, stacked).double()
        sizes = self._sizes(answers[1:] - answers[:1]).tolist()
        return [
            math.inf if self.weights.overflows(rounded) else size
            for rounded, size in zip(values, sizes, strict=True)
        ]

    def _error_in_place(
        self, values: Mapping[str, torch.Tensor], inputs: torch.Tensor, own: torch.Tensor
    ) -> float:
        if self.weights.overflows(values):
            return math.inf
        with standing_in(self.weights.tensors, values):
            answers = self.subject.respond(inputs).double()
        return float(self._sizes((answers - own)[None])[0])

    def _sizes(self, difference: torch.Tensor) -> torch.Tensor:
        return error_norm(difference, self.norm, pooled=self.subject.pooled)


def _layers(before: Seen, after: Seen) -> tuple[RoundedLayer, ...]:
    return tuple(_layer(name, old, after.modes.get(name)) for name, old in before.modes.items())


def _layer(name: str, old: np.ndarray, new: np.ndarray | None) -> RoundedLayer:
    """One layer; without eigenvalues afterwards it has lost its state of rest."""
    if new is None:
        return RoundedLayer(name, margin(old), None, 0, None)
    return RoundedLayer(name, margin(old), margin(new), reached(old, new), shift(old, new))


def _memory(before: Seen, after: Seen) -> tuple[RoundedMemory, ...]:
    return tuple(
        compared(query, old, after.curves[query])
        for query, old in before.curves.items()
        if query in after.curves
    )


def compared(query: str, old: Curve, new: Curve) -> RoundedMemory:
    """Two curves of one query; what differs by less than a floor is the same curve."""
    common = min(len(old.values), len(new.values))
    apart = float(np.abs(new.values[:common] - old.values[:common]).max(initial=0.0))
    if len(old.values) == len(new.values) and apart <= max(old.floor, new.floor):
        new, apart = old, 0.0
    # Where nothing was heard before, what is heard now is all of it.
    top = max(float(c.values[:common].max(initial=0.0)) for c in (old, new))
    own = float(old.values[:common].max(initial=0.0))
    return RoundedMemory(
        query=query,
        kind_before=old.decay.kind,
        kind_after=new.decay.kind,
        rate_before=old.decay.rate,
        rate_after=new.decay.rate,
        horizon_before=old.horizon,
        horizon_after=new.horizon,
        change=min(apart / (own or top), sys.float_info.max) if apart else 0.0,
    )
