"""Reparameterizations: how a raw weight becomes an eigenvalue, one class each."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, ClassVar, Self

import torch

from memaudit import registry
from memaudit.errors import ArgumentError, clean
from memaudit.interfaces import AbstractReparam
from memaudit.numerics.reparameterization import interval_of, modulus
from memaudit.registry import BUILT_IN

if TYPE_CHECKING:
    from torch import Tensor


def check_form(reparam: AbstractReparam, **ranges: tuple[float, float]) -> None:
    """Refuse a time in which there is no form, and options outside of their open ranges."""
    if reparam.time not in reparam.times:
        raise ArgumentError(
            f"the reparameterization {reparam.name} has no {clean(reparam.time)} form",
            hint=f"it has: {', '.join(reparam.times)}",
        )
    for option, (low, high) in ranges.items():
        value = getattr(reparam, option)
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not low < value < high:
            raise ArgumentError(
                f"{option} of the reparameterization {reparam.name} is {clean(value)}",
                hint=f"give a number between {low:g} and {high:g}",
            )


@dataclass(frozen=True, slots=True)
class Direct(AbstractReparam):
    """f(w) = w in both times: nothing keeps a mode from the boundary, and nothing behind it."""

    name: ClassVar[str] = "direct"
    summary: ClassVar[str] = "w itself; not stable"
    times: ClassVar[tuple[str, ...]] = ("continuous", "discrete")
    stable: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_form(self)

    def forward(self, w: torch.Tensor) -> torch.Tensor:
        return w

    def inverse(self, lam: torch.Tensor) -> torch.Tensor:
        return lam

    def contains(self, lam: torch.Tensor) -> torch.Tensor:
        return lam.isfinite()

    def modulus(self, beta: float) -> float:
        del beta
        return math.inf

    @property
    def scale_formula(self) -> str:
        return "1 / w²" if self.time == "continuous" else "1 / (1 - w)²"

    def gradient_scale(self, w: torch.Tensor) -> torch.Tensor:
        away = w.double() if self.time == "continuous" else 1.0 - w.double()
        return away.pow(-2)


@dataclass(frozen=True, slots=True)
class Relu(AbstractReparam):
    """f(w) = -max(w, 0), in discrete time e^{-max(w, 0)}.

    Every w <= 0 is a mode on the boundary, which no gradient moves away from it.
    """

    name: ClassVar[str] = "relu"
    summary: ClassVar[str] = "-max(w, 0); reaches the boundary, not stable"
    times: ClassVar[tuple[str, ...]] = ("continuous", "discrete")
    stable: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_form(self)

    def forward(self, w: torch.Tensor) -> torch.Tensor:
        rate = -w.relu()
        return rate if self.time == "continuous" else rate.exp()

    def inverse(self, lam: torch.Tensor) -> torch.Tensor:
        return -lam if self.time == "continuous" else -lam.log()

    def contains(self, lam: torch.Tensor) -> torch.Tensor:
        if self.time == "continuous":
            return (lam <= 0.0) & lam.isfinite()
        return (lam > 0.0) & (lam <= 1.0)

    def modulus(self, beta: float) -> float:
        del beta
        return math.inf

    @property
    def scale_formula(self) -> str:
        return "1 / w², 0 below" if self.time == "continuous" else "1 / (2 sinh(w/2))², 0 below"

    def gradient_scale(self, w: torch.Tensor) -> torch.Tensor:
        raw = w.double()
        away = raw if self.time == "continuous" else 2.0 * (raw / 2.0).sinh()
        # Where there is no gradient there is no scale, however near the boundary.
        return torch.where(raw > 0.0, away.pow(-2), torch.zeros_like(raw))


@dataclass(frozen=True, slots=True)
class Clip(AbstractReparam):
    """f(w) = min(w, ceiling) in continuous time, with a ceiling below zero.

    A weight beyond the ceiling has no gradient and stays there. The modulus is finite, but large:

        g(beta) = beta / |ceiling|,

    reached by a mode that moves from ceiling - beta up to the ceiling.
    """

    name: ClassVar[str] = "clip"
    summary: ClassVar[str] = "min(w, -1e-4), as S5 does it; no gradient beyond the ceiling"
    times: ClassVar[tuple[str, ...]] = ("continuous",)
    stable: ClassVar[bool] = True

    ceiling: float = -1e-4

    def __post_init__(self) -> None:
        check_form(self, ceiling=(-math.inf, 0.0))

    def forward(self, w: torch.Tensor) -> torch.Tensor:
        return w.clamp(max=self.ceiling)

    def inverse(self, lam: torch.Tensor) -> torch.Tensor:
        return lam

    def contains(self, lam: torch.Tensor) -> torch.Tensor:
        return (lam.double() <= self.ceiling) & lam.isfinite()

    def modulus(self, beta: float) -> float:
        return beta / -self.ceiling

    @property
    def scale_formula(self) -> str:
        return f"1 / w² up to w = {self.ceiling:.3g}, else 0"

    def gradient_scale(self, w: torch.Tensor) -> torch.Tensor:
        raw = w.double()
        return raw.clamp(max=self.ceiling).pow(-2) * (raw <= self.ceiling)


@dataclass(frozen=True, slots=True)
class AbstractRate(AbstractReparam):
    """Every stable mode, in discrete time the positive ones, with the modulus e^beta - 1."""

    times: ClassVar[tuple[str, ...]] = ("continuous", "discrete")
    stable: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_form(self)

    def contains(self, lam: torch.Tensor) -> torch.Tensor:
        if self.time == "continuous":
            return (lam < 0.0) & lam.isfinite()
        return (lam > 0.0) & (lam < 1.0)

    def modulus(self, beta: float) -> float:
        return math.expm1(beta)


@dataclass(frozen=True, slots=True)
class Exp(AbstractRate):
    """f(w) = -e^w, in discrete time e^{-e^w}; the modulus is e^beta - 1 in both."""

    name: ClassVar[str] = "exp"
    summary: ClassVar[str] = "-exp(w), as in Mamba, S4 and LRU"

    def forward(self, w: torch.Tensor) -> torch.Tensor:
        rate = -w.exp()
        return rate if self.time == "continuous" else rate.exp()

    def inverse(self, lam: torch.Tensor) -> torch.Tensor:
        return (-lam).log() if self.time == "continuous" else (-lam.log()).log()

    @property
    def scale_formula(self) -> str:
        return "e^-w" if self.time == "continuous" else "r / (2 sinh(r/2))², r = e^w"

    def gradient_scale(self, w: torch.Tensor) -> torch.Tensor:
        if self.time == "continuous":
            return (-w.double()).exp()
        # Outside of these weights the scale is zero or infinite; rates there would be so, too.
        rate = w.double().clamp(-700.0, 50.0).exp()
        return rate * (2.0 * (rate / 2.0).sinh()).pow(-2)


@dataclass(frozen=True, slots=True)
class Softplus(AbstractRate):
    """f(w) = -log(1 + e^w), in discrete time 1 / (1 + e^w).

    The modulus is e^beta - 1 in both, approached by ever slower modes.
    """

    name: ClassVar[str] = "softplus"
    summary: ClassVar[str] = "-log(1 + exp(w))"

    def forward(self, w: torch.Tensor) -> torch.Tensor:
        if self.time == "discrete":
            return torch.sigmoid(-w)
        # torch's softplus is w itself from 20 on, which is no rounding in float64.
        return -torch.logaddexp(w, torch.zeros_like(w))

    def inverse(self, lam: torch.Tensor) -> torch.Tensor:
        if self.time == "discrete":
            return -torch.logit(lam)
        # log(expm1(-lam)) without its overflow.
        return (-torch.expm1(lam)).log() - lam

    @property
    def scale_formula(self) -> str:
        return "s(w) / log(1 + e^w)², s = sigmoid" if self.time == "continuous" else "e^-w"

    def gradient_scale(self, w: torch.Tensor) -> torch.Tensor:
        if self.time == "discrete":
            return (-w.double()).exp()
        # Below, the scale is infinite in float64, and zero over zero at last.
        raw = w.double().clamp(min=-700.0)
        return raw.sigmoid() / torch.logaddexp(raw, torch.zeros_like(raw)).square()


@dataclass(frozen=True, slots=True)
class Inverse(AbstractReparam):
    """f(w) = -1 / max(w, floor), in discrete time 1 - 1 / max(w, floor).

    IATN, Table 1 names it and gives no formula; this is that of the authors' public code, whose
    floor keeps the discrete eigenvalue above -1. A weight below it has no gradient. In continuous
    time g(beta) = beta / floor.
    """

    name: ClassVar[str] = "inverse"
    summary: ClassVar[str] = "-1 / w; fast modes are cut off, and have no gradient"
    times: ClassVar[tuple[str, ...]] = ("continuous", "discrete")
    stable: ClassVar[bool] = True

    floor: float = 0.5 + 1e-7

    def __post_init__(self) -> None:
        # At one half the discrete eigenvalue is -1.
        check_form(self, floor=(0.0 if self.time == "continuous" else 0.5, math.inf))

    def forward(self, w: torch.Tensor) -> torch.Tensor:
        rate = -1.0 / w.clamp(min=self.floor)
        return rate if self.time == "continuous" else 1.0 + rate

    def inverse(self, lam: torch.Tensor) -> torch.Tensor:
        return -1.0 / lam if self.time == "continuous" else 1.0 / (1.0 - lam)

    def contains(self, lam: torch.Tensor) -> torch.Tensor:
        end = 0.0 if self.time == "continuous" else 1.0
        return (lam < end) & (lam.double() >= end - 1.0 / self.floor)

    def modulus(self, beta: float) -> float:
        if self.time == "continuous":
            return beta / self.floor
        return modulus(self.forward, beta, time=self.time)

    @property
    def scale_formula(self) -> str:
        return f"1 from w = {self.floor:.3g} on, else 0"

    def gradient_scale(self, w: torch.Tensor) -> torch.Tensor:
        return (w.double() >= self.floor).double()


@dataclass(frozen=True, slots=True)
class Tanh(AbstractReparam):
    """f(w) = tanh(w) in discrete time; modulus e^{2 beta} - 1, approached by ever slower modes."""

    name: ClassVar[str] = "tanh"
    summary: ClassVar[str] = "tanh(w), for eigenvalues of both signs"
    times: ClassVar[tuple[str, ...]] = ("discrete",)
    stable: ClassVar[bool] = True

    time: str = "discrete"

    def __post_init__(self) -> None:
        check_form(self)

    def forward(self, w: torch.Tensor) -> torch.Tensor:
        return w.tanh()

    def inverse(self, lam: torch.Tensor) -> torch.Tensor:
        return lam.atanh()

    def contains(self, lam: torch.Tensor) -> torch.Tensor:
        return (lam > -1.0) & (lam < 1.0)

    def modulus(self, beta: float) -> float:
        return math.expm1(2.0 * beta)

    @property
    def scale_formula(self) -> str:
        return "e^2w"

    def gradient_scale(self, w: torch.Tensor) -> torch.Tensor:
        return (2.0 * w.double()).exp()


@dataclass(frozen=True, slots=True)
class Best(AbstractReparam):
    """f(w) = -1 / (a w² + b), in discrete time 1 - 1 / (a w² + b).

    Reaches rates of at most 1/b; at w = 0 it stands at that end without a gradient. In discrete
    time with b = 0.5 that end is exactly -1, which is on the boundary: there the modulus is
    infinite, and a larger b is the remedy. In continuous time

        g(beta) = beta / w*,  w* = (sqrt(beta² + 4 b/a) - beta) / 2,

    where w* is the raw weight of the mode that suffers most.
    """

    name: ClassVar[str] = "best"
    summary: ClassVar[str] = "-1 / (a w² + b), the balanced one of StableSSM; rates up to 1/b"
    times: ClassVar[tuple[str, ...]] = ("continuous", "discrete")
    stable: ClassVar[bool] = True

    a: float = 1.0
    b: float = 0.5

    def __post_init__(self) -> None:
        check_form(self, a=(0.0, math.inf), b=(0.0, math.inf))

    def forward(self, w: torch.Tensor) -> torch.Tensor:
        rate = -1.0 / (self.a * w.square() + self.b)
        return rate if self.time == "continuous" else 1.0 + rate

    def inverse(self, lam: torch.Tensor) -> torch.Tensor:
        away = -lam if self.time == "continuous" else 1.0 - lam
        # Rounding at the end of the range must not take the root of less than nothing.
        return ((1.0 / away - self.b).clamp(min=0.0) / self.a).sqrt()

    def contains(self, lam: torch.Tensor) -> torch.Tensor:
        end = 0.0 if self.time == "continuous" else 1.0
        return (lam < end) & (lam.double() >= end - 1.0 / self.b)

    def modulus(self, beta: float) -> float:
        if self.time == "discrete":
            return modulus(self.forward, beta, time=self.time)
        # 1 / w* with the difference under the bar multiplied out: small betas keep their digits.
        root = math.hypot(beta, 2.0 * math.sqrt(self.b / self.a))
        return beta * (root + beta) * self.a / (2.0 * self.b)

    @property
    def scale_formula(self) -> str:
        return "2a|w|"

    def gradient_scale(self, w: torch.Tensor) -> torch.Tensor:
        return 2.0 * self.a * w.double().abs()

    def fitted(self, lam: torch.Tensor) -> Self:
        """The b comes from the fastest mode, clear of w = 0; a = 2b, as in the paper.

        The modulus depends on b/a alone. In continuous time b is half of the shortest time scale;
        in discrete time halfway from one half, where w = 0 is on the boundary, to the end.
        """
        away = -lam if self.time == "continuous" else 1.0 - lam
        away = away[(away > 0.0) & away.isfinite()].double()
        if not away.numel():
            return self
        end = float(1.0 / away.amax())
        if self.time == "discrete" and end <= 0.5:
            return self
        b = end / 2.0 if self.time == "continuous" else (0.5 + end) / 2.0
        b = float(f"{b:.4g}")  # few digits: they are printed, and typed again
        return replace(self, a=2.0 * b, b=b)


@dataclass(frozen=True, slots=True)
class Heavytail(AbstractReparam):
    """f(w) = -(1 + w) for w >= 0, else -1 / (1 - w), in continuous time.

    Reaches every rate, and its gradient scale is at most 1. The modulus is beta + beta² / 4, of
    the mode at w = beta / 2.
    """

    name: ClassVar[str] = "heavytail"
    summary: ClassVar[str] = "-(1 + w), or -1 / (1 - w) below zero, as in Mamba-3; every rate"
    times: ClassVar[tuple[str, ...]] = ("continuous",)
    stable: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_form(self)

    def forward(self, w: Tensor) -> Tensor:
        # Each branch sees its own half only: the other one would divide by zero at w = 1.
        slow = -1.0 / (1.0 - w.clamp(max=0.0))
        return torch.where(w >= 0.0, -(1.0 + w), slow)

    def inverse(self, lam: Tensor) -> Tensor:
        return torch.where(lam <= -1.0, -lam - 1.0, 1.0 + 1.0 / lam)

    def contains(self, lam: Tensor) -> Tensor:
        return (lam < 0.0) & lam.isfinite()

    def modulus(self, beta: float) -> float:
        return beta + beta * beta / 4.0

    @property
    def scale_formula(self) -> str:
        return "1 / (1 + max(w, 0))²"

    def gradient_scale(self, w: Tensor) -> Tensor:
        return (1.0 + w.double().clamp(min=0.0)).pow(-2)


@dataclass(frozen=True, slots=True)
class Stepped(AbstractReparam):
    """e^{f(w)}: the size of a discrete mode whose rate over one step is f(w)."""

    name: ClassVar[str] = "stepped"
    summary: ClassVar[str] = "a continuous form over one step"
    times: ClassVar[tuple[str, ...]] = ("discrete",)
    stable: ClassVar[bool] = True

    time: str = "discrete"
    inner: AbstractReparam | None = None

    @property
    def _inner(self) -> AbstractReparam:
        assert self.inner is not None
        return self.inner

    def forward(self, w: torch.Tensor) -> torch.Tensor:
        """The eigenvalues."""
        return self._inner.forward(w).exp()

    def inverse(self, lam: torch.Tensor) -> torch.Tensor:
        """The raw weights."""
        return self._inner.inverse(lam.log())

    def contains(self, lam: torch.Tensor) -> torch.Tensor:
        """Which sizes it reaches."""
        positive = lam > 0.0
        return positive & self._inner.contains(lam.clamp(min=1e-300).log())

    def modulus(self, beta: float) -> float:
        """By search."""
        return modulus(self.forward, beta, time=self.time)

    def fitted(self, lam: torch.Tensor) -> Self:
        """With constants for these sizes."""
        return replace(self, inner=self._inner.fitted(lam[lam > 0.0].log()))


def forms(time: str) -> tuple[AbstractReparam, ...]:
    """One of each that has a form in that time, with its default options; ours come first."""
    names = dict.fromkeys((*BUILT_IN["reparams"], *registry.available("reparams")))
    kinds = {name: registry.load(registry.find("reparams", name)) for name in names}
    fitting = [name for name, kind in kinds.items() if time in getattr(kind, "times", ())]
    return tuple(registry.build("reparams", name, time=time) for name in fitting)


#: Moves of a raw weight at which moduli are shown.
BETAS = (0.01, 0.1, 1.0)


@dataclass(frozen=True, slots=True)
class Overview:
    """One form in one time; `reach` are the eigenvalues that it contains, as an interval.

    `moduli` are those of Definition 3.2 at `BETAS`. `scale` is a formula, or the gradient scale at
    the raw weights -1, 0 and 1 where there is none. `options` are its constants.
    """

    name: str
    time: str
    stable: bool
    reach: str
    moduli: tuple[float, ...]
    scale: str
    options: str


def overview(form: AbstractReparam) -> Overview:
    """The numbers of one form."""

    def holds(lam: float) -> bool:
        return bool(form.contains(torch.tensor([lam], dtype=torch.float64)).all())

    reach = interval_of(holds)
    constants = [f for f in fields(form) if f.name != "time"]
    return Overview(
        form.name,
        form.time,
        bool(form.stable),
        "nothing" if reach is None else str(reach),
        tuple(float(form.modulus(beta)) for beta in BETAS),
        clean(form.scale_formula) or _sampled(form),
        ", ".join(f"{clean(f.name)} = {clean(getattr(form, f.name))}" for f in constants),
    )


def _sampled(form: AbstractReparam) -> str:
    weights = torch.tensor([-1.0, 0.0, 1.0], dtype=torch.float64)
    scales = ", ".join(f"{value:.3g}" for value in form.gradient_scale(weights).tolist())
    return f"{scales} at w = -1, 0, 1"
