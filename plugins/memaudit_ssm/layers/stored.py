"""Which weight of a layer makes its modes, and what a retrofit says of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

if TYPE_CHECKING:
    from memaudit.contracts import AbstractReparam


@dataclass(frozen=True, slots=True, eq=False)
class Stored:
    """What a `DiagonalDecay` says, without the name of the layer."""

    owner: nn.Module
    name: str
    law: AbstractReparam
    part: str = "all"
    note: str = ""


def is_computed(owner: nn.Module, name: str) -> bool:
    """Whether a weight is made by a parametrization that is no retrofit."""
    return parametrize.is_parametrized(owner, name) and told_form(owner, name) is None


def told_form(owner: nn.Module, name: str) -> str | None:
    """What a retrofit says of the form of a weight; None for a weight without one."""
    if not parametrize.is_parametrized(owner, name):
        return None
    told = getattr(owner.parametrizations[name][0], "told", None)  # type: ignore[index]
    return None if told is None else str(told)


def class_name(module: nn.Module) -> str:
    """What the class was called before a weight was put behind a parametrization."""
    return parametrize.type_before_parametrizations(module).__name__


def complex_of(real: Tensor, imaginary: Tensor) -> Tensor:
    """Complex numbers in the wider precision of the two, which `torch.complex` does not choose.

    The weights of a retrofitted layer may be asked for in double precision one by one.
    """
    dtype = torch.promote_types(real.dtype, imaginary.dtype)
    return torch.complex(real.to(dtype), imaginary.to(dtype))
