"""The assumptions of the theory, measured: each a residual against a tolerance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from memaudit.contracts import AbstractProbe
from memaudit.results import Assumption

if TYPE_CHECKING:
    from collections.abc import Iterable

    from memaudit.contracts import AbstractSubject, Setting

#: Steps of the test sequences; three of these stand behind each other for the shifts.
STEPS = 64
#: Residuals are compared with this many roundings of the subject's dtype.
ROUNDINGS = 1e4
#: Shifted answers may differ by what a start-up transient leaves after STEPS steps.
SHIFT_TOLERANCE = 1e-3


@dataclass(frozen=True, slots=True)
class Assumptions(AbstractProbe):
    """Which assumptions of IATN Def. 2.1 does the model meet?

    Works on the adjusted functional A(u) = H(u) - H(0) with Gaussian inputs u, v of size one;
    residuals are relative to the largest |A(u)|.
    """

    name = "assumptions"
    summary = "linear, continuous, bounded, time-homogeneous, causal, regular, and the test rig"
    fills = "assumptions"

    def measure(self, subject: AbstractSubject, setting: Setting) -> tuple[Assumption, ...]:
        from memaudit.numerics.signals import seeded

        trial = Trial(subject, seeded(setting.seed))
        return tuple(trial.run())


class Trial:
    """One subject under test; the methods answer one question each."""

    def __init__(self, subject: AbstractSubject, generator: torch.Generator) -> None:
        self.subject = subject
        self.width = subject.input_size or 1
        self.tolerance = ROUNDINGS * torch.finfo(subject.dtype).eps
        shape = (2, STEPS, self.width)
        self.u, self.v = torch.randn(2, *shape, generator=generator, dtype=torch.float64)[:, :1]
        both = self.answer(torch.cat([self.u, self.v, torch.zeros_like(self.u)]))
        self.silence = both[2:]
        self.au, self.av = both[:1] - self.silence, both[1:2] - self.silence
        self.scale = largest(self.au)

    def answer(self, inputs: torch.Tensor) -> torch.Tensor:
        """The raw answers in float64 on the CPU, with a time axis of one step when pooled."""
        inputs = inputs.to(self.subject.device, self.subject.dtype)
        answers = self.subject.respond(inputs).cpu().double()
        return answers[:, None] if self.subject.pooled else answers

    def run(self) -> Iterable[Assumption]:
        """Every assumption in turn."""
        yield self.responsive()
        yield self.deterministic()
        yield self.rows_independent()
        yield self.linear()
        yield self.continuous()
        yield self.bounded()
        yield self.time_homogeneous()
        yield self.causal()
        yield self.regular()

    def responsive(self) -> Assumption:
        """A(u) differs from zero by more than rounding."""
        floor = 10 * torch.finfo(self.subject.dtype).eps * max(largest(self.silence), self.scale)
        note = "the answer to noise, above the answer to silence"
        if not is_finite(self.au):
            return Assumption("responsive", None, None, None, "the answer is not finite")
        return Assumption("responsive", self.scale > floor, self.scale, floor, note)

    def deterministic(self) -> Assumption:
        """Two calls give the same answer."""
        again = self.answer(torch.cat([self.u, self.v, torch.zeros_like(self.u)]))
        off = largest(again - torch.cat([self.au, self.av, 0 * self.au]) - self.silence)
        return self._judged("deterministic", off, "two identical calls")

    def rows_independent(self) -> Assumption:
        """A row alone and the row in a batch agree."""
        alone = self.answer(self.u) - self.silence
        return self._judged("rows-independent", largest(alone - self.au), "alone and in a batch")

    def linear(self) -> Assumption:
        """A(8u - 3v) = 8 A(u) - 3 A(v)."""
        mixed = self.adjusted(8 * self.u - 3 * self.v)
        off = largest(mixed - 8 * self.au + 3 * self.av)
        return self._judged("linear", off / 8, "A(8u - 3v) against 8 A(u) - 3 A(v)")

    def continuous(self) -> Assumption:
        """A small change of the input makes a small change of the answer."""
        coarse = largest(self.adjusted(self.u + 2.0**-4 * self.v) - self.au)
        fine = largest(self.adjusted(self.u + 2.0**-12 * self.v) - self.au)
        note = "change of the answer for a 256 times smaller change of the input"
        return self._shrinks("continuous", fine, coarse, note)

    def regular(self) -> Assumption:
        """Inputs that vanish make answers that vanish."""
        coarse, fine = (
            largest(self.adjusted(2.0**-4 * self.u)),
            largest(self.adjusted(2.0**-12 * self.u)),
        )
        return self._shrinks("regular", fine, coarse, "answer to a 256 times smaller input")

    def bounded(self) -> Assumption:
        """The gain |A(au)| / a grows neither for large nor for small a."""
        sizes = (2.0**-6, 2.0**-3, 2.0**3, 2.0**6)
        gains = [largest(self.adjusted(a * self.u)) / a for a in sizes]
        note = "power with which the gain grows at the ends of the amplitudes"
        if not all(map(_is_number, gains)):
            return Assumption("bounded", False, None, 0.5, "the answer overflows at amplitude 64")
        if min(gains) <= 0:
            return Assumption("bounded", True, 0.0, 0.5, note)
        ratio = torch.tensor([gains[0] / gains[1], gains[3] / gains[2]], dtype=torch.float64)
        power = float(ratio.log2().max()) / 3
        return Assumption("bounded", power <= 0.5, max(power, 0.0), 0.5, note)

    def time_homogeneous(self) -> Assumption:
        """A shifted input gives a shifted answer, at three offsets."""
        if self.subject.pooled:
            return Assumption("time-homogeneous", None, None, None, "the model answers once")
        padded = torch.zeros(4, 3 * STEPS, self.width, dtype=torch.float64)
        for k in range(3):
            padded[k, k * STEPS : (k + 1) * STEPS] = self.u[0]
        answers = self.answer(padded)
        shifted = [(answers[k] - answers[3])[k * STEPS : (k + 1) * STEPS] for k in range(3)]
        early = largest(shifted[1] - shifted[0]) / max(self.scale, 1e-300)
        late = largest(shifted[2] - shifted[1]) / max(self.scale, 1e-300)
        if not (_is_number(early) and _is_number(late)):
            return Assumption("time-homogeneous", None, None, None, "the answer is not finite")
        note = f"offsets {STEPS} and {2 * STEPS}; from a cold start {early:.2g}"
        tolerance = max(SHIFT_TOLERANCE, self.tolerance)
        return Assumption("time-homogeneous", late <= tolerance, late, tolerance, note)

    def causal(self) -> Assumption:
        """What comes later does not change the answer."""
        if self.subject.pooled:
            return Assumption("causal", None, None, None, "the model answers once per sequence")
        changed = self.u.clone()
        changed[:, STEPS // 2 :] = self.v[:, STEPS // 2 :]
        off = (self.adjusted(changed) - self.au)[:, : STEPS // 2]
        return self._judged("causal", largest(off), "answers before a change of the input")

    def adjusted(self, inputs: torch.Tensor) -> torch.Tensor:
        """A(u) = H(u) - H(0)."""
        return self.answer(inputs) - self.silence

    def _judged(self, name: str, off: float, note: str) -> Assumption:
        if not _is_number(off) or not _is_number(self.scale):
            return Assumption(name, None, None, None, "the answer is not finite")
        # A model that ignores its input is compared with the size of its constant answer.
        residual = off / max(self.scale, 1e-8 * largest(self.silence), 1e-300)
        return Assumption(name, residual <= self.tolerance, residual, self.tolerance, note)

    def _shrinks(self, name: str, fine: float, coarse: float, note: str) -> Assumption:
        if not (_is_number(fine) and _is_number(coarse)):
            return Assumption(name, None, None, None, "the answer is not finite")
        # Rounding of the answer does not shrink with the input.
        noise = 10 * torch.finfo(self.subject.dtype).eps * max(self.scale, largest(self.silence))
        residual = max(fine - noise, 0.0) / coarse if coarse > 0 else 0.0
        return Assumption(name, residual <= 0.1, residual, 0.1, note)


def largest(tensor: torch.Tensor) -> float:
    """Largest absolute value."""
    return float(tensor.abs().amax())


def is_finite(tensor: torch.Tensor) -> bool:
    """Whether no entry is NaN or infinite."""
    return bool(torch.isfinite(tensor).all())


def _is_number(value: float) -> bool:
    return value == value and abs(value) != float("inf")
