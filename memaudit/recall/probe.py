"""What can be read back from the states of a model: past inputs, one by one."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from memaudit import registry
from memaudit.errors import ArgumentError, clean, nearest
from memaudit.interfaces import NO_TOOLS, AbstractProbe, Tools
from memaudit.recall.result import RecallResult

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from memaudit.interfaces import AbstractSubject, Setting
    from memaudit.recall.result import Decoding, LinearRecall

#: Lags below which a model is too short, and beyond which nothing is measured.
FEWEST, MOST = 2, 2**20
#: Share of the capacity that the lags may leave out without a word.
CUT = 0.01
ROUNDINGS = ("auto", "float64", "float32", "float16", "bfloat16")


@dataclass(frozen=True, slots=True)
class Recall(AbstractProbe):
    """Which past inputs are still in the state, and how many in all?

    Of every linear layer: rank and condition of V_k = [A^(k-1) B, …, A B, B], the error of the
    least-squares inputs V_k^+ x_k, and the same for inputs of few Haar functions (`components`).
    Of any model: R²(lag) of independent inputs from its state by a linear readout, and the memory
    capacity, the sum over lags and channels: exactly where the model is one linear layer, whose
    stationary R²(k) is b_kᵀ P^-1 b_k with P = sum_j b_j b_jᵀ and b_j = A^j B. `lags` None are as
    many as the horizon. `scale` is the standard deviation of the inputs, or stretches real ones
    around their mean. `rounding` is the dtype that rounds the state of a linear layer: "auto" is
    the model's, float32 for float64.
    """

    name = "recall"
    summary = "past inputs read back from the state: R^2 by lag, memory capacity, cond(V)"
    result = RecallResult

    options: ClassVar[Mapping[str, str]] = {
        "lags": "past inputs to look for, as many as the horizon unless given",
        "components": "numbers of Haar functions that inputs are made of, as in 4,8,16",
        "scale": "standard deviation of the inputs",
        "rounding": "dtype that rounds the state: auto, float64, float32, float16, bfloat16",
    }

    lags: int | None = None
    components: int | str | tuple[int, ...] = (4, 8, 16, 32, 64)
    scale: float = 1.0
    rounding: str = "auto"

    def __post_init__(self) -> None:
        """Refuse what cannot be measured, before a model is opened."""
        if self.lags is not None and not _whole(self.lags, FEWEST):
            fact = f"recall.lags is {clean(self.lags)!r}"
            raise ArgumentError(fact, hint=f"give a whole number from {FEWEST} to {MOST}")
        if not all(_whole(count, 1) for count in _listed(self.components)):
            fact = f"recall.components is {clean(self.components)!r}"
            raise ArgumentError(
                fact, hint=f"give numbers of Haar functions, up to {MOST}, as in 4,8,16"
            )
        if self.rounding not in ROUNDINGS:
            fact = f"recall.rounding is {clean(self.rounding)!r}"
            raise ArgumentError(fact, hint=nearest(str(self.rounding), ROUNDINGS))
        number = isinstance(self.scale, int | float) and not isinstance(self.scale, bool)
        if not number or not 0 < self.scale < math.inf:
            fact = f"recall.scale is {clean(self.scale)!r}"
            raise ArgumentError(fact, hint="give a positive number")

    def measure(
        self, subject: AbstractSubject, setting: Setting, tools: Tools = NO_TOOLS
    ) -> RecallResult:
        from memaudit.devices import shortage

        adapter = subject.identity.adapter
        does = "failed while its state was read"
        with registry.calling("adapters", adapter, does), shortage():
            return self._measured(subject, setting, tools.tick)

    def _measured(
        self, subject: AbstractSubject, setting: Setting, tick: Callable[[int, int], None]
    ) -> RecallResult:
        from memaudit.interfaces import Status

        lags = max(FEWEST, setting.horizon if self.lags is None else self.lags)
        linear = self._linear(subject, setting, lags)
        if subject.longest is not None:
            lags = min(lags, subject.longest // 2)
        if lags < FEWEST:
            return RecallResult(linear, (), lags, "", Status.TOO_SHORT)
        decodings, fed = self._decodings(subject, setting, lags, linear, tick)
        status = Status.OK if decodings else Status.NO_STATE
        return RecallResult(linear, decodings, lags, fed, status, "; ".join(_notes(decodings)))

    def _linear(
        self, subject: AbstractSubject, setting: Setting, lags: int
    ) -> tuple[LinearRecall, ...]:
        import torch

        from memaudit.recall.linear import LinearTask

        named = getattr(torch, self.rounding) if self.rounding != "auto" else subject.dtype
        wide = self.rounding == "auto" and named == torch.float64
        dtype = torch.float32 if wide else named
        task = LinearTask(lags, _listed(self.components), dtype, setting.seed)
        return tuple(task.of(name, part) for name, part in subject.linear_parts().items())

    def _decodings(
        self,
        subject: AbstractSubject,
        setting: Setting,
        lags: int,
        linear: tuple[LinearRecall, ...],
        tick: Callable[[int, int], None],
    ) -> tuple[tuple[Decoding, ...], str]:
        """One record per state, and what was fed; nothing where no state can be read."""
        from memaudit.recall.decoding import decode_states
        from memaudit.recall.linear import bare_layer

        exact = bare_layer(subject, linear, setting)
        if exact is not None:
            return (exact,), "independent inputs, in closed form"
        return decode_states(subject, setting, lags=lags, scale=self.scale, tick=tick)


def _notes(decodings: Sequence[Decoding]) -> Iterator[str]:
    """Sentences about what limits the values."""
    used = [item for item in decodings if 0 < item.used < item.numbers]
    if used:
        yield f"wide states were projected at random to {used[0].used} numbers"
    cut = [d for d in decodings if d.whole and (d.capacity or 0.0) < (1 - CUT) * d.whole]
    for item in cut:
        yield (
            f"{len(item.values)} lags cut the capacity: {item.capacity:.4g} "
            f"of {item.whole:.4g} over all lags"
        )
    moving = [item for item in decodings if not item.stationary and len(item.values)]
    if any(item.exact for item in moving):
        yield (
            "some |lambda| is 1 or more, or the layer does not forget in time: there is no "
            f"stationary R^2, that of {len(moving[0].values)} steps from rest is given"
        )
    elif moving:
        named = ", ".join(item.state for item in moving[:3]) + (", ..." if moving[3:] else "")
        yield f"not yet stationary, R^2 may depend on when it is read: {named}"


def _listed(components: object) -> list[Any]:
    """Numbers from a list, or from a text with commas between them; anything else as it is."""
    if isinstance(components, str):
        parts = [part.strip() for part in components.split(",") if part.strip()]
        return [int(part) if part.isdecimal() else part for part in parts]
    return list(components) if isinstance(components, list | tuple) else [components]


def _whole(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= MOST
