"""The linear recurrent unit: minimal-LRU in flax, and its ports to torch."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, ClassVar

from memaudit.errors import SourceError, clean
from memaudit_ssm.families.agreement import MODEL_PLACES, require_stated
from memaudit_ssm.families.family import AbstractFamily, Group, Whole, shape_of, weights_error
from memaudit_ssm.families.flax_model import LRU_CODE, whole_model
from memaudit_ssm.families.flax_names import by_module, named_apart, of_optimizer
from memaudit_ssm.families.presumed import plain_numbers, presumed_flag
from memaudit_ssm.layers.lru import LRU

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from memaudit_ssm.facts import Facts

_FIRST = re.compile(r"^(?P<prefix>(?:.*[./])?)(?P<leaf>nu_log|nu|theta_log)\Z")
_SPLIT = ("B_re", "B_im", "C_re", "C_im")
_VECTORS = ("nu_log", "theta_log", "gamma_log")


class LRUFamily(AbstractFamily):
    """nu_log, theta_log and gamma_log beside B, C and D."""

    name: ClassVar[str] = "lru"

    def find(self, tensors: Mapping[str, Tensor]) -> list[Group]:
        found: dict[str, Group] = {}
        modules = by_module(tensors)
        for name in tensors:
            match = _FIRST.match(name)
            if match is None or of_optimizer(name):
                continue
            prefix = match["prefix"]
            if match["leaf"] == "nu" and not _is_port(tensors, prefix):
                continue
            # Beside gamma_log it tells that nu_log was lost.
            if match["leaf"] == "theta_log" and f"{prefix}gamma_log" not in tensors:
                continue
            roles = _roles(tensors, prefix)
            strange = tuple(key for key in modules[prefix] if key not in roles.values())
            found[prefix] = Group(prefix, roles, strange)
        return named_apart(found)

    def layer(self, group: Group, tensors: Mapping[str, Tensor], facts: Facts) -> LRU:
        _require_logarithms(group, tensors)
        form = _form(group, tensors)
        end = "_re" if form == "split" else ""
        b, c = (_shape(group, tensors, name, form) for name in ("B", "C"))
        direct = tensors.get(group.keys["D"])
        dense = direct is not None and direct.ndim == 2
        if not dense and b[1] != c[0]:
            shown = [clean(group.keys[role + end]) for role in "BC"]
            fact = f"{shown[0]} has {b[1]} inputs and {shown[1]} {c[0]} outputs"
            raise weights_error(f"{fact}, which {clean(group.keys['D'])} does not join")
        first = group.keys["B" + end]
        require_stated(facts, MODEL_PLACES, "d_hidden", b[0], f"the states of {clean(first)} are")
        return LRU(b[1], b[0], outputs=c[0], form=form, dense=dense, doubled=_doubled(facts, form))

    def whole(
        self, groups: list[Group], tensors: Mapping[str, Tensor], facts: Facts
    ) -> Whole | str:
        def build(group: Group) -> LRU:
            return self.layer(group, tensors, facts)

        return whole_model(groups, tensors, facts, build=build, code=LRU_CODE)


def _is_port(tensors: Mapping[str, Tensor], prefix: str) -> bool:
    """Whether nu has the company of an LRU: it is a name that others use too."""
    return f"{prefix}theta" in tensors and any(f"{prefix}{b}" in tensors for b in ("B", "B_re"))


def _roles(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, str]:
    """The name inside the layer → the name in the file; ports may leave out _log."""
    short = {role: prefix + role.removesuffix("_log") for role in _VECTORS}
    roles = {
        role: key if prefix + role not in tensors and key in tensors else prefix + role
        for role, key in short.items()
    }
    matrices = ("B", "C") if f"{prefix}B" in tensors else _SPLIT
    return roles | {name: prefix + name for name in (*matrices, "D")}


def _form(group: Group, tensors: Mapping[str, Tensor]) -> str:
    if "B" not in group.keys:
        return "split"
    return "complex" if tensors[group.keys["B"]].is_complex() else "pairs"


def _shape(group: Group, tensors: Mapping[str, Tensor], name: str, form: str) -> tuple[int, ...]:
    """Rows and columns of B or C."""
    if form == "split":
        return shape_of(tensors, group.keys[f"{name}_re"], 2)
    key = group.keys[name]
    shape = shape_of(tensors, key, 3 if form == "pairs" else 2)
    if form == "pairs" and shape[2] != 2:
        raise weights_error(f"{clean(key)} does not end in pairs (real, imaginary)")
    return shape[:2]


def _require_logarithms(group: Group, tensors: Mapping[str, Tensor]) -> None:
    """Refuse nu, theta or gamma that may be the numbers themselves: only a log is negative.

    Logarithms of phases above 1 are positive too: theta is what nu is, if both leave out _log.
    """
    keys = {role: key for role, key in group.keys.items() if not key.endswith(role)}
    open_ones = {
        role: key
        for role, key in keys.items()
        if role in _VECTORS and not bool((plain_numbers(tensors, key) < 0).any())
    }
    if "nu_log" in keys and "nu_log" not in open_ones:
        open_ones.pop("theta_log", None)
    for role, key in open_ones.items():
        raise SourceError(
            "E_UNSUPPORTED",
            f"{clean(key)} may hold numbers or their logarithms: none is negative",
            hint=f"save the logarithms under the name {role}",
            stage="recognise",
        )


def _doubled(facts: Facts, form: str) -> bool:
    """Known of minimal-LRU, which does not double; of ports only by being told."""
    if form == "split":
        return False
    unsaid = "nothing says that the port doubles Re(C x)"
    return presumed_flag(facts, "conj_sym", default=False, why=unsaid)
