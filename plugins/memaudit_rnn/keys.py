"""Recognising recurrent tensors by their names, whatever stands in front of them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from memaudit.errors import clean

if TYPE_CHECKING:
    from collections.abc import Iterable

#: One spelling per layer: other digits, zeros in front and a newline behind make another name.
RECURRENT = re.compile(
    r"^(?P<prefix>(?:.*[._])?)(?P<role>weight|bias|w|b)_(?P<gate>ih|hh|hr)"
    r"(?:_l(?P<layer>0|[1-9][0-9]{0,2}))?(?P<reverse>_reverse)?\Z"
)
#: Weight norm, spectral norm and parametrizations keep the plain name inside a longer one.
PARAMETRIZED = re.compile(r"(?:^|[._])(?:weight|bias|w|b)_(?:ih|hh|hr)(?:[._]|$)")
#: The stored original of a weight whose plain name holds what was computed from it.
ORIGINAL = re.compile(
    r"^(?P<prefix>(?:.*?[._])??)(?:parametrizations\.)?(?P<name>(?:weight|bias|w|b)_(?:ih|hh|hr)"
    r"(?:_l[0-9]{1,3})?(?:_reverse)?)(?:_raw|_orig|_g|_v|\.original[0-9]*)\Z"
)
#: Recurrent parameters of other families.
FOREIGN = re.compile(
    r"(?:^|\.)(?:A_logs?|nu_log|theta_log|Lambda(?:_re|_im)?|log_A_real|inv_dt|time_decay"
    r"|recurrent_param|recurrent_kernel)$"
)
#: What training wrappers put in front of every name.
WRAPPERS = re.compile(r"^(?:(?:module|_orig_mod|state_dict|model|net)\.)+")
ROLES = {"weight": "weight", "w": "weight", "bias": "bias", "b": "bias"}


@dataclass(frozen=True, slots=True)
class Place:
    """Where a tensor stands in its stack: torch's name for it is `str(place)`."""

    role: str
    gate: str
    layer: int
    reverse: bool = False

    def __str__(self) -> str:
        return f"{self.role}_{self.gate}_l{self.layer}{'_reverse' if self.reverse else ''}"


@dataclass(frozen=True, slots=True)
class StackKeys:
    """The names of one recurrent stack: place → key in the checkpoint.

    `rivals` are pairs of keys that claim the same place.
    """

    prefix: str
    is_cell: bool
    keys: dict[Place, str] = field(default_factory=dict)
    rivals: list[tuple[str, str]] = field(default_factory=list)

    def name(self, fallback: str) -> str:
        """The stack's own name, without wrappers; the fallback when it has none."""
        return clean(WRAPPERS.sub("", self.prefix)).rstrip("._") or fallback

    def key(self, place: Place) -> str:
        """The key of a place, or what it would be called."""
        return self.keys.get(place) or f"{self.prefix}{place}"


def find_stacks(names: Iterable[str]) -> list[StackKeys]:
    """Every recurrent stack among the names, in the order of their first tensor."""
    stacks: dict[tuple[str, bool], StackKeys] = {}
    for name in names:
        match = RECURRENT.match(name)
        if match is None:
            continue
        is_cell = match["layer"] is None
        place = Place(
            ROLES[match["role"]], match["gate"], int(match["layer"] or 0), bool(match["reverse"])
        )
        stack = stacks.setdefault(
            (match["prefix"], is_cell), StackKeys(match["prefix"], is_cell=is_cell)
        )
        first = stack.keys.setdefault(place, name)
        if first != name:
            stack.rivals.append((first, name))
    return list(stacks.values())


def is_parametrized(name: str) -> bool:
    """Whether a name holds a recurrent weight in another form than torch's plain one."""
    return RECURRENT.match(name) is None and PARAMETRIZED.search(name) is not None


def lookalikes(names: Iterable[str]) -> list[str]:
    """The names that speak of a recurrence but are no plain weight of an RNN, GRU or LSTM."""
    return [name for name in names if is_parametrized(name) or FOREIGN.search(name)]


def originals(alike: Iterable[str]) -> dict[str, list[str]]:
    """Plain key → the stored originals that it may be computed from.

    An original stands beside its plain key or in the module around: weight dropping keeps
    `weight_hh_l0_raw` around what it calls `module.weight_hh_l0`.
    """
    found: dict[str, list[str]] = {}
    for name in alike:
        if match := ORIGINAL.match(name):
            for inner in ("", "module."):
                found.setdefault(f"{match['prefix']}{inner}{match['name']}", []).append(name)
    return found
