"""S4 and S4D as version 4 of state-spaces/s4 stores them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from memaudit.errors import clean
from memaudit_ssm.families.agreement import require_alike
from memaudit_ssm.families.family import (
    AbstractFamily,
    Group,
    Whole,
    shape_of,
    weights_error,
)
from memaudit_ssm.families.s4_facts import (
    notes_of,
    read_pointwise,
    read_recipe,
    require_agreement,
    require_directions,
    require_length,
    require_rank,
    stated,
)
from memaudit_ssm.families.s4_stacks import mixing, stack_of
from memaudit_ssm.layers.s4 import S4Layer
from memaudit_ssm.layers.s4_block import Mix, S4Block
from memaudit_ssm.layers.s4_kernel import S4Kernel, S4Sizes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from memaudit_ssm.facts import Facts

#: Either tells of a layer, so that the loss of the other is told too.
_FIRST = re.compile(r"^(?P<prefix>(?:.*\.)?)kernel\.(?:inv_dt|A_real)\Z")
_ALWAYS = ("D", "kernel.C", "kernel.B", "kernel.inv_dt", "kernel.A_real")
_LOW_RANK = ("kernel.P", "kernel.l_kernel")
#: The axes of B and C when their last one is (real, imaginary).
_COMPLEX_AXES = 4


class S4Family(AbstractFamily):
    """kernel.{C, B, inv_dt, A_real, A_imag} beside D; P and l_kernel where there is a low rank."""

    name: ClassVar[str] = "s4"

    def find(self, tensors: Mapping[str, Tensor]) -> list[Group]:
        matches = [m for name in tensors if (m := _FIRST.match(name)) is not None]
        prefixes = dict.fromkeys(match["prefix"] for match in matches)
        return [_group(prefix, tensors) for prefix in prefixes]

    def layer(self, group: Group, tensors: Mapping[str, Tensor], facts: Facts) -> S4Layer:
        sizes, channels = _sizes(group, tensors)
        recipe = read_recipe(facts, low_rank=sizes.rank > 0, real=sizes.real)
        both = sizes.kernels == 2 * channels
        _compare(facts, group, sizes, channels)
        require_directions(facts, both=both, key=group.keys["kernel.C"])
        direct = torch.zeros(channels, sizes.width)
        return S4Layer(S4Kernel(sizes, recipe), direct, bidirectional=both)

    def whole(
        self, groups: list[Group], tensors: Mapping[str, Tensor], facts: Facts
    ) -> Whole | str:
        found = stack_of(
            groups, tensors, facts, lambda group: self._block(group, tensors, facts), end=".layer."
        )
        return found if isinstance(found, str) else Whole(found, notes=notes_of(facts))

    def _block(self, group: Group, tensors: Mapping[str, Tensor], facts: Facts) -> S4Block | str:
        # Of the public code a gate cannot be built, and a bottleneck fits only when it is 1.
        if stated(facts, "gate") is not None or stated(facts, "bottleneck") not in (None, 1):
            return "gate or bottleneck is set, and the public code cannot run that"
        outside = group.prefix.removesuffix("layer.")
        layer = self.layer(group, tensors, facts)
        out, into = outside + "output_linear.0.weight", outside + "input_linear.weight"
        pointwise = read_pointwise(facts, mixed=out in tensors)
        return S4Block(
            layer,
            pointwise,
            output_linear=mixing(out, tensors, facts, pointwise, layer),
            input_linear=_input(tensors, into, layer.width) if into in tensors else None,
        )


def _input(tensors: Mapping[str, Tensor], key: str, width: int) -> Mix:
    """The layer in front; without a gate or a bottleneck it keeps the width."""
    shape = shape_of(tensors, key, 2)
    if shape != (width, width):
        raise weights_error(f"{clean(key)} has the shape {shape}, and the layer {width} features")
    return Mix(shape)


def _group(prefix: str, tensors: Mapping[str, Tensor]) -> Group:
    roles: list[str] = list(_ALWAYS)
    pairs = [tensors.get(f"{prefix}kernel.{name}") for name in ("B", "C")]
    # Real weights have an axis less; one tensor alone with such axes is damaged.
    paired = all(t is None or t.ndim == _COMPLEX_AXES for t in pairs)
    if f"{prefix}kernel.A_imag" in tensors or paired:
        roles.append("kernel.A_imag")
    if any(prefix + role in tensors for role in _LOW_RANK):
        roles += _LOW_RANK
    keys = {role: prefix + role for role in roles}
    inside = [name for name in tensors if name.startswith(f"{prefix}kernel.")]
    return Group(prefix, keys, tuple(name for name in inside if name not in keys.values()))


def _sizes(group: Group, tensors: Mapping[str, Tensor]) -> tuple[S4Sizes, int]:
    """The sizes, and the channels of D; what else does not fit is found when it is filled."""
    keys = group.keys
    width, steps = shape_of(tensors, keys["kernel.inv_dt"], 2)
    copies, modes = shape_of(tensors, keys["kernel.A_real"], 2)
    real = "kernel.A_imag" not in keys
    kernels = shape_of(tensors, keys["kernel.C"], 3 if real else 4)[0]
    rank = shape_of(tensors, keys["kernel.P"], 4)[0] if "kernel.P" in keys else 0
    channels = shape_of(tensors, keys["D"], 2)[0]
    _require_fitting(group, tensors)
    if width % copies or steps not in (1, modes):
        shapes = f"{clean(keys['kernel.A_real'])} has {copies} copies of {modes} modes, which"
        steps_of = f"{clean(keys['kernel.inv_dt'])} with {width} features of {steps} step sizes"
        raise weights_error(f"{shapes} do not fit {steps_of}")
    if kernels not in (channels, 2 * channels):
        shown = f"{clean(keys['kernel.C'])} has {kernels} kernels"
        raise weights_error(f"{shown}, which do not fit {channels} channels of {clean(keys['D'])}")
    if rank:
        require_length(tensors[keys["kernel.l_kernel"]], key=keys["kernel.l_kernel"])
    if real and rank:
        raise weights_error(f"{clean(keys['kernel.P'])} beside real weights")
    sizes = S4Sizes(width, modes, copies, kernels, rank, real=real, per_mode=steps > 1)
    return sizes, channels


def _require_fitting(group: Group, tensors: Mapping[str, Tensor]) -> None:
    """Features, copies and modes are the same wherever they stand."""
    keys = group.keys
    rates = keys["kernel.A_real"]
    require_alike(tensors, (keys["kernel.C"], 1), (keys["kernel.inv_dt"], 0))
    require_alike(tensors, (keys["kernel.C"], 2), (rates, 1))
    require_alike(tensors, (keys["D"], 1), (keys["kernel.inv_dt"], 0))
    require_alike(tensors, (keys["kernel.B"], 1), (rates, 0), axes=2)
    for role in ("kernel.A_imag", "kernel.P"):
        if role in keys:
            start = 1 if role == "kernel.P" else 0
            require_alike(tensors, (keys[role], start), (rates, 0), axes=2)


def _compare(facts: Facts, group: Group, sizes: S4Sizes, channels: int) -> None:
    keys = group.keys
    rates, readout = keys["kernel.A_real"], keys["kernel.C"]
    found: dict[str, tuple[Any, str]] = {
        "d_state": (sizes.modes if sizes.real else 2 * sizes.modes, rates),
        "n_ssm": (sizes.copies, rates),
        "is_real": (sizes.real, readout),
        "bidirectional": (sizes.kernels == 2 * channels, readout),
        "channels": (channels, keys["D"]),
    }
    if sizes.rank and stated(facts, "rank") is not None:
        found["rank"] = (sizes.rank, keys["kernel.P"])
    elif sizes.rank:
        require_rank(facts, sizes.rank, key=keys["kernel.P"])
    require_agreement(facts, found, low_rank=sizes.rank > 0)
