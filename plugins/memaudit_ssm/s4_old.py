"""S4 and S4D as versions 1, 2 and 3 of state-spaces/s4 store them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from memaudit.errors import SourceError, clean
from memaudit.reparams.direct import Direct
from memaudit.reparams.relu import Relu
from memaudit_ssm.core import Stored, complex_of
from memaudit_ssm.family import AbstractFamily, Group, Whole, weights_error
from memaudit_ssm.s4 import (
    ACTIVATIONS,
    POSITIVE,
    S4_LAWS,
    TIED,
    UNTIED,
    AbstractS4Kernel,
    Continuous,
    LowRank,
    Pointwise,
    S4Layer,
    S4OldBlock,
    S4Recipe,
    band_limited,
    mixing,
    notes_of,
    read_disc,
    require_agreement,
    require_directions,
    require_length,
    require_one_layer,
    require_rank,
    stack_of,
    stated,
    tiled,
)
from memaudit_ssm.settings import Facts, config_error


@dataclass(frozen=True, slots=True)
class OldForm:
    """Which tensors a layer of an older version has, by name, and what they mean.

    `shapes` are those of the stored tensors. `length` is that of the kernel where no tensor says
    it. Nothing but exp makes step sizes in these versions, and nothing changes imaginary parts.
    """

    shapes: dict[str, tuple[int, ...]]
    recipe: S4Recipe
    length: int | None = None


class OldKernel(AbstractS4Kernel):
    """Tensors under the names of an older version; a subclass knows what they mean."""

    #: Stored for the code, not for the system: never trained.
    BUFFERS = ("L", "omega", "nodes")

    def __init__(self, form: OldForm) -> None:
        super().__init__()
        self.form = form
        self.width = form.shapes["log_dt"][0]
        self.disc = form.recipe.disc
        self.real_transform = form.recipe.real_transform
        for name, shape in form.shapes.items():
            if name == "L":
                self.register_buffer(name, torch.zeros(shape, dtype=torch.int64))
            elif name in self.BUFFERS:
                self.register_buffer(name, torch.zeros(shape))
            else:
                self.register_parameter(name, nn.Parameter(torch.zeros(shape)))

    def has(self, name: str) -> bool:
        """Whether the layer stores that tensor."""
        return name in self.form.shapes

    def real(self, name: str) -> Tensor:
        """A stored tensor as it is."""
        return getattr(self, name)

    def pairs(self, name: str) -> Tensor:
        """A stored tensor whose last axis is (real, imaginary), as complex numbers."""
        return torch.view_as_complex(self.real(name).contiguous())

    def steps(self) -> Tensor:
        """The step sizes (H,1)."""
        return self.real("log_dt").exp().unsqueeze(-1)

    def length(self) -> int:
        """The length of the kernel to which the stored readout belongs."""
        if self.has("L"):
            return int(self.real("L"))
        for name in ("omega", "nodes"):
            if self.has(name):
                return length_of_nodes(self.real(name))
        return self.form.length or 0


class S4DV3Kernel(OldKernel):
    """S4D of version 3: inv_A_real or log_A_real, A_imag, B (S,N,2), C and log_dt."""

    def continuous(self) -> Continuous:
        real = -POSITIVE[self.real_transform](self.real(self._name))
        weights = Continuous(
            tiled(complex_of(real, self.real("A_imag")), self.width),
            self.steps(),
            tiled(self.pairs("B"), self.width),
            self.pairs("C"),
        )
        return band_limited(weights, self.form.recipe.bandlimit)

    def decay(self) -> Stored:
        return Stored(self, self._name, S4_LAWS[self.real_transform])

    @property
    def _name(self) -> str:
        return "log_A_real" if self.has("log_A_real") else "inv_A_real"


class S4V3Kernel(OldKernel):
    """S4 of versions 2 and 3: the diagonal w, P and perhaps Q, B, C and log_dt."""

    def continuous(self) -> Continuous:
        left = tiled(self.pairs("P"), self.width)
        right = tiled(self.pairs("Q"), self.width) if self.has("Q") else left.conj()
        weights = Continuous(
            tiled(self._rates(), self.width),
            self.steps(),
            tiled(self.pairs("B")[0], self.width),
            self.pairs("C"),
            LowRank(left, right, self.length()),
        )
        return band_limited(weights, self.form.recipe.bandlimit)

    def _rates(self) -> Tensor:
        if self.has("w"):
            return self.pairs("w")
        raw = self.real(self._name)
        # Here relu alone: the floor came with version 4.
        relu = self.real_transform == "relu"
        rate = functional.relu(raw) if relu else POSITIVE[self.real_transform](raw)
        return complex_of(-rate, self.real("w_imag"))

    def decay(self) -> Stored:
        note = UNTIED if self.has("Q") else TIED
        if self.has("w"):
            return Stored(self, "w", Direct(), part="pairs", note=note)
        relu = self.real_transform == "relu"
        law = Relu() if relu else S4_LAWS[self.real_transform]
        return Stored(self, self._name, law, note=note)

    @property
    def _name(self) -> str:
        return "log_w_real" if self.has("log_w_real") else "inv_w_real"


class S4V1Kernel(OldKernel):
    """S4 of version 1: B holds P in its further rows, C holds Q, and C and Q are conjugated."""

    def continuous(self) -> Continuous:
        rows, read = self.pairs("B"), self.pairs("C").conj()
        rows = rows if rows.ndim == 3 else rows.expand(self.width, *rows.shape)
        rates = self.pairs("w").expand(self.width, -1)
        left, right = rows[:, 1:].transpose(0, 1), read[:, 1:].transpose(0, 1)
        low = LowRank(left, right, self.length())
        return Continuous(rates, self.steps(), rows[:, 0], read[:, :1].transpose(0, 1), low)

    def decay(self) -> Stored:
        return Stored(self, "w", Direct(), part="pairs", note=UNTIED)


def length_of_nodes(nodes: Tensor) -> int:
    """The length L of a kernel from its stored nodes exp(-2 pi i k / L), k = 0 … L/2."""
    count = len(nodes)
    if count < 2:
        return 1
    angle = -math.atan2(float(nodes[1, 1]), float(nodes[1, 0]))
    length = round(2.0 * math.pi / angle) if angle > 0.0 else 0
    if length == 2 * (count - 1):
        return length
    raise SourceError(
        "E_UNSUPPORTED",
        f"the {count} stored nodes of the transform belong to a kernel of {length} steps: the "
        "code of that version transforms even lengths only, of others it makes another kernel",
        hint="run the model once on a longer sequence and save it again",
        stage="weights",
    )


Shapes = dict[str, tuple[int, ...]]

#: The axes in the versions 2 and 3: K kernels, H features, N modes, S copies, R the rank.
_LOW_RANK = {
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
_DIAGONAL = {
    "C": "KHN2",
    "B": "SN2",
    "A": "SN2",
    "inv_A_real": "SN",
    "log_A_real": "SN",
    "A_imag": "SN",
    "log_dt": "H",
}

#: Version 1: the rows are B and P, or C and Q.
_ROWS = {"C": "HRN2", "B": "HRN2", "w": "HN2", "log_dt": "H", "nodes": "M2"}


def require_fitting(shapes: Shapes, *, where: str) -> None:
    """Raise E_WEIGHTS unless every letter of the axes has one size."""
    first = "krylov" in where
    wanted = _ROWS if first else _LOW_RANK if "P" in shapes else _DIAGONAL
    sizes = {"1": 1, "2": 2}
    # C names most letters, and is looked at first.
    for name in sorted(shapes, key=lambda item: item != "C"):
        axes = wanted[name]
        # Version 1 keeps w and B once for all features, or once for each.
        if first and name in ("w", "B") and len(shapes[name]) == len(axes) - 1:
            axes = axes[1:]
        sizes_here = dict(zip(axes, shapes[name], strict=False))
        known = {letter: sizes.get(letter, size) for letter, size in sizes_here.items()}
        if len(axes) != len(shapes[name]) or 0 in shapes[name] or known != sizes_here:
            raise weights_error(f"{clean(where)}{name} {shapes[name]} does not fit its neighbours")
        sizes |= known
    if sizes["H"] % sizes.get("S", 1):
        raise weights_error(f"{clean(where)}: {sizes['S']} copies do not fit {sizes['H']} features")


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
