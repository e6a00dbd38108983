"""S4D in its standalone form, and StableSSM."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, ClassVar

from memaudit_ssm.families.agreement import (
    MODEL_PLACES,
    activation_of,
    projection,
    require_alike,
    require_stated,
)
from memaudit_ssm.families.family import (
    AbstractFamily,
    Group,
    Whole,
    indexed,
    shape_of,
    weights_error,
)
from memaudit_ssm.families.pooled import read_pooling
from memaudit_ssm.layers.s4d import S4D, S4DBlock
from memaudit_ssm.layers.transforms import REAL_PART
from memaudit_ssm.models.example import ExampleStack
from memaudit_ssm.models.stable import Projection, StableStack

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from memaudit_ssm.facts import Facts

_FIRST = re.compile(r"^(?P<prefix>(?:.*\.)?)kernel\.(?P<role>log_A_real|A_imag)\Z")
_KERNEL = ("kernel.C", "kernel.log_dt", "kernel.log_A_real", "kernel.A_imag")
_MIX = ("output_linear.0.weight", "output_linear.0.bias")
_EXAMPLE, _STABLE = "s4_layers.", "net.stablessm_layers."
_NETS = (("model", "net"), ("net",))


class S4DFamily(AbstractFamily):
    """kernel.{C, log_dt, log_A_real, A_imag} beside D; B is 1 and not stored."""

    name: ClassVar[str] = "s4d"

    def find(self, tensors: Mapping[str, Tensor]) -> list[Group]:
        groups: dict[str, Group] = {}
        for name in tensors:
            match = _FIRST.match(name)
            if match is None or match["prefix"] in groups:
                continue
            prefix = match["prefix"]
            inside = [key for key in tensors if key.startswith(f"{prefix}kernel.")]
            roles = {role: prefix + role for role in (*_KERNEL, "D")}
            strange = tuple(key for key in inside if key not in roles.values())
            # Other families have an A_imag too; here it tells that log_A_real was lost.
            if match["role"] == "log_A_real" or (not strange and len(inside) == len(_KERNEL) - 1):
                groups[prefix] = Group(prefix, roles, strange)
        return list(groups.values())

    def layer(self, group: Group, tensors: Mapping[str, Tensor], facts: Facts) -> S4D:
        width, states = _sizes(group, tensors)
        return S4D(width, states, parameterization=_parameterization(group, facts))

    def whole(
        self, groups: list[Group], tensors: Mapping[str, Tensor], facts: Facts
    ) -> Whole | str:
        if indexed(groups, _EXAMPLE):
            return _example(groups, tensors, facts)
        if indexed(groups, _STABLE):
            return _stable(groups, tensors, facts)
        return "the layers are named neither s4_layers.N nor net.stablessm_layers.N"


def _sizes(group: Group, tensors: Mapping[str, Tensor]) -> tuple[int, int]:
    width, pairs, two = shape_of(tensors, group.keys["kernel.C"], 3)
    if two != 2:
        raise weights_error(f"{group.keys['kernel.C']} does not end in pairs (real, imaginary)")
    require_alike(
        tensors, (group.keys["kernel.C"], 0), (group.keys["kernel.log_A_real"], 0), axes=2
    )
    return width, 2 * pairs


def _parameterization(group: Group, facts: Facts) -> str:
    """S4D has exp and no other; StableSSM states its own."""
    stable = "stablessm" in group.prefix or bool(facts.section("model", "net"))
    default = "exp" if facts.stated and not stable else None
    return facts.choice(
        "parameterization", tuple(REAL_PART), default=default, also=("real_transform",)
    )


def _example(groups: list[Group], tensors: Mapping[str, Tensor], facts: Facts) -> Whole | str:
    if not {f"{g.prefix}{end}" for g in groups for end in _MIX} <= set(tensors):
        return "a layer has no output_linear"
    outputs, hidden = (
        shape_of(tensors, "decoder.weight", 2) if "decoder.weight" in tensors else (0, 0)
    )
    if not outputs or "encoder.weight" not in tensors:
        return "encoder or decoder is missing"
    layers = [_block(g, tensors, facts) for g in _ordered(groups, _EXAMPLE)]
    inputs = shape_of(tensors, "encoder.weight", 2)[1]
    require_alike(tensors, ("encoder.weight", 0), ("decoder.weight", 1))
    require_stated(facts, MODEL_PLACES, "d_input", inputs, "the inputs of encoder.weight are")
    require_stated(facts, MODEL_PLACES, "d_output", outputs, "the outputs of decoder.weight are")
    require_stated(facts, MODEL_PLACES, "d_model", hidden, "the inputs of decoder.weight are")
    require_stated(facts, MODEL_PLACES, "n_layers", len(layers), "the layers in the file are")
    prenorm = facts.flag("prenorm", default=False)
    pooling = read_pooling(facts, default="mean", also=("pooled",))
    net = ExampleStack(
        layers,
        inputs=inputs,
        outputs=outputs,
        hidden=hidden,
        prenorm=prenorm,
        pooled=pooling != "none",
        pooling=pooling,
    )
    return Whole(net)


def _stable(groups: list[Group], tensors: Mapping[str, Tensor], facts: Facts) -> Whole | str:
    if not {f"{g.prefix}{end}" for g in groups for end in _MIX} <= set(tensors):
        return "a layer has no output_linear"
    if not {"encoder.U.weight", "decoder.U.weight"} <= set(tensors):
        return "encoder.U or decoder.U is missing"
    layers = [_block(g, tensors, facts) for g in _ordered(groups, _STABLE)]
    hidden, inputs, first = projection(facts, tensors, "encoder")
    outputs, _, last = projection(facts, tensors, "decoder")
    require_alike(tensors, ("encoder.U.weight", 0), ("decoder.U.weight", 1))
    require_stated(facts, _NETS, "rec1_size", hidden, "the outputs of encoder.U.weight are")
    require_stated(facts, _NETS, "n_layers", len(layers), "the layers in the file are")
    prenorm, pooling = facts.flag("prenorm", default=False), _pooling(facts)
    ends = (
        Projection(inputs, hidden, bias=first, activation=activation_of(facts, "encoder")),
        Projection(hidden, outputs, bias=last, activation=activation_of(facts, "decoder")),
    )
    net = StableStack(
        layers,
        ends=ends,
        hidden=hidden,
        prenorm=prenorm,
        pooled=pooling != "none",
        pooling=pooling,
    )
    return Whole(net)


def _pooling(facts: Facts) -> str:
    """StableSSM says return_seq for the opposite of an average."""
    sequences = facts.section("model", "net").get("return_seq")
    if sequences is None or facts.given("pool"):
        return read_pooling(facts, default="mean")
    return "none" if sequences else "mean"


def _block(group: Group, tensors: Mapping[str, Tensor], facts: Facts) -> S4DBlock:
    width, states = _sizes(group, tensors)
    require_alike(
        tensors, (group.keys["kernel.C"], 0), (f"{group.prefix}output_linear.0.weight", 1)
    )
    require_stated(facts, MODEL_PLACES, "d_state", states, f"{group.keys['kernel.C']} has room for")
    return S4DBlock(width, states, parameterization=_parameterization(group, facts))


def _ordered(groups: list[Group], start: str) -> list[Group]:
    by_prefix = {group.prefix: group for group in groups}
    return [by_prefix[f"{start}{i}."] for i in range(len(groups))]
