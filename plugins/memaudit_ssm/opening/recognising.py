"""Which family the tensors of a file belong to, and whether all of them are known to it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from memaudit.errors import SourceError, clean
from memaudit_ssm.families import FAMILIES
from memaudit_ssm.hosts.keys import lookalikes
from memaudit_ssm.hosts.naming import listed
from memaudit_ssm.opening.names import unwrapped

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch
    from torch import Tensor

    from memaudit_ssm.families.family import AbstractFamily, Group
    from memaudit_ssm.settings import Settings

_HINT = "build the model in Python and pass the module to memaudit.scan, or report the variant"


@dataclass(frozen=True, slots=True)
class Checked:
    """Tensors from a file, and how they are to be run."""

    text: str
    tensors: Mapping[str, Tensor] = field(repr=False)
    config: Mapping[str, Any] = field(repr=False)
    options: Mapping[str, Any] = field(repr=False)
    device: torch.device
    dtype: torch.dtype
    sha256: str
    notes: tuple[str, ...]
    settings: Settings


@dataclass(frozen=True, slots=True)
class Recognised:
    """A family, its layers among the tensors, and the tensors by their plain names."""

    family: AbstractFamily
    groups: list[Group]
    tensors: dict[str, Tensor] = field(repr=False)
    #: plain name → name in the file
    names: dict[str, str] = field(repr=False)


def recognise(tensors: Mapping[str, Tensor]) -> Recognised | None:
    """The first family with a layer among the tensors."""
    for names in (unwrapped(tensors), {name: name for name in tensors}):
        plain = {short: tensors[name] for short, name in names.items()}
        for family in FAMILIES:
            groups = family.find(plain)
            if groups:
                return Recognised(family, groups, plain, names)
    return None


def require_known(found: Recognised) -> None:
    """Refuse a variant: tensors inside a layer, or that speak of a recurrence, nobody knows."""
    used = {key for group in found.groups for key in group.keys.values()}
    strange = [key for group in found.groups for key in group.strange]
    alike = [name for name in lookalikes(found.tensors) if name not in used]
    unknown = list(dict.fromkeys([*strange, *alike]))
    missing = sorted(used - set(found.tensors))
    if missing:
        raise SourceError(
            "E_WEIGHTS",
            f"layers of the family {found.family.name} lack {listed(map(clean, missing))}",
            hint="save the whole state dict",
            stage="recognise",
        )
    if unknown:
        shown = (f"{clean(found.names[n])} {tuple(found.tensors[n].shape)}" for n in unknown)
        raise SourceError(
            "E_UNSUPPORTED",
            f"an unknown variant of {found.family.name}; tensors that were not matched: "
            f"{listed(shown)}",
            hint=_HINT,
            stage="recognise",
        )
