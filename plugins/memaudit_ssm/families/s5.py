"""S5: the original in JAX, and s5-pytorch."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, ClassVar

from memaudit.errors import SourceError, clean
from memaudit_ssm.families.agreement import MODEL_PLACES, require_alike, require_stated, said_in
from memaudit_ssm.families.family import AbstractFamily, Group, Whole, shape_of, weights_error
from memaudit_ssm.families.flax_model import S5_CODE, whole_model
from memaudit_ssm.families.flax_names import by_module, named_apart, of_optimizer
from memaudit_ssm.families.presumed import plain_numbers, presumed_choice, presumed_flag
from memaudit_ssm.families.s5_model import whole_blocks
from memaudit_ssm.layers.s5 import LARGEST_RATE, S5, STEPS, AbstractS5, FactorizedS5, FlaxS5

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from memaudit_ssm.facts import Facts

_FIRST = re.compile(r"^(?P<prefix>(?:.*[./])?)(?P<leaf>Lambda_re|Lambda)\Z")
_FACTORS = ("BH", "BP", "CH", "CP")
_UNSAID = "nothing says otherwise"


class S5Family(AbstractFamily):
    """Lambda, or Lambda_re and Lambda_im, beside B, C, D and log_step."""

    name: ClassVar[str] = "s5"

    def find(self, tensors: Mapping[str, Tensor]) -> list[Group]:
        found: dict[str, Group] = {}
        modules = by_module(tensors)
        for name in tensors:
            match = _FIRST.match(name)
            if match is None or of_optimizer(name):
                continue
            prefix = match["prefix"]
            # Lambda is a name that others use too.
            if match["leaf"] == "Lambda" and f"{prefix}log_step" not in tensors:
                continue
            roles = {role: prefix + role for role in _roles(tensors, prefix, match["leaf"])}
            strange = tuple(key for key in modules[prefix] if key not in roles.values())
            found[prefix] = Group(prefix, roles, strange)
        return named_apart(found)

    def layer(self, group: Group, tensors: Mapping[str, Tensor], facts: Facts) -> AbstractS5:
        _require_width(group, tensors)
        if "Lambda_re" in group.keys:
            return _flax_layer(group, tensors, facts)
        return _torch_layer(group, tensors, facts)

    def whole(
        self, groups: list[Group], tensors: Mapping[str, Tensor], facts: Facts
    ) -> Whole | str:
        def build(group: Group) -> AbstractS5:
            return self.layer(group, tensors, facts)

        if all("Lambda_re" in group.keys for group in groups):
            return whole_model(groups, tensors, facts, build=build, code=S5_CODE)
        return whole_blocks(groups, tensors, facts, build=build)


def _require_width(group: Group, tensors: Mapping[str, Tensor]) -> None:
    """B, C and D have the same features, and B and log_step the states of Lambda."""
    keys = group.keys
    rates = keys["Lambda_re" if "Lambda_re" in keys else "Lambda"]
    places = {"B": 1, "BH": 0, "C": 0, "C1": 0, "C2": 0, "CH": 1}
    for role, axis in places.items():
        if role in keys:
            require_alike(tensors, (keys[role], axis), (keys["D"], 0))
    for role in ("B", "BP", "log_step"):
        if role in keys:
            require_alike(tensors, (keys[role], 0), (rates, 0))


def _roles(tensors: Mapping[str, Tensor], prefix: str, leaf: str) -> tuple[str, ...]:
    """What the layer must hold, in the form that its first tensors announce."""
    ends = ("D", "log_step")
    if leaf == "Lambda_re":
        apart = f"{prefix}C1" in tensors
        return ("Lambda_re", "Lambda_im", "B", *(("C1", "C2") if apart else ("C",)), *ends)
    factors = f"{prefix}BH" in tensors
    return ("Lambda", *(_FACTORS if factors else ("B", "C")), *ends)


def _flax_layer(group: Group, tensors: Mapping[str, Tensor], facts: Facts) -> FlaxS5:
    states, width = _paired(group, tensors, "B")
    apart = "C1" in group.keys
    columns = _paired(group, tensors, "C1" if apart else "C")[1]
    rates = plain_numbers(tensors, group.keys["Lambda_re"])
    _require_pace(facts)
    # Clipping matters only where there is something to clip.
    loose = bool((rates > LARGEST_RATE).any())
    return FlaxS5(
        width,
        states,
        disc=facts.choice("disc", STEPS, default="zoh", also=("discretization",)),
        bidirectional=apart or _two_ways(group, facts, "C", columns, states),
        apart=apart,
        conj_sym=facts.flag("conj_sym", default=True),
        clip_eigs=loose and facts.flag("clip_eigs", default=False),
    )


def _require_pace(facts: Facts) -> None:
    """Refuse steps that are rescaled after training."""
    pace = said_in(facts, MODEL_PLACES, "step_rescale")
    if pace is not None and pace != 1:
        raise SourceError(
            "E_UNSUPPORTED",
            f"the config says step_rescale = {clean(pace)}, which is not rebuilt",
            hint="add its logarithm to every log_step, and remove it from the config",
            stage="config",
        )


def _torch_layer(group: Group, tensors: Mapping[str, Tensor], facts: Facts) -> AbstractS5:
    _require_linear(facts)
    disc = presumed_choice(facts, "disc", STEPS, why=_UNSAID, also=("discretization",))
    degree = _degree(facts)
    key = group.keys["Lambda"]
    states = shape_of(tensors, key, 1)[0]
    require_stated(facts, MODEL_PLACES, "state_dim", states, f"the length of {clean(key)} is")
    if "BH" in group.keys:
        width, rank = shape_of(tensors, group.keys["BH"], 2)
        columns = shape_of(tensors, group.keys["CP"], 2)[1]
        both = _two_ways(group, facts, "CP", columns, states)
        return FactorizedS5(width, states, rank, disc=disc, bidirectional=both, degree=degree)
    width, columns = shape_of(tensors, group.keys["C"], 2)
    both = _two_ways(group, facts, "C", columns, states)
    return S5(width, states, disc=disc, bidirectional=both, degree=degree)


def _paired(group: Group, tensors: Mapping[str, Tensor], role: str) -> tuple[int, int]:
    rows, columns, two = shape_of(tensors, group.keys[role], 3)
    if two != 2:
        raise weights_error(f"{clean(group.keys[role])} does not end in pairs (real, imaginary)")
    return rows, columns


def _two_ways(group: Group, facts: Facts, role: str, columns: int, states: int) -> bool:
    """Two directions have a column of C each for every state."""
    key = clean(group.keys[role])
    if columns not in (states, 2 * states):
        raise weights_error(f"{key} reads {columns} states where it has {states}")
    both = columns == 2 * states
    said = said_in(facts, MODEL_PLACES, "bidir", "bidirectional")
    if both and said is None and facts.stated:
        # One direction is what the code does unless it is told otherwise.
        fact = f"{key} reads two directions, and the config does not say bidirectional: true"
        raise weights_error(fact)
    if both and said is None:
        facts.assumed["bidirectional"] = f"true (by the columns of {key})"
    if said is not None and bool(said) != both:
        fact = f"{key} reads {columns} columns of {states} states"
        raise weights_error(f"{fact}, and the config says bidirectional = {clean(said)}")
    return both


def _require_linear(facts: Facts) -> None:
    """Refuse the liquid form, whose eigenvalues move with its input."""
    if presumed_flag(facts, "liquid", default=False, why=_UNSAID):
        raise SourceError(
            "E_UNSUPPORTED",
            "the liquid form of S5 is not known here: its eigenvalues move with the input",
            hint="build the model in Python and pass the module to memaudit.scan",
            stage="recognise",
        )


def _degree(facts: Facts) -> int:
    found = facts.number("degree")
    if found is None:
        facts.assumed["degree"] = f"1 ({_UNSAID})"
        return 1
    if not math.isfinite(found) or found != int(found) or found < 1:
        raise SourceError(
            "E_CONFIG",
            f"degree is {found:g}, not a whole number from 1 on",
            hint="correct it, or give --set degree=1",
            stage="config",
        )
    return int(found)
