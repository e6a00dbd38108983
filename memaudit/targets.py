"""Target functionals by name and numbers, as in poly:1.1: what a model should remember."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import torch

from memaudit import registry
from memaudit.errors import ArgumentError, clean
from memaudit.interfaces import AbstractKernelTarget, AbstractTarget

# -- Targets by name and numbers, as in poly:1.1.


def known(text: object) -> bool:
    """Whether a text begins with the name of a target."""
    return isinstance(text, str) and text.partition(":")[0] in registry.available("targets")


def target(text: str) -> AbstractTarget:
    """The target of a text such as exp:0.9, poly:1.5,0.1 or lotka-volterra."""
    name, _, numbers = str(text).partition(":")
    kind: Any = registry.load(registry.find("targets", name))
    words = [word for word in numbers.split(",") if word.strip()]
    options = [field.name for field in fields(kind)]
    try:
        values = [float(word) for word in words]
    except ValueError:
        values = None
    if values is None or len(values) > len(options):
        takes = f"it takes {', '.join(options)}" if options else "it takes none"
        raise ArgumentError(
            f"the target {clean(text)} has no number that fits", hint=f"{takes}, as in {kind()}"
        )
    return registry.build("targets", name, **dict(zip(options, values, strict=False)))


def check_number(target: AbstractTarget, option: str, *, low: float, high: float) -> None:
    """Refuse a number of a target that is not between two others, or is one of them."""
    value: Any = getattr(target, option)
    if isinstance(value, bool) or not isinstance(value, int | float) or not low < value < high:
        fact = f"the target {target.name} has no number that fits: {option} is {clean(value)}"
        raise ArgumentError(fact, hint=f"take a number between {low:g} and {high:g}")


# -- A memory that decays exponentially.


@dataclass(frozen=True, slots=True)
class Exp(AbstractKernelTarget):
    """rho(t) = base^t."""

    name: ClassVar[str] = "exp"
    summary: ClassVar[str] = "rho(t) = base^t, as in exp:0.9"

    base: float = 0.9

    def __post_init__(self) -> None:
        check_number(self, "base", low=-1.0, high=1.0)

    def kernel(self, steps: int) -> torch.Tensor:
        return self.base ** torch.arange(steps, dtype=torch.float64)


# -- A memory that decays as a power of time.


@dataclass(frozen=True, slots=True)
class Poly(AbstractKernelTarget):
    """rho(t) = step (step·t + 1)^-power: (s + 1)^-power in steps of the continuous time s."""

    name: ClassVar[str] = "poly"
    summary: ClassVar[str] = "rho(t) = step (step t + 1)^-power, as in poly:1.1"

    power: float = 1.1
    step: float = 1.0

    def __post_init__(self) -> None:
        check_number(self, "power", low=0.0, high=math.nextafter(100.0, math.inf))
        check_number(self, "step", low=0.0, high=math.inf)

    def kernel(self, steps: int) -> torch.Tensor:
        t = self.step * torch.arange(steps, dtype=torch.float64)
        return self.step * (t + 1.0) ** -self.power


# -- A memory that oscillates around a delay and is over soon after it.


@dataclass(frozen=True, slots=True)
class Airy(AbstractKernelTarget):
    """rho(t) = Ai(step (t - delay)) with the Airy function Ai of the first kind.

    Up to the delay it oscillates, beyond it falls like exp(-2/3 (step (t - delay))^(3/2)), faster
    than every exponential: what matters happened about `delay` steps ago.
    """

    name: ClassVar[str] = "airy"
    summary: ClassVar[str] = "rho(t) = Ai(step (t - delay)), as in airy:20,0.25"

    delay: float = 20.0
    step: float = 0.25

    def __post_init__(self) -> None:
        check_number(self, "delay", low=-math.inf, high=math.inf)
        check_number(self, "step", low=0.0, high=math.inf)

    def kernel(self, steps: int) -> torch.Tensor:
        t = torch.arange(steps, dtype=torch.float64)
        return torch.special.airy_ai(self.step * (t - self.delay))


# -- A memory of one moment: the input of some steps ago.

#: Steps are counted in 64 bits.
LONGEST_LAG = 2.0**53


@dataclass(frozen=True, slots=True)
class Shift(AbstractKernelTarget):
    """y_t = x_{t - lag}, zero before that."""

    name: ClassVar[str] = "shift"
    summary: ClassVar[str] = "y_t = x_{t - lag}, as in shift:10"

    lag: float = 10.0

    def __post_init__(self) -> None:
        check_number(self, "lag", low=-1.0, high=LONGEST_LAG)
        if self.lag != int(self.lag):
            fact = f"the target shift has no number that fits: lag is {self.lag:g}"
            raise ArgumentError(fact, hint="take whole steps")

    def kernel(self, steps: int) -> torch.Tensor:
        return (torch.arange(steps) == int(self.lag)).double()


# -- A nonlinear memory: a Volterra series of order two.


@dataclass(frozen=True, slots=True)
class Volterra(AbstractTarget):
    """y_t = sum_s first^s x_{t-s} + gain sum_{r,s} second^{r+s} x_{t-r} x_{t-s}."""

    name: ClassVar[str] = "volterra"
    summary: ClassVar[str] = (
        "order two: kernels first^s and gain second^{r+s}, as in volterra:0.9,0.8"
    )

    first: float = 0.9
    second: float = 0.8
    gain: float = 1.0

    def __post_init__(self) -> None:
        check_number(self, "first", low=-1.0, high=1.0)
        check_number(self, "second", low=-1.0, high=1.0)
        check_number(self, "gain", low=-math.inf, high=math.inf)

    def answer(self, inputs: torch.Tensor) -> torch.Tensor:
        # The kernel of order two is a product, so its double sum is the square of one sum.
        square = Exp(self.second).answer(inputs).square()
        return Exp(self.first).answer(inputs) + self.gain * square


# -- Predators and prey, driven by the input.

#: Birth and death of the prey, death and birth of the predators; where both begin.
PREY_GROWTH, PREY_LOSS, HUNTER_LOSS, HUNTER_GROWTH = 1.0, 0.6, 1.0, 0.3
BEGINNING = (1.0, 0.5)


@dataclass(frozen=True, slots=True)
class LotkaVolterra(AbstractTarget):
    """The states of dz1/dt = z1 (1 - 0.6 z2), dz2/dt = -z2 (1 - 0.3 z1) + u, in Euler steps.

    From z = (1, 0.5), as in App. E.3 of the paper on linear recurrences; y_t is the state after
    the input u_t was taken in.
    """

    name: ClassVar[str] = "lotka-volterra"
    summary: ClassVar[str] = (
        "predators and prey in Euler steps of `step`, as in lotka-volterra:0.0075"
    )
    outputs: ClassVar[int] = 2

    step: float = 0.0075

    def __post_init__(self) -> None:
        check_number(self, "step", low=0.0, high=math.inf)

    def answer(self, inputs: torch.Tensor) -> torch.Tensor:
        u = inputs[..., 0].to(torch.float64)
        prey, hunters = (torch.full_like(u[:, 0], start) for start in BEGINNING)
        states = []
        for now in u.unbind(1):
            grown = prey + self.step * prey * (PREY_GROWTH - PREY_LOSS * hunters)
            hunters = hunters + self.step * (-hunters * (HUNTER_LOSS - HUNTER_GROWTH * prey) + now)
            prey = grown
            states.append(torch.stack([prey, hunters], dim=-1))
        return torch.stack(states, dim=1)
