"""What a number format does to the recurrent weights, their eigenvalues and the memory."""

from __future__ import annotations

import math
import sys
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import torch

from memaudit.errors import MachineError, clean
from memaudit.interfaces import BALLS
from memaudit.loading.filling import digest_tensors
from memaudit.modes import margin
from memaudit.numerics.rounding import rounded
from memaudit.precision.result import RoundedLayer, RoundedMemory, Rounding
from memaudit.subjects.jacobian import resting_modes
from memaudit.subjects.moves import error_norm, perturbing_inputs, size

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from memaudit.interfaces import AbstractPerturbable, AbstractSubject, Setting, Tools
    from memaudit.memory.result import Curve


#: Numbers (weights and answers) of all copies that answer together.
TOGETHER = 2**22

Found = tuple[tuple[RoundedLayer, ...], tuple[RoundedMemory, ...]]


@dataclass(frozen=True, slots=True, eq=False)
class Measured:
    """Eigenvalues by layer and curves by query, with the weights that the model had."""

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
        before = None if self.weights.live is None else self._measured()
        made = []
        for number, name in enumerate(formats):
            self.tools.tick(number + 2, len(formats) + 2)
            values = self.weights.rounded(name)
            error = errors[name]
            relative = error / scale if 0 < scale < math.inf else None
            found = Rounding(name, self.weights.betas(values), error, relative)
            made.append(self._with_memory(found, values, before))
        return tuple(made)

    def _with_memory(
        self, found: Rounding, values: Mapping[str, torch.Tensor], before: Measured | None
    ) -> Rounding:
        """The same with eigenvalues and memory of the model that has the rounded weights."""
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
                with replaced_weights(self.weights.live, values):
                    after = self._measured()
            self.known[key] = _layers(before, after), _memory(before, after)
        layers, memory = self.known[key]
        return replace(found, layers=layers, memory=memory)

    def _measured(self) -> Measured:
        modes = resting_modes(self.subject)
        # A pooled model pays for every lag with a run: that is for recurrences only.
        worthwhile = bool(modes) or not self.subject.pooled
        memory = self.tools.results.get("memory")
        if not worthwhile or memory is None:
            return Measured(modes, {})
        return Measured(modes, memory.remeasured(self.subject, self.setting))

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
        with replaced_weights(self.weights.tensors, values):
            answers = self.subject.respond(inputs).double()
        return float(self._sizes((answers - own)[None])[0])

    def _sizes(self, difference: torch.Tensor) -> torch.Tensor:
        return error_norm(difference, self.norm, pooled=self.subject.pooled)


def _layers(before: Measured, after: Measured) -> tuple[RoundedLayer, ...]:
    return tuple(_layer(name, old, after.modes.get(name)) for name, old in before.modes.items())


def _layer(name: str, old: np.ndarray, new: np.ndarray | None) -> RoundedLayer:
    """One layer; without eigenvalues afterwards it has lost its state of rest."""
    if new is None:
        return RoundedLayer(name, margin(old), None, 0, None)
    return RoundedLayer(name, margin(old), margin(new), reached(old, new), shift(old, new))


def _memory(before: Measured, after: Measured) -> tuple[RoundedMemory, ...]:
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
    # Where there was no memory before, what there is now is all of it.
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


# The weights that are rounded

ALL_ROUNDED = "nothing says which weights are recurrent: all of them were rounded"
NONE_RECURRENT = "no weight of the model is recurrent"
NO_WEIGHTS = "the model has no weights that could be rounded"
NOT_LIVE = "eigenvalues and memory were not measured: the weights in use are not within reach"


@dataclass(frozen=True, slots=True, eq=False)
class RoundedWeights:
    """Weights and how they act; `live` are the subject's own tensors, None when out of reach.

    `copies` answers with other weights, None when the model cannot do that.
    """

    tensors: Mapping[str, torch.Tensor]
    forms: Mapping[str, str]
    copies: AbstractPerturbable | None
    live: Mapping[str, torch.Tensor] | None
    note: str = ""

    def rounded(self, name: str) -> dict[str, torch.Tensor]:
        """All of them in a format."""
        return {key: rounded(tensor, name) for key, tensor in self.tensors.items()}

    def betas(self, values: Mapping[str, torch.Tensor]) -> dict[str, float]:
        """The size of the move in every ball, the largest over the tensors."""
        moves = {key: _move(self.tensors[key], value) for key, value in values.items()}
        if not all(bool(move.isfinite().all()) for move in moves.values()):
            return dict.fromkeys(BALLS, torch.inf)
        return {
            ball: max(_size(move, self.forms[key], ball) for key, move in moves.items())
            for ball in BALLS
        }

    def overflows(self, values: Mapping[str, torch.Tensor]) -> int:
        """How many numbers were finite and are not any more."""
        return sum(
            int((self.tensors[key].isfinite() & ~value.isfinite()).sum())
            for key, value in values.items()
        )


def choose(subject: AbstractSubject, weights: str) -> RoundedWeights:
    """The recurrent weights of a subject, or "all"; tied ones once."""
    copies = subject.perturbable()
    if copies is None:
        own = {n: t for n, t in subject.weights().items() if isinstance(t, torch.Tensor)}
        floats = _distinct({n: t for n, t in own.items() if _rounds(t)})
        forms = {name: "matrix" if t.ndim > 1 else "vector" for name, t in floats.items()}
        return RoundedWeights(floats, forms, None, floats, ALL_ROUNDED if floats else NO_WEIGHTS)
    roles = copies.roles
    requested = {
        name: tensor.detach()
        for name, tensor in copies.weights.items()
        if _rounds(tensor) and (weights == "all" or roles[name].group == "recurrent")
    }
    chosen = _distinct(requested)
    forms = {name: roles[name].form for name in chosen}
    live = own_tensors(subject, chosen)
    note = "" if chosen and live is not None else NOT_LIVE if chosen else NONE_RECURRENT
    return RoundedWeights(chosen, forms, copies, live, note)


def _rounds(tensor: torch.Tensor) -> bool:
    return bool(tensor.numel()) and (tensor.is_floating_point() or tensor.is_complex())


def _distinct(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """One name for every tensor, the first."""
    first: dict[object, str] = {}
    for name, tensor in tensors.items():
        first.setdefault(storage_of(tensor), name)
    return {name: tensors[name] for name in first.values()}


def _size(move: torch.Tensor, form: str, ball: str) -> float:
    """The size of one move; a complex matrix is as large as its real form, twice as wide."""
    if move.is_complex():
        if ball == "spectral" and form == "matrix" and move.ndim > 1:
            re, im = move.real.flatten(1), move.imag.flatten(1)
            move = torch.cat([torch.cat([re, -im], 1), torch.cat([im, re], 1)])
        else:
            move = move.abs()
    return float(size(move[None], form, ball)[0])


def _move(before: torch.Tensor, after: torch.Tensor) -> torch.Tensor:
    """The difference in double precision."""
    wide = torch.complex128 if before.is_complex() else torch.float64
    return after.to(wide) - before.to(wide)


@contextmanager
def replaced_weights(
    live: Mapping[str, torch.Tensor], values: Mapping[str, torch.Tensor]
) -> Iterator[None]:
    """Write `values` into the tensors of the same names; afterwards the old bits stand there.

    Whatever happens inside, they are put back, and looked at: weights that cannot be put back
    raise E_WEIGHTS.
    """
    digest = digest_tensors(live)
    copies = {name: tensor.detach().clone() for name, tensor in live.items()}

    def restore() -> None:
        with torch.no_grad():
            for name, copy in copies.items():
                if live[name].shape == copy.shape:
                    live[name].copy_(copy)

    try:
        with torch.no_grad():
            for name, value in values.items():
                live[name].copy_(value)
        yield
    finally:
        try:
            restore()
        except KeyboardInterrupt:  # waits until all of them stand there again
            restore()
            raise
        if digest_tensors(live) != digest:
            raise MachineError(
                "E_WEIGHTS",
                f"the weights {clean(', '.join(list(live)[:5]))} could not be put back",
                hint="load the model anew",
                stage="precision",
            )


def own_tensors(
    subject: AbstractSubject, wanted: Mapping[str, torch.Tensor]
) -> dict[str, torch.Tensor] | None:
    """The subject's own tensors behind the wanted ones, by name or else by place in memory.

    None when one of them is not among the weights of the subject.
    """
    own = {n: t for n, t in subject.weights().items() if isinstance(t, torch.Tensor)}
    places = {storage_of(tensor): tensor for tensor in own.values()}
    found: dict[str, torch.Tensor] = {}
    for name, tensor in wanted.items():
        same = own.get(name)
        if same is None or same.dtype != tensor.dtype or not torch.equal(same, tensor):
            same = places.get(storage_of(tensor))
        if same is None:
            return None
        found[name] = same
    return found


def storage_of(tensor: torch.Tensor) -> tuple[object, ...]:
    """Where a tensor lies in memory, and in which shape: tied weights lie in the same place."""
    shape = (tuple(tensor.shape), tuple(tensor.stride()))
    return (str(tensor.device), tensor.data_ptr(), tensor.dtype, *shape)


# Eigenvalues before and after


#: Up to so many modes every one is looked for; a diagonal layer with more has them in order.
MOST_PAIRED = 2048
#: A mode this near to the circle is on it: moduli of complex numbers round a few times.
ON_CIRCLE = 8 * np.finfo(np.float64).eps


def paired(before: np.ndarray, after: np.ndarray) -> np.ndarray:
    """The modes of `after` in the order of `before`, so that the largest change is small.

    Either in the order that they have, which is that of the weights of a diagonal layer, or by the
    assignment with the least sum of changes: a decomposition gives them in any order.
    """
    if len(before) != len(after) or len(before) > MOST_PAIRED:
        return after
    from scipy.optimize import linear_sum_assignment

    changes = np.abs(after[None] - before[:, None])
    assigned = after[linear_sum_assignment(changes)[1]]
    return min((after, assigned), key=lambda found: float(np.abs(found - before).max(initial=0.0)))


def shift(before: np.ndarray, after: np.ndarray) -> float | None:
    """The largest change of a mode; None when there are more or fewer than before."""
    if len(before) != len(after):
        return None
    return float(np.abs(paired(before, after) - before).max(initial=0.0))


def reached(before: np.ndarray, after: np.ndarray) -> int:
    """Modes that were inside of the unit circle and are now on it or beyond."""
    inside, outside = np.abs(before) < 1 - ON_CIRCLE, np.abs(after) >= 1 - ON_CIRCLE
    if len(before) != len(after):
        return max(0, int(outside.sum()) - int((~inside).sum()))
    return int((inside & (np.abs(paired(before, after)) >= 1 - ON_CIRCLE)).sum())
