"""What need not be asked: read off the numbers, or presumed with the reason unless said."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from memaudit.errors import clean
from memaudit_ssm.families.family import weights_error

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor

    from memaudit_ssm.facts import Facts

_PLACES = (("model", "layer"), ("layer",), ("model",), ())


def says(facts: Facts, name: str, also: Sequence[str] = ()) -> bool:
    """Whether an option or the config says it, and not by null."""
    sections = [facts.section(*path) for path in _PLACES]
    stated = any(section.get(key) is not None for section in sections for key in (name, *also))
    return facts.given(name) or stated


def presumed_flag(facts: Facts, name: str, *, default: bool, why: str) -> bool:
    """True or false as somebody says, or the default with its reason."""
    if says(facts, name):
        return facts.flag(name, places=_PLACES)
    facts.assumed[name] = f"{str(default).lower()} ({why})"
    return default


def presumed_choice(
    facts: Facts, name: str, choices: Sequence[str], *, why: str, also: Sequence[str] = ()
) -> str:
    """One of the choices as somebody says, or the first one with its reason."""
    if says(facts, name, also):
        return facts.choice(name, choices, also=also, places=_PLACES)
    facts.assumed[name] = f"{choices[0]} ({why})"
    return choices[0]


def plain_numbers(tensors: Mapping[str, Tensor], key: str) -> Tensor:
    """A tensor in a precision in which all kinds of real numbers can be compared."""
    if tensors[key].is_complex():
        raise weights_error(f"{clean(key)} holds complex numbers in the place of real ones")
    return tensors[key].to(torch.float64)
