"""What both kinds of retrofitted weights have in common: they remember what they began with."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memaudit.reparam import AbstractReparam


class RetrofittedWeight(nn.Module, ABC):
    """A parametrization in torch's sense: from raw weights to the stored one.

    As long as no raw weight has moved, the stored weight is given back bit by bit; where some
    have, it is what the form makes of them. `told` names the form with its constants.
    """

    anchor: Tensor

    def __init__(self, form: AbstractReparam, stored: Tensor) -> None:
        super().__init__()
        self.form = form
        self.register_buffer("anchor", stored.detach().clone())

    @property
    def told(self) -> str:
        """The form with its constants, such as `best (a=0.125, b=0.0625)`."""
        constants = ", ".join(f"{name}={value:.6g}" for name, value in self.constants().items())
        return f"{self.inner.name} ({constants})" if constants else self.inner.name

    @property
    def inner(self) -> AbstractReparam:
        """The form itself, also where it is seen once per step."""
        return getattr(self.form, "inner", None) or self.form

    def constants(self) -> dict[str, float]:
        """The constants of the form by name."""
        named = ((f.name, getattr(self.inner, f.name)) for f in fields(self.inner))
        return {name: value for name, value in named if isinstance(value, float)}

    @abstractmethod
    def made(self, *raw: Tensor) -> Tensor:
        """The stored weight of the form alone, whatever it began with."""

    @abstractmethod
    def forward(self, *raw: Tensor) -> Tensor:
        """The stored weight."""

    @abstractmethod
    def reaches(self, stored: Tensor) -> bool:
        """Whether the form holds all modes of a stored weight, and holds them inside."""

    @abstractmethod
    def right_inverse(self, stored: Tensor) -> tuple[Tensor, ...]:
        """The raw weights of a stored weight, which is what it begins with from then on."""

    def dtype_of(self, raw: Tensor) -> torch.dtype:
        """The stored weight's own, unless raw weights are put in that are wider than they were."""
        wider = raw.dtype != self.starts()[0].dtype
        return raw.dtype if wider else self.anchor.dtype

    def starts(self) -> tuple[Tensor, ...]:
        """The raw weights that it began with."""
        return tuple(getattr(self, f"start{k}") for k in range(self.count))

    def begin_with(self, stored: Tensor, raw: Sequence[Tensor]) -> Self:
        """Take a stored weight and its raw ones as those that it began with."""
        self.anchor = stored.detach().to(self.anchor.dtype).clone()
        self.count = len(raw)
        for k, value in enumerate(raw):
            self.register_buffer(f"start{k}", value.detach().clone())
        return self


def reached(form: AbstractReparam, lam: Tensor) -> Tensor:
    """Which modes the form holds; a stable one only those that are stable."""
    inside = lam < 0.0 if form.time == "continuous" else lam.abs() < 1.0
    return form.contains(lam) & (inside if form.stable else torch.ones_like(inside))


def either(kept: Tensor, anchor: Tensor, made: Tensor) -> Tensor:
    """The anchor where `kept`, to the last bit, and with the gradient that `made` has."""
    if not torch.is_grad_enabled():  # a sum would lose the sign of zero
        return torch.where(kept, anchor, made)
    return torch.where(kept, anchor + (made - made.detach()), made)


def held(raw: Tensor, limits: tuple[float, float]) -> Tensor:
    """The raw numbers inside of the limits; those outside keep a gradient that leads them back."""
    inside, still = raw.clamp(*limits).detach(), torch.zeros_like(raw)
    # Far out raw + (inside - raw) has lost all digits of the limit, and infinity makes it nonsense.
    pull = torch.where(raw.isfinite(), raw - raw.detach(), still)
    return torch.where(raw == inside, raw, inside + pull)


def at_least_single(stored: Tensor) -> torch.dtype:
    """The dtype of raw weights: that of the stored one, or single precision if it has less."""
    small = stored.is_floating_point() and torch.finfo(stored.dtype).bits < 32
    return torch.float32 if small else stored.dtype


def weight_of(owner: nn.Module, name: str) -> Any:
    """The retrofitted weight behind a name; None when there is none."""
    behind = getattr(owner, "parametrizations", None)
    if not isinstance(behind, nn.ModuleDict) or name not in behind:
        return None
    first = next(iter(behind[name].children()), None)
    return first if isinstance(first, RetrofittedWeight) else None
