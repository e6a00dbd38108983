"""One linear layer: its exact memory from the kernel, its measured one from impulses, compared."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from memaudit.closed_form.result import LayerKernel
from memaudit.devices import release_memory, shortage
from memaudit.errors import SourceError
from memaudit.interfaces import Status
from memaudit.numerics.decay import (
    FEWEST_LAGS,
    SIGNAL_OVER_FLOOR,
    Decay,
    classify,
    half_life_of,
    horizon_of,
    noise_floor,
)
from memaudit.numerics.linear import tolerance_of
from memaudit.numerics.signals import lag_grid, pulse, seeded

if TYPE_CHECKING:
    from collections.abc import Iterator

    from memaudit.interfaces import AbstractLinearPart, Setting

#: Numbers of the kernel up to which all lags are taken; in float64 they fill 64 MB.
MOST_NUMBERS = 2**23
#: Numbers of the kernel that are computed at once: behind each of them may stand a hundred modes.
MOST_AT_ONCE = 2**18
#: Ever coarser grids of lags: the first ones that are all taken, then so many an octave.
GRIDS = ((256, 32), (64, 12), (20, 6))
#: The kernel at lag 0 is the present input, not memory.
FIRST_LAG = 1
#: Roundings of the largest answer that may stand in every other one.
LARGE_ROUNDINGS = 100.0
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
    """What is fed: x (K,D), for how many `lags` each, and whether it is the basis.

    `exact_at` are the positions of the lags at which the largest answer is the supremum.
    """

    x: torch.Tensor
    lags: list[int]
    basis: bool
    exact_at: np.ndarray
    description: str


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
        self.lags = lags_for(setting.horizon, self.numbers)
        self.kept: dict[int, torch.Tensor] = {}

    def record(self, layer: str) -> LayerKernel:
        """Everything about the layer."""
        exact, verdict_exact = self.exact, self._exact_verdict()
        measured, run, off, fed = self._run()
        return LayerKernel(
            layer=layer,
            lags=self.lags[: len(exact)],
            exact=exact,
            measured=measured,
            floor=verdict_exact.floor,
            measured_floor=run.floor,
            status=verdict_exact.status,
            decay=verdict_exact.decay,
            horizon=verdict_exact.horizon,
            half_life=verdict_exact.half_life,
            measured_status=run.status,
            measured_decay=run.decay,
            measured_horizon=run.horizon,
            measured_half_life=run.half_life,
            epsilon=self.setting.epsilon,
            deviation=off,
            tolerance=self.tolerance,
            fed=fed,
            count=len(exact),
            note=self._note(run, fed),
        )

    def _exact_verdict(self) -> Verdict:
        """The verdict on the exact curve; its floor is the rounding of the closed form."""
        lags = self.lags[: len(self.exact)]
        top = float(self.exact[lags >= FIRST_LAG].max(initial=0.0))
        return verdict(
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
        return tolerance_of(self.dtype, self.setting.horizon)

    @cached_property
    def exact(self) -> np.ndarray:
        """The exact memory function, up to the first lag at which it is not finite."""
        sizes = [
            size_of(kernel, banked=self.part.banked)
            for _, _, kernel in self._blocks(len(self.lags))
        ]
        values = torch.cat(sizes).numpy()
        finite = np.isfinite(values)
        return values if finite.all() else values[: int(np.argmin(finite))]

    def _blocks(self, count: int) -> Iterator[tuple[int, int, torch.Tensor]]:
        """The kernel at the first so many lags, a few at a time; kept where all of it is small."""
        small = len(self.lags) * self.numbers <= MOST_NUMBERS
        for start, stop in runs(self.lags, max(1, MOST_AT_ONCE // self.numbers)):
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

    def _run(self) -> tuple[np.ndarray, Verdict, float | None, str]:
        """The measured curve, the verdict on it, the deviation, and what was fed."""
        # Squares, as in a transform, must not overflow.
        largest = np.maximum.accumulate(self.exact)
        count = int((largest <= torch.finfo(self.dtype).max ** 0.5).sum())
        if count <= 1:
            return np.zeros(0), UNKNOWN, None, "nothing"
        lags, fed = self.lags[:count], self._impulses(count)
        answers = self._answers(fed, lags)
        values = joined(answers, basis=fed.basis).numpy()
        finite = np.isfinite(values)
        end = count if finite.all() else int(np.argmin(finite))
        off = self._deviation(fed, answers, lags)
        rounding = torch.finfo(self.dtype).eps
        sizes = torch.nan_to_num(answers.abs().flatten(1).amax(1), nan=0.0, posinf=0.0)
        at = fed.exact_at[fed.exact_at < end]
        run = verdict(
            lags[at],
            values[at],
            floor=rounding * float(sizes.sum() if fed.basis else sizes.amax()),
            rounding=rounding,
            epsilon=self.setting.epsilon,
            overflows=end < count,
        )
        return values[:end], run, off, fed.description

    def _impulses(self, count: int) -> Impulses:
        """Signs for a bank, the basis of a narrow layer, else signs aimed at some of the lags."""
        width, everywhere = self.part.width, np.arange(count)
        flips = torch.randint(2, (1, width), generator=seeded(self.setting.seed))
        signs = 2.0 * flips.double() - 1.0
        if self.part.banked:
            words = "an impulse on all inputs at once, and one of random signs"
            rows = torch.cat([torch.ones(1, width, dtype=torch.float64), signs])
            return Impulses(rows, [count] * 2, False, everywhere, words)
        steps = int(self.lags[count - 1]) + 1
        if width <= WIDEST_BASIS and width * steps * self.outputs <= MOST_ANSWERED:
            basis = torch.eye(width, dtype=torch.float64)
            words = f"an impulse on each of {width} inputs"
            return Impulses(basis, [count] * width, True, everywhere, words)
        return self._aimed(count, signs)

    def _aimed(self, count: int, signs: torch.Tensor) -> Impulses:
        """Every impulse is fed until its lag only: on a geometric grid that costs little."""
        steps = int(self.lags[count - 1]) + 1
        small = steps * max(self.outputs, self.part.width) <= LARGE_ANSWER
        wanted = np.geomspace(1, max(steps - 1, 1), MOST_AIMED if small else FEWEST_AIMED)
        at = np.unique(np.searchsorted(self.lags[:count], wanted.round()).clip(1, count - 1))
        kernels = (self._kernel(int(self.lags[i]), int(self.lags[i]) + 1)[0] for i in at)
        rows = torch.stack([*(signs_for(kernel) for kernel in kernels), signs[0]])
        words = f"{AIMED} {len(at)} of {count} lags, lower bounds elsewhere"
        return Impulses(rows, [*(int(i) + 1 for i in at), count], False, at, words)

    def _answers(self, fed: Impulses, lags: np.ndarray) -> torch.Tensor:
        """The answers (K,n,…) at the lags, zero beyond those that an impulse is fed for."""
        wide = (self.outputs, self.part.width) if self.part.banked else (self.outputs,)
        found = torch.zeros(len(fed.x), len(lags), *wide, dtype=torch.float64)
        rows, done = len(fed.x), 0
        while done < len(fed.x):
            count = fed.lags[done]
            steps = int(lags[count - 1]) + 1
            rows = min(rows, fed.lags.count(count))
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
            at = torch.from_numpy(lags[:count]).to(answer.device)
            found[done : done + len(u), :count] = answer.detach()[:, at].to(found)
            done += len(u)
        return found

    def _deviation(self, fed: Impulses, answers: torch.Tensor, lags: np.ndarray) -> float:
        """How far the answers are from those of the kernel."""
        apart: list[torch.Tensor] = []
        for start, stop, kernel in self._blocks(len(lags)):
            off = answers[:, start:stop] - answer_of(kernel, fed.x, banked=self.part.banked)
            beyond = torch.arange(start, stop) >= torch.tensor(fed.lags)[:, None]
            off[beyond] = 0
            apart.append(joined(off, basis=fed.basis))
        return deviation(
            torch.cat(apart).numpy(),
            self.exact[: len(lags)],
            lags,
            rounding=torch.finfo(self.dtype).eps,
            limit=self.tolerance,
        )

    def _note(self, run: Verdict, fed: str) -> str:
        notes: list[str] = []
        if len(self.exact) < len(self.lags):
            lag = int(self.lags[len(self.exact)])
            notes.append(f"the kernel is not finite from lag {lag} on")
        if len(self.lags) < self.setting.horizon:
            notes.append(f"on a grid of {len(self.lags)} lags")
        if run is UNKNOWN:
            notes.append(TOO_LARGE)
        if fed.startswith(AIMED):  # a horizon on so few lags may be one of them late
            notes.append(f"measured by {fed}")
        return "; ".join(notes)


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


# Curves from kernels and answers


@dataclass(frozen=True, slots=True)
class Verdict:
    """What follows from a curve: its floor with noise, its decay, horizon and half-life."""

    floor: float
    status: Status
    decay: Decay
    horizon: int | None = None
    half_life: float | None = None


#: Of a layer that was not run.
UNKNOWN = Verdict(0.0, Status.NOT_MEASURED, Decay("undetermined"))


def lags_for(steps: int, numbers: int) -> np.ndarray:
    """Lags 0 … steps-1, or a grid of them where `numbers` at every lag are too many."""
    if steps * numbers <= MOST_NUMBERS:
        return np.arange(steps)
    grids = [lag_grid(steps, dense=dense, per_octave=many) for dense, many in GRIDS]
    fitting = [grid for grid in grids if len(grid) * numbers <= MOST_NUMBERS]
    return (fitting or grids[-1:])[0].numpy()


def runs(lags: np.ndarray, most: int) -> Iterator[tuple[int, int]]:
    """Positions (first, last + 1) of consecutive lags, at most so many in a run."""
    breaks = np.flatnonzero(np.diff(lags) != 1) + 1
    for first, end in zip([0, *breaks], [*breaks, len(lags)], strict=True):
        for start in range(int(first), int(end), most):
            yield start, min(start + most, int(end))


def size_of(kernel: torch.Tensor, *, banked: bool) -> torch.Tensor:
    """M(t) = max_i sum_j |rho_ij(t)| of a kernel (L,M,D), max |rho_cd(t)| of a bank (L,C,D).

    It is the supremum of the largest output over impulses x with |x|_inf <= 1.
    """
    sizes = kernel.abs()
    return sizes.amax((1, 2)) if banked else sizes.sum(-1).amax(-1)


def answer_of(kernel: torch.Tensor, x: torch.Tensor, *, banked: bool) -> torch.Tensor:
    """What the kernel (L,M,D) answers to impulses x (K,D): (K,L,M), of a bank (K,L,C,D)."""
    if banked:
        return kernel * x[:, None, None]
    return torch.einsum("lmd,kd->klm", kernel, x)


def joined(answers: torch.Tensor, *, basis: bool) -> torch.Tensor:
    """The largest of answers (K,L,…) at every lag; over a basis the sum over its impulses."""
    sizes = answers.abs().flatten(2)
    return sizes.sum(0).amax(-1) if basis else sizes.amax((0, 2))


def signs_for(kernel: torch.Tensor) -> torch.Tensor:
    """The impulse (D,) that a kernel (M,D) answers loudest: the signs of its largest row."""
    row = kernel[kernel.abs().sum(-1).argmax()]
    return torch.where(row < 0, -1.0, 1.0).to(kernel.dtype)


def deviation(
    difference: np.ndarray, exact: np.ndarray, lags: np.ndarray, *, rounding: float, limit: float
) -> float:
    """The largest difference as a share of the largest memory; infinite where it is not finite.

    Where memory is tiny beside the present answer, the rounding of the latter is allowed for.
    """
    if not np.isfinite(difference).all():
        return float("inf")
    past = lags >= FIRST_LAG
    loudest = float(exact.max(initial=0.0))
    scale = max(float(exact[past].max(initial=0.0)), LARGE_ROUNDINGS * rounding / limit * loudest)
    worst = float(difference[past].max(initial=0.0))
    present = float(difference[~past].max(initial=0.0))
    shares = [part / size for part, size in ((worst, scale), (present, loudest)) if size > 0]
    # A kernel of nothing but zeros has no size: any answer to it is as wrong as can be.
    return max(shares) if shares else float("inf") if max(worst, present) > 0 else 0.0


def verdict(
    lags: np.ndarray,
    values: np.ndarray,
    *,
    floor: float,
    rounding: float,
    epsilon: float,
    overflows: bool = False,
) -> Verdict:
    """The verdict on the finite part of a curve; what overflows behind it grows."""
    past = lags >= FIRST_LAG
    kind = "growing" if overflows and len(lags) else "undetermined"
    lags, values = lags[past], values[past]
    if not len(lags):
        return Verdict(floor, Status.DIVERGED if overflows else Status.TOO_FEW_LAGS, Decay(kind))
    floor = noise_floor(values, floor, rounding)
    decay = classify(lags, values, floor)
    if overflows:
        if decay.kind != "growing":
            decay = Decay("growing", window=(int(lags[0]), int(lags[-1])), confidence=1.0)
        return Verdict(floor, Status.DIVERGED, decay)
    found = Verdict(floor, Status.OK, decay)
    visible = values > SIGNAL_OVER_FLOOR * floor
    if decay.kind == "memoryless":
        return replace(found, status=Status.BELOW_FLOOR, horizon=0)
    if decay.kind in ("persistent", "growing"):
        return found
    if decay.kind == "undetermined" and visible.sum() < FEWEST_LAGS:
        found = replace(found, status=Status.TOO_FEW_LAGS)
    return replace(
        found,
        horizon=horizon_of(decay, lags, values, floor=floor, epsilon=epsilon),
        half_life=half_life_of(decay, lags, values, floor=floor),
    )
