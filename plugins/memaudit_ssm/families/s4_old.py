"""S4 and S4D as versions 1, 2 and 3 of state-spaces/s4 store them."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import torch
from torch import nn

from memaudit.errors import SourceError, clean
from memaudit_ssm.families.family import AbstractFamily, Group, Whole, weights_error
from memaudit_ssm.families.s4_facts import (
    config_error,
    notes_of,
    read_disc,
    require_agreement,
    require_directions,
    require_length,
    require_one_layer,
    require_rank,
    stated,
)
from memaudit_ssm.families.s4_shapes import require_fitting
from memaudit_ssm.families.s4_stacks import mixing, stack_of
from memaudit_ssm.layers.s4 import S4Layer
from memaudit_ssm.layers.s4_block import ACTIVATIONS, Pointwise, S4OldBlock
from memaudit_ssm.layers.s4_kernel import S4Recipe
from memaudit_ssm.layers.s4_old import OldForm, OldKernel, S4DV3Kernel, S4V1Kernel, S4V3Kernel
from memaudit_ssm.layers.transforms import POSITIVE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from memaudit_ssm.facts import Facts

#: The raw real part of the diagonal, as one version or another calls it.
_REAL = ("inv_w_real", "log_w_real", "inv_A_real", "log_A_real")
_LENGTHS = ("L", "omega", "nodes")
#: Made anew from the nodes, and not finite at the last one.
_MADE = "z"


class S4V3Family(AbstractFamily):
    """kernel.kernel.{C, B, log_dt} with inv_w_real, w_imag, P and L, or inv_A_real and A_imag."""

    name: ClassVar[str] = "s4-v3"
    inside: ClassVar[str] = "kernel.kernel."

    def mine(self, names: set[str]) -> bool:
        """Whether a kernel with tensors of these names is of this version."""
        return bool(names & {"inv_w_real", "inv_A_real", "log_A_real", "L"})

    def find(self, tensors: Mapping[str, Tensor]) -> list[Group]:
        first = self.inside + "log_dt"
        found: list[Group] = []
        for key in tensors:
            prefix = key.removesuffix(first)
            if not key.endswith(first) or (prefix and not prefix.endswith(".")):
                continue
            start = prefix + self.inside
            names = {name.removeprefix(start) for name in tensors if name.startswith(start)}
            if self.mine(names):
                found.append(self._group(prefix, names))
        return found

    def layer(self, group: Group, tensors: Mapping[str, Tensor], facts: Facts) -> S4Layer:
        direct, both = _directions(group, tensors, facts)
        return S4Layer(self._kernel(group, tensors, facts), direct, bidirectional=both)

    def whole(
        self, groups: list[Group], tensors: Mapping[str, Tensor], facts: Facts
    ) -> Whole | str:
        net = stack_of(
            groups, tensors, facts, lambda group: self._block(group, tensors, facts), end="."
        )
        if isinstance(net, str):
            return net
        names: dict[str, str] = {}
        kept: dict[str, Tensor] = {}
        for group in groups:
            nodes = next((k for r, k in group.keys.items() if r.endswith(_LENGTHS[1:])), None)
            if nodes is not None:
                # z follows from the nodes: it takes their place, and they take it back.
                names[group.prefix + self.inside + _MADE] = nodes
                kept[nodes] = tensors[nodes]
        return Whole(
            net, notes=(*notes_of(facts), *self.warnings(groups)), names=names, reshaped=kept
        )

    def warnings(self, groups: list[Group]) -> tuple[str, ...]:
        """What the public code of the version may have done otherwise."""
        if not any(role.endswith(".P") for group in groups for role in group.keys):
            return ()
        return (
            "version 3.0 forgets one of each conjugate pair where neither its CUDA extension nor "
            "pykeops is installed: a model that was trained so had other kernels than these",
        )

    def _group(self, prefix: str, names: set[str]) -> Group:
        known = self._known(names)
        keys = {"D": prefix + "D"}
        keys |= {self.inside + name: prefix + self.inside + name for name in known}
        strange = sorted(names - set(known) - {_MADE})
        return Group(prefix, keys, tuple(prefix + self.inside + name for name in strange))

    def _known(self, names: set[str]) -> list[str]:
        """The names that the kernel must have, and those it may have and has."""
        real = next((name for name in _REAL if name in names), "inv_w_real")
        if real.endswith("A_real"):
            wanted = ["C", "B", "log_dt", real, "A_imag"]
            return wanted + [name for name in ("A",) if name in names]
        diagonal = ["w", "Q"] if "w" in names else [real, "w_imag"]
        further = [name for name in _LENGTHS[:2] if name in names]
        return ["C", "B", "log_dt", "P", *diagonal, *further]

    def _kernel(self, group: Group, tensors: Mapping[str, Tensor], facts: Facts) -> nn.Module:
        _refuse_rates(facts)
        require_one_layer(facts, ("real_transform", "disc"))
        shapes = {
            role.removeprefix(self.inside): tuple(tensors[key].shape)
            for role, key in group.keys.items()
            if role != "D"
        }
        require_fitting(shapes, where=group.prefix + self.inside)
        if "P" in shapes:
            require_rank(facts, shapes["P"][0], key=group.keys[f"{self.inside}P"])
        if "L" in shapes:
            key = group.keys[f"{self.inside}L"]
            require_length(tensors[key], key=key)
        outer = nn.Module()
        outer.add_module(self.inside.split(".")[1], self._made(shapes, facts))
        return outer

    def _made(self, shapes: dict[str, tuple[int, ...]], facts: Facts) -> OldKernel:
        real = next((name for name in _REAL if name in shapes), "w")
        names = tuple(POSITIVE)
        # The names that begin with log say their transform themselves.
        transform = {"w": "none"}.get(real, "exp")
        if real.startswith("inv"):
            transform = facts.choice("real_transform", names, default="exp", also=("real_type",))
        diagonal = real.endswith("A_real")
        require_agreement(facts, {}, low_rank=not diagonal)
        disc = read_disc(facts, default="bilinear") if diagonal else "bilinear"
        recipe = S4Recipe(transform, disc=disc, bandlimit=facts.number("bandlimit"))
        length = None if diagonal else _length(shapes, facts)
        form = OldForm(shapes, recipe, length)
        return S4DV3Kernel(form) if diagonal else S4V3Kernel(form)

    def _block(self, group: Group, tensors: Mapping[str, Tensor], facts: Facts) -> S4OldBlock | str:
        for name in ("gate", "bottleneck", "linear", "shift", "input_linear"):
            if stated(facts, name):
                return f"{name} is set, which is not known here"
        base = group.prefix + "output_linear."
        key = next((base + end for end in ("0.weight", "weight") if base + end in tensors), None)
        if key is None:
            return "a layer has no output_linear"
        direct, both = _directions(group, tensors, facts)
        kernel = self._kernel(group, tensors, facts)
        pointwise = _pointwise(facts, activated=key.endswith("0.weight"))
        plain = S4Layer(kernel, direct, bidirectional=both)
        asked = ("activation", "hyper_act", *(("final_act",) if key.endswith("0.weight") else ()))
        mix = mixing(key, tensors, facts, pointwise, plain, asked=asked)
        assert mix is not None
        return S4OldBlock(kernel, direct, pointwise, bidirectional=both, output_linear=mix)


class S4V2Family(S4V3Family):
    """kernel.kernel.{C, B, P, log_dt} with log_w_real and w_imag, or with w and an untied Q."""

    name: ClassVar[str] = "s4-v2"

    def mine(self, names: set[str]) -> bool:
        return True

    def warnings(self, groups: list[Group]) -> tuple[str, ...]:
        del groups
        return ()


class S4V1Family(S4V2Family):
    """kernel.krylov.{w, B, C, log_dt}: the low-rank part lies in B and C."""

    name: ClassVar[str] = "s4-v1"
    inside: ClassVar[str] = "kernel.krylov."

    def _known(self, names: set[str]) -> list[str]:
        return ["C", "B", "log_dt", "w", *(name for name in ("nodes",) if name in names)]

    def _made(self, shapes: dict[str, tuple[int, ...]], facts: Facts) -> OldKernel:
        recipe = S4Recipe("none", disc="bilinear")
        return S4V1Kernel(OldForm(shapes, recipe, _length(shapes, facts)))


def _directions(group: Group, tensors: Mapping[str, Tensor], facts: Facts) -> tuple[Tensor, bool]:
    """D without numbers, and whether there are kernels for both directions."""
    shape = tuple(tensors[group.keys["D"]].shape)
    named = {role.rpartition(".")[2]: tuple(tensors[key].shape) for role, key in group.keys.items()}
    readout, width = named["C"], named["log_dt"]
    if any(role.startswith("kernel.krylov.") for role in group.keys):
        fits, both = shape == width, False
    else:
        kernels = readout[0] if readout else 0
        fits = shape[1:] == width and kernels in (shape[0], 2 * shape[0])
        both = fits and kernels != shape[0]
    if not fits or 0 in shape:
        raise weights_error(f"{clean(group.keys['D'])} {shape} does not fit kernels {readout}")
    key = next(key for role, key in group.keys.items() if role.endswith(".C"))
    require_directions(facts, both=both, key=key)
    said = stated(facts, "bidirectional")
    if said is not None and bool(said) != both:
        raise config_error(f"it says bidirectional = {clean(said)}, and {clean(key)} {readout}")
    return torch.zeros(shape), both


def _length(shapes: dict[str, tuple[int, ...]], facts: Facts) -> int | None:
    """The length that the config says where no tensor does; E_CONFIG when nothing says it."""
    if any(name in shapes for name in _LENGTHS):
        return None
    said = facts.number("l_kernel", also=("l_max",))
    if said is None or said < 0 or said != int(said):
        raise SourceError(
            "E_CONFIG",
            "the length of the kernel is not stored (L, omega or nodes), and the readout "
            "means nothing without it",
            hint="say it: --set l_kernel=LENGTH, the longest sequence of training",
            stage="config",
        )
    return int(said)


def _refuse_rates(facts: Facts) -> None:
    if stated(facts, "stride") not in (None, 1):
        raise SourceError(
            "E_UNSUPPORTED",
            "the kernels have a stride: only every so many steps are heard",
            hint="audit a model that was trained without it",
            stage="config",
        )
    if stated(facts, "resample"):
        raise SourceError(
            "E_UNSUPPORTED",
            "with resample the step sizes follow the length of the sequence: the layer is "
            "another recurrence for every length",
            hint="audit a model that was trained without it",
            stage="config",
        )


def _pointwise(facts: Facts, *, activated: bool) -> Pointwise:
    names = tuple(ACTIVATIONS)
    final = "none"
    if activated:
        final = facts.choice("final_act", names, default="glu", also=("postact",))
    hyper = facts.choice("hyper_act", names, default="none")
    return Pointwise(
        activation=facts.choice("activation", names, default="gelu"),
        final_act=final,
        hyper_act=None if hyper == "none" else hyper,
    )
