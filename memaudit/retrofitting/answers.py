"""What a model answers while it is retrofitted, held against what it answered before."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from memaudit.contracts import AbstractSubject
from memaudit.errors import MemauditError
from memaudit.numerics.signals import seeded
from memaudit.opening import load
from memaudit.retrofitting.radii import tolerance_radius

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from memaudit.stability.result import Radius

#: Rows and steps of the inputs.
ROWS, STEPS = 2, 32


class Answers:
    """The answers of a model, or of each of its parts, to a few random inputs."""

    def __init__(self, model: Any, *, measured: bool, patient: bool) -> None:
        self._model = model
        self._measured, self._patient = measured, patient
        self.notes: tuple[str, ...] = ()
        self._before = self._now()

    def difference(self) -> float | None:
        """The largest change since the beginning, over the largest answer; None without one."""
        now = self._now()
        if now is None or self._before is None:
            return None
        pairs = [(self._before[part], answer) for part, answer in now.items()]
        sizes = [float((after - before).abs().amax()) for before, after in pairs]
        scale = max(float(before.abs().amax()) for before, _ in pairs)
        return max(sizes) / scale if scale > 0.0 else max(sizes)

    def radius(self, weight: str) -> Radius | None:
        """The radius of the weights behind a name; None where it is not measured."""
        if not self._measured or self._before is None:
            return None
        try:
            for part, subject in _parts(self._opened()).items():
                if part and not weight.startswith(f"{part}."):
                    continue
                inside = weight.removeprefix(f"{part}.") if part else weight
                found = tolerance_radius(subject, inside, patient=self._patient)
                if found is not None:
                    return found
        except MemauditError as error:
            self._measured = False
            self._note(f"E(beta) was not measured: {error.fact}; {error.hint}")
        return None

    def _opened(self) -> AbstractSubject:
        return self._model if isinstance(self._model, AbstractSubject) else load(self._model)

    def _now(self) -> Mapping[str, Tensor] | None:
        try:
            parts = _parts(self._opened())
            return {name: part.respond(_inputs(part)).double() for name, part in parts.items()}
        except MemauditError as error:
            self._note(
                f"the model could not be run by itself, so no answers were compared: {error.fact}"
            )
            return None

    def _note(self, note: str) -> None:
        if note not in self.notes:
            self.notes = (*self.notes, note)


def _parts(subject: AbstractSubject) -> Mapping[str, AbstractSubject]:
    return {"": subject} if subject.input_size is not None else subject.parts()


def _inputs(subject: AbstractSubject) -> Tensor:
    steps = STEPS if subject.longest is None else min(STEPS, subject.longest)
    drawn = torch.randn(ROWS, steps, subject.input_size or 1, generator=seeded(0))
    return drawn.to(subject.device, subject.dtype)
