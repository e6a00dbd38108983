"""S4 and S4D as versions 1, 2 and 3 of state-spaces/s4 store them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from memaudit.errors import clean
from memaudit.interfaces import DiagonalDecay, NoDecay, StoredDecay
from memaudit.reparams import Direct, Exp, Relu
from memaudit_ssm.core import complex_of
from memaudit_ssm.family import AbstractFamily, Group, Tensors, Whole, weights_error
from memaudit_ssm.s4 import (
    ACTIVATIONS,
    POSITIVE,
    S4_LAWS,
    TIED,
    UNTIED,
    AbstractS4Kernel,
    Continuous,
    Pointwise,
    S4Layer,
    S4Recipe,
    fitting_sizes,
    kernel_notes,
    layer_setting,
    mixing,
    read_disc,
    read_final_act,
    require_agreement,
    require_directions,
    require_length,
    require_one_layer,
    require_rank,
    stated_law,
    tiled,
)
from memaudit_ssm.s4_models import stack_of
from memaudit_ssm.settings import Hyperparameters, config_error, unsupported

Shape = tuple[int, ...]
#: Where the length of the kernel is stored: as it is, or as the nodes of its transform.
_LENGTHS = ("L", "omega", "nodes")


class OldKernel(AbstractS4Kernel):
    """Tensors under the names of an older version; a subclass knows what they mean.

    `length` is that of the kernel where no tensor says it. Nothing but exp makes step sizes in
    these versions, and nothing changes imaginary parts.
    """

    def __init__(self, shapes: Mapping[str, Shape], recipe: S4Recipe, length: int = 0) -> None:
        super().__init__()
        self.names = set(shapes)
        self.recipe = recipe
        self.width = shapes["log_dt"][0]
        self._length = length
        for name, shape in shapes.items():
            if name in _LENGTHS:
                kind = torch.int64 if name == "L" else None
                self.register_buffer(name, torch.zeros(shape, dtype=kind))
            else:
                self.register_parameter(name, nn.Parameter(torch.zeros(shape)))

    def stored(self, name: str) -> Tensor:
        """A stored tensor as it is."""
        return getattr(self, name)

    def pairs(self, name: str) -> Tensor:
        """A stored tensor whose last axis is (real, imaginary), as complex numbers."""
        return torch.view_as_complex(self.stored(name).contiguous())

    def steps(self) -> Tensor:
        """The step sizes (H,1)."""
        return self.stored("log_dt").exp().unsqueeze(-1)

    def length(self) -> int:
        """The length of the kernel to which the stored readout belongs."""
        if "L" in self.names:
            return int(self.stored("L"))
        nodes = next((name for name in _LENGTHS[1:] if name in self.names), None)
        return self._length if nodes is None else length_of_nodes(self.stored(nodes))


class S4DV3Kernel(OldKernel):
    """S4D of version 3: inv_A_real or log_A_real, A_imag, B (S,N,2), C and log_dt."""

    def continuous(self) -> Continuous:
        real = -POSITIVE[self.recipe.real_transform](self.stored(self._name))
        weights = Continuous(
            tiled(complex_of(real, self.stored("A_imag")), self.width),
            self.steps(),
            tiled(self.pairs("B"), self.width),
            self.pairs("C"),
        )
        return weights.band_limited(self.recipe.bandlimit)

    def decay(self) -> DiagonalDecay:
        return DiagonalDecay(self, self._name, S4_LAWS[self.recipe.real_transform])

    @property
    def _name(self) -> str:
        return "log_A_real" if "log_A_real" in self.names else "inv_A_real"


class S4V3Kernel(OldKernel):
    """S4 of versions 2 and 3: the diagonal w, P and perhaps Q, B, C and log_dt."""

    def continuous(self) -> Continuous:
        left = tiled(self.pairs("P"), self.width)
        if "w" in self.names:
            rates = self.pairs("w")
        else:
            raw, transform = self.stored(self._name), self.recipe.real_transform
            # Here relu alone: the floor came with version 4.
            rate = functional.relu(raw) if transform == "relu" else POSITIVE[transform](raw)
            rates = complex_of(-rate, self.stored("w_imag"))
        weights = Continuous(
            tiled(rates, self.width),
            self.steps(),
            tiled(self.pairs("B")[0], self.width),
            self.pairs("C"),
            left=left,
            right=tiled(self.pairs("Q"), self.width) if "Q" in self.names else left.conj(),
            length=self.length(),
        )
        return weights.band_limited(self.recipe.bandlimit)

    def decay(self) -> DiagonalDecay:
        note = UNTIED if "Q" in self.names else TIED
        if "w" in self.names:
            return DiagonalDecay(self, "w", Direct(), part="pairs", note=note)
        transform = self.recipe.real_transform
        law = Relu() if transform == "relu" else S4_LAWS[transform]
        return DiagonalDecay(self, self._name, law, note=note)

    @property
    def _name(self) -> str:
        return "log_w_real" if "log_w_real" in self.names else "inv_w_real"


class S4V1Kernel(OldKernel):
    """S4 of version 1: B holds P in its further rows, C holds Q, and C and Q are conjugated."""

    def continuous(self) -> Continuous:
        rows, read = self.pairs("B"), self.pairs("C").conj()
        rows = rows if rows.ndim == 3 else rows.expand(self.width, *rows.shape)
        return Continuous(
            self.pairs("w").expand(self.width, -1),
            self.steps(),
            rows[:, 0],
            read[:, :1].transpose(0, 1),
            left=rows[:, 1:].transpose(0, 1),
            right=read[:, 1:].transpose(0, 1),
            length=self.length(),
        )

    def decay(self) -> DiagonalDecay:
        return DiagonalDecay(self, "w", Direct(), part="pairs", note=UNTIED)


def length_of_nodes(nodes: Tensor) -> int:
    """The length L of a kernel from its stored nodes exp(-2 pi i k / L), k = 0 … L/2."""
    count = len(nodes)
    if count < 2:
        return 1
    angle = -math.atan2(float(nodes[1, 1]), float(nodes[1, 0]))
    length = round(2.0 * math.pi / angle) if angle > 0.0 else 0
    if length == 2 * (count - 1):
        return length
    raise unsupported(
        f"the {count} stored nodes of the transform belong to a kernel of {length} steps: the "
        "code of that version transforms even lengths only, of others it makes another kernel",
        hint="run the model once on a longer sequence and save it again",
        stage="weights",
    )


class S4OldBlock(S4Layer):
    """S4 of versions 1 to 3: recurrence and mixing layer in one module."""

    def __init__(
        self, layer: S4Layer, pointwise: Pointwise, *, output_linear: nn.Module | None
    ) -> None:
        super().__init__(layer.kernel, layer.D.detach(), bidirectional=layer.bidirectional)
        self.pointwise = pointwise
        self.output_linear = output_linear

    def forward(self, u: Tensor) -> Tensor:
        assert self.output_linear is not None  # no version is without it
        y = self.pointwise.before(self.channels(u))
        return self.pointwise.after(self.output_linear(y))


#: The axes in the versions 2 and 3: K kernels, H features, N modes, S copies, R the rank.
_LOW_RANK_AXES = {
    "C": "KHN2",
    "B": "1SN2",
    "P": "RSN2",
    "Q": "RSN2",
    "w": "SN2",
    "inv_w_real": "SN",
    "log_w_real": "SN",
    "w_imag": "SN",
    "log_dt": "H",
    "L": "",
    "omega": "M2",
}
#: S4D of version 3.
_DIAGONAL_AXES = {
    "C": "KHN2",
    "B": "SN2",
    "A": "SN2",
    "inv_A_real": "SN",
    "log_A_real": "SN",
    "A_imag": "SN",
    "log_dt": "H",
}
#: Version 1: the rows are B and P, or C and Q.
_ROW_AXES = {"C": "HRN2", "B": "HRN2", "w": "HN2", "log_dt": "H", "nodes": "M2"}
#: The raw real part of the diagonal, as one version or another calls it.
_REAL = ("inv_w_real", "log_w_real", "inv_A_real", "log_A_real")
#: Made anew from the nodes, and not finite at the last one.
_MADE = "z"


class S4V3Family(AbstractFamily):
    """kernel.kernel.{C, B, log_dt} with inv_w_real, w_imag, P and L, or inv_A_real and A_imag."""

    name: ClassVar[str] = "s4-v3"
    cell: ClassVar[str] = "s4"
    #: What stands between the prefix of a layer and the names of its kernel.
    inside: ClassVar[str] = "kernel.kernel."

    def mine(self, names: set[str]) -> bool:
        """Whether a kernel with tensors of these names is of this version."""
        return bool(names & {"inv_w_real", "inv_A_real", "log_A_real", "L"})

    def find(self, tensors: Tensors) -> list[Group]:
        first = self.inside + "log_dt"
        found: list[Group] = []
        for key in tensors:
            prefix = key.removesuffix(first)
            if not key.endswith(first) or (prefix and not prefix.endswith(".")):
                continue
            start = prefix + self.inside
            names = {name.removeprefix(start) for name in tensors if name.startswith(start)}
            if self.mine(names):
                known = self._known(names)
                keys = {"D": prefix + "D"} | {self.inside + name: start + name for name in known}
                unknown = sorted(names - set(known) - {_MADE})
                found.append(Group(prefix, keys, tuple(start + name for name in unknown)))
        return found

    def layer(self, group: Group, tensors: Tensors, hyper: Hyperparameters) -> S4Layer:
        direct, both = self._directions(group, tensors, hyper)
        if layer_setting(hyper, "stride") not in (None, 1):
            raise unsupported(
                "the kernels have a stride: only one step in so many is read",
                hint="audit a model that was trained without it",
            )
        if layer_setting(hyper, "resample"):
            raise unsupported(
                "with resample the step sizes follow the length of the sequence: the layer is "
                "another recurrence for every length",
                hint="audit a model that was trained without it",
            )
        require_one_layer(hyper, ("real_transform", "disc"))
        keys = self._kernel_keys(group)
        fitting_sizes(tensors, keys, self._axes(keys, tensors))
        if "P" in keys:
            require_rank(hyper, tensors[keys["P"]].shape[0], keys["P"])
        if "L" in keys:
            require_length(tensors, keys["L"])
        shapes = {name: tuple(tensors[key].shape) for name, key in keys.items()}
        outer = nn.Module()
        outer.add_module(self.inside.split(".")[1], self._made(shapes, hyper))
        return S4Layer(outer, direct, bidirectional=both)

    def whole(self, groups: list[Group], tensors: Tensors, hyper: Hyperparameters) -> Whole | str:
        net = stack_of(
            groups, tensors, hyper, lambda group: self._block(group, tensors, hyper), end="."
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
        notes = (*kernel_notes(hyper), *self.warnings(groups))
        return Whole(net, notes=notes, names=names, reshaped=kept)

    def warnings(self, groups: list[Group]) -> tuple[str, ...]:
        """What the public code of the version may have done otherwise."""
        if not any(role.endswith(".P") for group in groups for role in group.keys):
            return ()
        return (
            "version 3.0 forgets one of each conjugate pair where neither its CUDA extension nor "
            "pykeops is installed: a model that was trained so had other kernels than these",
        )

    def published(self, module: nn.Module, own: Tensors) -> StoredDecay | None:
        names = set(own)
        if not {"C", "log_dt", "B"} <= names:
            return None
        note = TIED if "P" in own and "Q" not in own else UNTIED
        if {"A_imag", "log_A_real"} <= names:
            return DiagonalDecay(module, "log_A_real", Exp())
        if {"A_imag", "inv_A_real"} <= names:
            law = stated_law(module, "inv_A_real", "real_type")
            return (
                NoDecay(law) if isinstance(law, str) else DiagonalDecay(module, "inv_A_real", law)
            )
        if {"w_imag", "P", "log_w_real"} <= names:
            return DiagonalDecay(module, "log_w_real", Exp(), note=note)
        if {"w_imag", "P", "inv_w_real"} <= names:
            law = stated_law(module, "inv_w_real", "real_type")
            # Only later did relu get a floor.
            law = Relu() if law is S4_LAWS["relu"] else law
            return (
                NoDecay(law)
                if isinstance(law, str)
                else DiagonalDecay(module, "inv_w_real", law, note=note)
            )
        if "w" in own and own["w"].shape[-1:] == own["C"].shape[-1:] == (2,):
            return DiagonalDecay(module, "w", Direct(), part="pairs", note=note)
        return None

    def _known(self, names: set[str]) -> list[str]:
        """The names that the kernel must have, and those it may have and has."""
        real = next((name for name in _REAL if name in names), "inv_w_real")
        if real.endswith("A_real"):
            return ["C", "B", "log_dt", real, "A_imag", *(["A"] if "A" in names else [])]
        diagonal = ["w", "Q"] if "w" in names else [real, "w_imag"]
        further = [name for name in _LENGTHS[:2] if name in names]
        return ["C", "B", "log_dt", "P", *diagonal, *further]

    def _kernel_keys(self, group: Group) -> dict[str, str]:
        """The names of the kernel's tensors in the file."""
        return {r.removeprefix(self.inside): key for r, key in group.keys.items() if r != "D"}

    def _axes(self, keys: Mapping[str, str], tensors: Tensors) -> Mapping[str, str]:
        del tensors
        return _LOW_RANK_AXES if "P" in keys else _DIAGONAL_AXES

    def _fits(self, direct: Shape, readout: Shape, width: Shape) -> bool:
        """Whether the shapes of D, C and log_dt fit each other."""
        kernels = readout[0] if readout else 0
        return direct[1:] == width and kernels in (direct[0], 2 * direct[0])

    def _directions(
        self, group: Group, tensors: Tensors, hyper: Hyperparameters
    ) -> tuple[Tensor, bool]:
        """D without numbers, and whether there are kernels for both directions."""
        keys = self._kernel_keys(group)
        shape = tuple(tensors[group.keys["D"]].shape)
        readout, width = (tuple(tensors[keys[name]].shape) for name in ("C", "log_dt"))
        if not self._fits(shape, readout, width) or 0 in shape:
            raise weights_error(f"{clean(group.keys['D'])} {shape} does not fit kernels {readout}")
        both = len(shape) == 2 and readout[0] == 2 * shape[0]
        require_directions(hyper, both=both, key=keys["C"])
        stated = layer_setting(hyper, "bidirectional")
        if stated is not None and bool(stated) != both:
            shown = f"the config says bidirectional = {clean(stated)}"
            raise config_error(f"{shown}, and {clean(keys['C'])} is {readout}")
        return torch.zeros(shape), both

    def _made(self, shapes: dict[str, Shape], hyper: Hyperparameters) -> OldKernel:
        real = next((name for name in _REAL if name in shapes), "w")
        # The names that begin with log say their transform themselves.
        transform = "none" if real == "w" else "exp"
        if real.startswith("inv"):
            transform = hyper.choice(
                "real_transform", tuple(POSITIVE), default="exp", also=("real_type",)
            )
        diagonal = real.endswith("A_real")
        require_agreement(hyper, {}, low_rank=not diagonal)
        disc = read_disc(hyper, default="bilinear") if diagonal else "bilinear"
        recipe = S4Recipe(transform, disc=disc, bandlimit=hyper.number("bandlimit"))
        if diagonal:
            return S4DV3Kernel(shapes, recipe)
        return S4V3Kernel(shapes, recipe, _stated_length(shapes, hyper))

    def _block(self, group: Group, tensors: Tensors, hyper: Hyperparameters) -> S4OldBlock | str:
        for name in ("gate", "bottleneck", "linear", "shift", "input_linear"):
            if layer_setting(hyper, name):
                return f"{name} is set, which is not known here"
        base = group.prefix + "output_linear."
        key = next((base + end for end in ("0.weight", "weight") if base + end in tensors), None)
        if key is None:
            return "a layer has no output_linear"
        layer = self.layer(group, tensors, hyper)
        activated = key.endswith("0.weight")
        names = tuple(ACTIVATIONS)
        final = read_final_act(hyper) if activated else "none"
        hyper_act = hyper.choice("hyper_act", names, default="none")
        pointwise = Pointwise(
            activation=hyper.choice("activation", names, default="gelu"),
            final_act=final,
            hyper_act=None if hyper_act == "none" else hyper_act,
        )
        activations = ("activation", "hyper_act", *(("final_act",) if activated else ()))
        mix = mixing(key, tensors, hyper, pointwise, layer, activations=activations)
        return S4OldBlock(layer, pointwise, output_linear=mix)


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
        return ["C", "B", "log_dt", "w", *(["nodes"] if "nodes" in names else [])]

    def _axes(self, keys: Mapping[str, str], tensors: Tensors) -> Mapping[str, str]:
        # w and B are kept once for all features, or once for each.
        once = [name for name in "wB" if tensors[keys[name]].ndim == len(_ROW_AXES[name]) - 1]
        return _ROW_AXES | {name: _ROW_AXES[name][1:] for name in once}

    def _fits(self, direct: Shape, readout: Shape, width: Shape) -> bool:
        return direct == width

    def _made(self, shapes: dict[str, Shape], hyper: Hyperparameters) -> OldKernel:
        recipe = S4Recipe("none", disc="bilinear")
        return S4V1Kernel(shapes, recipe, _stated_length(shapes, hyper))


def _stated_length(shapes: Mapping[str, Shape], hyper: Hyperparameters) -> int:
    """The length that the config says where no tensor does; E_CONFIG when nothing says it."""
    if any(name in shapes for name in _LENGTHS):
        return 0
    length = hyper.number("l_kernel", also=("l_max",))
    if length is None or length < 0 or length != int(length):
        raise config_error(
            "the length of the kernel is not stored (L, omega or nodes), and the readout "
            "means nothing without it",
            hint="say it: --set l_kernel=LENGTH, the longest sequence of training",
        )
    return int(length)
