"""One linear layer under test: its kernel at all lags, and its answers to impulses."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from memaudit.closed_form.result import ClosedForm
from memaudit.devices import release_memory, shortage
from memaudit.errors import SourceError
from memaudit.numerics import closed_form as forms
from memaudit.numerics.signals import pulse, seeded

if TYPE_CHECKING:
    from collections.abc import Iterator

    from memaudit.contracts import AbstractLinearPart, Setting

#: The basis is fed as a whole up to this width, and up to this many numbers of answers.
WIDEST_BASIS, MOST_ANSWERED = 256, 2**23
#: Numbers in one pass, 8 MB in float64; states inside the layer come on top.
MOST_IN_PASS = 2**20
#: Impulses that are aimed at the kernel of a lag each, where the basis is too much: so many, or
#: so few where one answer has more numbers than this. A verdict takes 20 of them.
MOST_AIMED, FEWEST_AIMED, LARGE_ANSWER = 64, 24, 2**23
AIMED = "impulses of signs, loudest at"
TOO_LARGE = "the kernel is too large to be run against"


@dataclass(frozen=True, slots=True)
class Impulses:
    """What is fed: x (K,D), and for how many lags each; whether it is the basis.

    `exact_at` are the positions of the lags at which the largest answer is the supremum.
    """

    x: torch.Tensor
    reach: list[int]
    basis: bool
    exact_at: np.ndarray
    told: str


class LinearTrial:
    """One linear layer: the exact curve first, then the answers, then how far they are apart."""

    def __init__(
        self,
        part: AbstractLinearPart,
        setting: Setting,
        *,
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        self.part, self.setting = part, setting
        self.device, self.dtype = device, dtype
        first = part.kernel(0, 1)
        _check(first, (1, -1, part.width), "kernel")
        self.numbers, self.outputs = first.numel(), first.shape[1]
        self.rounding = torch.finfo(first.dtype).eps
        self.lags = forms.lags_for(setting.horizon, self.numbers)
        self.kept: dict[int, torch.Tensor] = {}

    def record(self, layer: str) -> ClosedForm:
        """Everything about the layer."""
        exact, seen = self.exact, self._seen()
        measured, run, off, told = self._run()
        return ClosedForm(
            layer=layer,
            lags=self.lags[: len(exact)],
            exact=exact,
            measured=measured,
            floor=seen.floor,
            measured_floor=run.floor,
            status=seen.status,
            decay=seen.decay,
            horizon=seen.horizon,
            half_life=seen.half_life,
            measured_status=run.status,
            measured_decay=run.decay,
            measured_horizon=run.horizon,
            measured_half_life=run.half_life,
            epsilon=self.setting.epsilon,
            deviation=off,
            tolerance=self.tolerance,
            fed=told,
            count=len(exact),
            note=self._note(run, told),
        )

    def _seen(self) -> forms.Verdict:
        """The verdict on the exact curve; its floor is the rounding of the closed form."""
        lags = self.lags[: len(self.exact)]
        top = float(self.exact[lags >= forms.FIRST_LAG].max(initial=0.0))
        return forms.verdict(
            lags,
            self.exact,
            floor=self.rounding * top,
            rounding=self.rounding,
            epsilon=self.setting.epsilon,
            overflows=len(self.exact) < len(self.lags),
        )

    @property
    def tolerance(self) -> float:
        """The deviation that rounding explains."""
        return forms.tolerance_of(self.dtype, self.setting.horizon)

    @cached_property
    def exact(self) -> np.ndarray:
        """The exact memory function, up to the first lag at which it is not finite."""
        sizes = [
            forms.size_of(kernel, banked=self.part.banked)
            for _, _, kernel in self._blocks(len(self.lags))
        ]
        values = torch.cat(sizes).numpy()
        finite = np.isfinite(values)
        return values if finite.all() else values[: int(np.argmin(finite))]

    def _blocks(self, count: int) -> Iterator[tuple[int, int, torch.Tensor]]:
        """The kernel at the first so many lags, a few at a time; kept where all of it is small."""
        small = len(self.lags) * self.numbers <= forms.MOST_NUMBERS
        for start, stop in forms.runs(self.lags, max(1, forms.MOST_AT_ONCE // self.numbers)):
            if start >= count:
                return
            kernel = self.kept.get(start)
            if kernel is None:
                kernel = self._kernel(int(self.lags[start]), int(self.lags[stop - 1]) + 1)
                if small:
                    self.kept[start] = kernel
            stop = min(stop, count)
            yield start, stop, kernel[: stop - start]

    def _kernel(self, start: int, stop: int) -> torch.Tensor:
        kernel = self.part.kernel(start, stop)
        _check(kernel, (stop - start, self.outputs, self.part.width), "kernel")
        return kernel.detach().to("cpu", torch.float64)

    def _run(self) -> tuple[np.ndarray, forms.Verdict, float | None, str]:
        """The measured curve, the verdict on it, the deviation, and what was fed."""
        # Squares, as in a transform, must not overflow.
        loudest = np.maximum.accumulate(self.exact)
        count = int((loudest <= torch.finfo(self.dtype).max ** 0.5).sum())
        if count <= 1:
            return np.zeros(0), forms.UNKNOWN, None, "nothing"
        lags, fed = self.lags[:count], self._impulses(count)
        answers = self._answers(fed, lags)
        values = forms.joined(answers, basis=fed.basis).numpy()
        finite = np.isfinite(values)
        end = count if finite.all() else int(np.argmin(finite))
        off = self._deviation(fed, answers, lags)
        rounding = torch.finfo(self.dtype).eps
        loud = torch.nan_to_num(answers.abs().flatten(1).amax(1), nan=0.0, posinf=0.0)
        at = fed.exact_at[fed.exact_at < end]
        run = forms.verdict(
            lags[at],
            values[at],
            floor=rounding * float(loud.sum() if fed.basis else loud.amax()),
            rounding=rounding,
            epsilon=self.setting.epsilon,
            overflows=end < count,
        )
        return values[:end], run, off, fed.told

    def _impulses(self, count: int) -> Impulses:
        """Signs for a bank, the basis of a narrow layer, else signs aimed at some of the lags."""
        width, everywhere = self.part.width, np.arange(count)
        flips = torch.randint(2, (1, width), generator=seeded(self.setting.seed))
        signs = 2.0 * flips.double() - 1.0
        if self.part.banked:
            told = "an impulse on all inputs at once, and one of random signs"
            rows = torch.cat([torch.ones(1, width, dtype=torch.float64), signs])
            return Impulses(rows, [count] * 2, False, everywhere, told)
        steps = int(self.lags[count - 1]) + 1
        if width <= WIDEST_BASIS and width * steps * self.outputs <= MOST_ANSWERED:
            basis = torch.eye(width, dtype=torch.float64)
            told = f"an impulse on each of {width} inputs"
            return Impulses(basis, [count] * width, True, everywhere, told)
        return self._aimed(count, signs)

    def _aimed(self, count: int, signs: torch.Tensor) -> Impulses:
        """Every impulse is fed until its lag only: on a geometric grid that costs little."""
        steps = int(self.lags[count - 1]) + 1
        small = steps * max(self.outputs, self.part.width) <= LARGE_ANSWER
        wanted = np.geomspace(1, max(steps - 1, 1), MOST_AIMED if small else FEWEST_AIMED)
        at = np.unique(np.searchsorted(self.lags[:count], wanted.round()).clip(1, count - 1))
        kernels = (self._kernel(int(self.lags[i]), int(self.lags[i]) + 1)[0] for i in at)
        rows = torch.stack([*(forms.signs_for(kernel) for kernel in kernels), signs[0]])
        told = f"{AIMED} {len(at)} of {count} lags, lower bounds elsewhere"
        return Impulses(rows, [*(int(i) + 1 for i in at), count], False, at, told)

    def _answers(self, fed: Impulses, lags: np.ndarray) -> torch.Tensor:
        """The answers (K,n,…) at the lags, nothing beyond the reach of an impulse."""
        wide = (self.outputs, self.part.width) if self.part.banked else (self.outputs,)
        found = torch.zeros(len(fed.x), len(lags), *wide, dtype=torch.float64)
        rows, done = len(fed.x), 0
        while done < len(fed.x):
            reach = fed.reach[done]
            steps = int(lags[reach - 1]) + 1
            rows = min(rows, fed.reach.count(reach))
            rows = max(1, min(rows, MOST_IN_PASS // (steps * math.prod(wide))))
            u = pulse(fed.x[done : done + rows].to(self.device, self.dtype), on=1, length=steps)
            try:
                with shortage():
                    answer = self.part.respond(u)
            except MemoryError:
                if rows == 1:
                    raise
                rows //= 2
                release_memory(self.device)
                continue
            _check(answer, (len(u), steps, *wide), "answer")
            at = torch.from_numpy(lags[:reach]).to(answer.device)
            found[done : done + len(u), :reach] = answer.detach()[:, at].to(found)
            done += len(u)
        return found

    def _deviation(self, fed: Impulses, answers: torch.Tensor, lags: np.ndarray) -> float:
        """How far the answers are from those of the kernel."""
        apart: list[torch.Tensor] = []
        for start, stop, kernel in self._blocks(len(lags)):
            off = answers[:, start:stop] - forms.answer_of(kernel, fed.x, banked=self.part.banked)
            beyond = torch.arange(start, stop) >= torch.tensor(fed.reach)[:, None]
            off[beyond] = 0
            apart.append(forms.joined(off, basis=fed.basis))
        return forms.deviation(
            torch.cat(apart).numpy(),
            self.exact[: len(lags)],
            lags,
            rounding=torch.finfo(self.dtype).eps,
            limit=self.tolerance,
        )

    def _note(self, run: forms.Verdict, fed: str) -> str:
        told: list[str] = []
        if len(self.exact) < len(self.lags):
            lag = int(self.lags[len(self.exact)])
            told.append(f"the kernel is not finite from lag {lag} on")
        if len(self.lags) < self.setting.horizon:
            told.append(f"on a grid of {len(self.lags)} lags")
        if run is forms.UNKNOWN:
            told.append(TOO_LARGE)
        if fed.startswith(AIMED):  # a horizon on so few lags may be one of them late
            told.append(f"measured by {fed}")
        return "; ".join(told)


def _check(made: Any, shape: tuple[int, ...], what: str) -> None:
    """Refuse what is no tensor of floats of that shape; -1 stands for any number."""
    found = tuple(made.shape) if isinstance(made, torch.Tensor) and made.is_floating_point() else ()
    alike = (want in (-1, got) for want, got in zip(shape, found, strict=False))
    if len(found) == len(shape) and all(alike) and 0 not in found:
        return
    got = tuple(made.shape) if isinstance(made, torch.Tensor) else type(made).__name__
    wanted = ", ".join("M" if size < 0 else str(size) for size in shape)
    raise SourceError(
        "E_UNSUPPORTED",
        f"a linear layer gives {got} for its {what}, not floats of the shape ({wanted})",
        hint="report it to the authors of the adapter",
        stage="closed-form",
    )
