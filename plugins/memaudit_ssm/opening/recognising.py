"""Which family the tensors of a file belong to, and whether all of them are known to it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from memaudit.errors import SourceError, clean, listed
from memaudit_ssm.families import FAMILIES
from memaudit_ssm.hosts.keys import lookalikes
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
    shown = [f"{clean(found.names[n])} {tuple(found.tensors[n].shape)}" for n in unknown]
    missing = sorted(used - set(found.tensors))
    if missing:
        beside = f"; not matched: {listed(shown)}" if shown else ""
        raise SourceError(
            "E_WEIGHTS",
            f"layers of the family {found.family.name} lack {listed(map(clean, missing))}{beside}",
            hint="save the whole state dict, under the names of the original",
            stage="recognise",
        )
    if unknown:
        raise _unmatched(found, unknown, shown)


def _unmatched(found: Recognised, unknown: list[str], shown: list[str]) -> SourceError:
    others = [family.name for family in FAMILIES if _holds(family, unknown, found)]
    if others:
        fact = f"layers of several families in one file: {found.family.name}, {', '.join(others)}"
        hint = "save the layers of each family in a file of their own"
    else:
        fact = f"an unknown variant of {found.family.name}"
        hint = _HINT
    return SourceError(
        "E_UNSUPPORTED",
        f"{fact}; tensors that were not matched: {listed(shown)}",
        hint=hint,
        stage="recognise",
    )


def _holds(family: AbstractFamily, unknown: list[str], found: Recognised) -> bool:
    """Whether another family has whole layers among the tensors that were not matched."""
    if family is found.family:
        return False
    groups = family.find(found.tensors)
    return any(
        set(group.keys.values()) <= set(found.tensors) and set(unknown) & set(group.keys.values())
        for group in groups
    )
