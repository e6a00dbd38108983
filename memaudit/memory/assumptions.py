"""The assumptions of the theory, measured: each a residual against a tolerance."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import torch

from memaudit.memory.result import Assumption

if TYPE_CHECKING:
    from collections.abc import Iterable

    from memaudit.interfaces import AbstractSubject

#: Steps of the test sequences; four blocks of these stand behind each other for the shifts, and
#: a model that takes fewer steps gets shorter ones.
STEPS, BLOCKS = 64, 4
#: Residuals are compared with this many roundings of the subject's dtype. In half precision that
#: would allow anything, so the tolerance is capped; a few roundings must fit below the cap.
ROUNDINGS, FEW_ROUNDINGS, LARGEST_TOLERANCE = 1e4, 16.0, 0.01
#: Shifted answers may differ by what a start-up transient leaves after STEPS steps.
SHIFT_TOLERANCE = 1e-3
#: A row alone and in a batch that differ by less than this differ by rounding.
HIDDEN_ROUNDING = 1e-5
#: Amplitudes at whose ends the gain must not grow.
#: The gain of a square root grows by the power 0.5 towards zero, which is not bounded.
STEEPEST_GAIN = 0.45
SIZES = (2.0**-6, 2.0**-3, 2.0**3, 2.0**6)
NOT_FINITE = "the answer is not finite"


class Trial:
    """One subject under test; the methods answer one question each.

    All inputs that may share a batch do: a sequential model costs by calls, not by rows.
    """

    def __init__(self, subject: AbstractSubject, generator: torch.Generator) -> None:
        self.subject = subject
        self.width = subject.input_size or 1
        self.rounding = torch.finfo(subject.dtype).eps
        limit = subject.longest
        self.steps = STEPS if limit is None else max(1, min(STEPS, limit // BLOCKS))
        u, v = torch.randn(2, self.steps, self.width, generator=generator, dtype=torch.float64)
        late = torch.cat([u[: self.steps // 2], v[self.steps // 2 :]])
        self.inputs = {"zero": 0 * u, "u": u, "v": v, "mixed": 8 * u - 3 * v, "late": late}
        for k in (4, 12):
            self.inputs |= {f"u+2^-{k} v": u + 2.0**-k * v, f"2^-{k} u": 2.0**-k * u}
        self.inputs |= {f"{size} u": size * u for size in SIZES}
        self.batch = torch.stack(list(self.inputs.values()))
        self.raw = self.answer(self.batch)
        self.zero_answer = self.raw[0]
        self.adjusted = dict(zip(self.inputs, self.raw - self.zero_answer, strict=True))
        self.scale = largest(self.adjusted["u"])
        self.alone = largest(self.answer(self.batch[1:2])[0] - self.raw[1])
        share = self.alone / max(self.scale, 1e-300)
        if share < HIDDEN_ROUNDING:  # a model may compute in fewer digits than it answers in
            self.rounding = max(self.rounding, share)
        cap = max(LARGEST_TOLERANCE, FEW_ROUNDINGS * self.rounding)
        self.tolerance = min(ROUNDINGS * self.rounding, cap)

    def answer(self, inputs: torch.Tensor) -> torch.Tensor:
        """The raw answers in float64 on the CPU, with a time axis of one step when pooled."""
        inputs = inputs.to(self.subject.device, self.subject.dtype)
        raw = self.subject.respond(inputs)
        self.rounding = max(self.rounding, torch.finfo(raw.dtype).eps)
        answers = raw.cpu().double()
        return answers[:, None] if self.subject.pooled else answers

    @cached_property
    def shifted(self) -> torch.Tensor:
        """Answers to u at offsets 0, 1 and 2 blocks, and to zeros.

        One block of zeros behind: a model that looks ahead must not see where it ends.
        """
        steps = self.steps
        padded = torch.zeros(4, BLOCKS * steps, self.width, dtype=torch.float64)
        for k in range(3):
            padded[k, k * steps : (k + 1) * steps] = self.inputs["u"]
        return self.answer(padded)

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
        if not _is_number(self.scale):
            return Assumption("responsive", None, None, None, NOT_FINITE)
        floor = 10 * self.rounding * max(largest(self.zero_answer), self.scale)
        note = "the answer to noise, above the answer to zeros"
        return Assumption("responsive", self.scale > floor, self.scale, floor, note)

    def deterministic(self) -> Assumption:
        """Two calls give the same answer."""
        off = largest(self.answer(self.batch)[1] - self.raw[1])
        found = self._judged("deterministic", off, "two identical calls")
        # What differs between identical calls is no evidence against anything else.
        self.tolerance = max(self.tolerance, 10 * (found.residual or 0.0))
        return found

    def rows_independent(self) -> Assumption:
        """A row alone and the row in a batch agree."""
        return self._judged("rows-independent", self.alone, "alone and in a batch")

    def linear(self) -> Assumption:
        """A(8u - 3v) = 8 A(u) - 3 A(v)."""
        a = self.adjusted
        off = largest(a["mixed"] - 8 * a["u"] + 3 * a["v"])
        return self._judged("linear", off / 8, "A(8u - 3v) against 8 A(u) - 3 A(v)")

    def continuous(self) -> Assumption:
        """A small change of the input makes a small change of the answer."""
        a = self.adjusted
        note = "change of the answer for a 256 times smaller change of the input, at u and at 0"
        at_u = [largest(a[f"u+2^-{k} v"] - a["u"]) for k in (12, 4)]
        at_rest = [largest(a[f"2^-{k} u"]) for k in (12, 4)]
        pairs = (at_u, at_rest)
        found = [self._shrinks("continuous", fine, coarse, note) for fine, coarse in pairs]
        return max(found, key=lambda item: item.residual or 0.0)

    def regular(self) -> Assumption:
        """Inputs that vanish make answers that vanish."""
        fine, coarse = (largest(self.adjusted[f"2^-{k} u"]) for k in (12, 4))
        return self._shrinks("regular", fine, coarse, "answer to a 256 times smaller input")

    def bounded(self) -> Assumption:
        """The gain |A(au)| / a grows neither for large nor for small a."""
        gains = [largest(self.adjusted[f"{size} u"]) / size for size in SIZES]
        note = "power with which the gain grows at the ends of the amplitudes"
        if not all(map(_is_number, gains)):
            return Assumption(
                "bounded", False, None, STEEPEST_GAIN, "the answer overflows at amplitude 64"
            )
        if min(gains) <= 0:
            return Assumption("bounded", True, 0.0, STEEPEST_GAIN, note)
        ratio = torch.tensor([gains[0] / gains[1], gains[3] / gains[2]], dtype=torch.float64)
        power = float(ratio.log2().max()) / 3
        power = max(power, 0.0)
        return Assumption("bounded", power <= STEEPEST_GAIN, power, STEEPEST_GAIN, note)

    def time_homogeneous(self) -> Assumption:
        """A shifted input gives a shifted answer, at three offsets."""
        if self.subject.pooled:
            return Assumption("time-homogeneous", None, None, None, "the model answers once")
        answers, steps = self.shifted, self.steps
        shifted = [(answers[k] - answers[3])[k * steps : (k + 1) * steps] for k in range(3)]
        early = largest(shifted[1] - shifted[0]) / max(self.scale, 1e-300)
        late = largest(shifted[2] - shifted[1]) / max(self.scale, 1e-300)
        if not (_is_number(early) and _is_number(late)):
            return Assumption("time-homogeneous", None, None, None, NOT_FINITE)
        note = f"offsets {steps} and {2 * steps}; from a cold start {early:.2g}"
        tolerance = max(SHIFT_TOLERANCE, self.tolerance)
        return Assumption("time-homogeneous", late <= tolerance, late, tolerance, note)

    def causal(self) -> Assumption:
        """What comes later does not change the answer."""
        if self.subject.pooled:
            return Assumption("causal", None, None, None, "the model answers once per sequence")
        near = (self.adjusted["late"] - self.adjusted["u"])[: max(self.steps // 2, 1)]
        far = (self.shifted[2] - self.shifted[3])[: 2 * self.steps]
        off = max(largest(near), largest(far))
        return self._judged("causal", off, "answers before a change of the input")

    def _judged(self, name: str, off: float, note: str) -> Assumption:
        if not _is_number(off) or not _is_number(self.scale):
            return Assumption(name, None, None, None, NOT_FINITE)
        # A model that ignores its input is compared with the size of its constant answer.
        residual = off / max(self.scale, 1e-8 * largest(self.zero_answer), 1e-300)
        # A large constant answer rounds, and that rounding is none of the input's doing.
        offset = largest(self.zero_answer) / max(self.scale, 1e-300)
        widened = self.tolerance * min(max(offset, 1.0), 1 / self.rounding)
        tolerance = max(self.tolerance, min(widened, LARGEST_TOLERANCE))
        return Assumption(name, residual <= tolerance, residual, tolerance, note)

    def _shrinks(self, name: str, fine: float, coarse: float, note: str) -> Assumption:
        if not (_is_number(fine) and _is_number(coarse)):
            return Assumption(name, None, None, None, NOT_FINITE)
        # Rounding of the answer does not shrink with the input.
        noise = 10 * self.rounding * max(self.scale, largest(self.zero_answer))
        residual = max(fine - noise, 0.0) / coarse if coarse > 0 else 0.0
        return Assumption(name, residual <= 0.1, residual, 0.1, note)


def largest(tensor: torch.Tensor) -> float:
    """Largest absolute value."""
    return float(tensor.abs().amax())


def _is_number(value: float) -> bool:
    return value == value and abs(value) != float("inf")
