"""S5: the original in JAX, and s5-pytorch."""

from __future__ import annotations

import math
import re
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from memaudit.errors import clean
from memaudit.interfaces import DiagonalDecay, NoDecay, StoredDecay
from memaudit.numerics.linear import Modal, System, discretize
from memaudit.reparams import Clip, Direct
from memaudit_ssm.core import Core, complex_of, draw_log_steps
from memaudit_ssm.family import (
    AbstractFamily,
    Group,
    Record,
    SequenceNet,
    Tensors,
    Whole,
    cores_of,
    paired_shape,
    plain_numbers,
    pool,
    require_alike,
    shape_of,
    weights_error,
)
from memaudit_ssm.flax import S5_CODE, find_layers, whole_model
from memaudit_ssm.settings import Hyperparameters, config_error, read_pooling, unsupported

#: As S5 offers them.
STEPS = ("zoh", "bilinear")

#: clip_eigs keeps the real part of every rate at or below this.
LARGEST_RATE = -1e-4


class AbstractS5(Core):
    """x' = Λ x + B u in continuous time, y = Re(C x) + D u; held over steps of exp(log_step).

    Two directions share Λ and B; C has P columns for each, and both directions see the present
    step. `conj_sym` doubles the real part, for one of each conjugate pair is stored; `clip_eigs`
    keeps Re Λ <= -1e-4; `degree` is the power of every entry of B in discrete time.
    """

    cell: ClassVar[str] = "s5"
    parameterization: str = "direct"
    #: The weight that holds the rates, complex or their real parts.
    diagonal: ClassVar[str] = "Lambda"

    def __init__(
        self,
        width: int,
        states: int,
        *,
        disc: str = "zoh",
        bidirectional: bool = False,
        conj_sym: bool = False,
        clip_eigs: bool = False,
        degree: int = 1,
    ) -> None:
        super().__init__()
        if disc not in STEPS:
            raise ValueError(f"{disc!r} is none of {', '.join(STEPS)}")
        self.width = width
        self.modes_stored = states
        self.disc = disc
        self.bidirectional = bidirectional
        self.conj_sym = conj_sym
        self.clip_eigs = clip_eigs
        self.degree = degree
        self.D = nn.Parameter(torch.zeros(width))

    @abstractmethod
    def stored(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Λ (P,), B (P,H), C (H,P) or (H,2P), complex, and log_step (P,), as they are stored."""

    def systems(self) -> Mapping[str, System]:
        rates, b, c, log_step = self.stored()
        if self.clip_eigs:
            rates = torch.complex(rates.real.clamp(max=LARGEST_RATE), rates.imag)
        modes, gains = discretize(rates, log_step.exp(), how=self.disc)
        inputs = (gains.unsqueeze(-1) * b) ** self.degree
        c = 2.0 * c if self.conj_sym else c
        if not self.bidirectional:
            return {"": Modal(modes, inputs, c, self.D)}
        ahead, back = c.tensor_split(2, dim=1)
        return {
            "forward": Modal(modes, inputs, ahead, self.D),
            "backward": Modal(modes, inputs, back),
        }

    def decay(self) -> DiagonalDecay:
        law = Clip(ceiling=LARGEST_RATE) if self.clip_eigs else Direct()
        return DiagonalDecay(
            self, self.diagonal, law, part="real" if self.diagonal == "Lambda" else "all"
        )

    def modes(self) -> Tensor:
        return next(iter(self.systems().values())).modes()

    def run(self, u: Tensor) -> Tensor:
        systems = self.systems()
        if not self.bidirectional:
            return systems[""].run(u, self.execution)
        # Unlike S4's, the backward state includes the present step: nothing is shifted.
        later = systems["backward"].run(u.flip(1), self.execution).flip(1)
        return systems["forward"].run(u, self.execution) + later

    @property
    def states(self) -> int:
        return 2 * self.modes_stored * (2 if self.bidirectional else 1)

    @property
    def columns(self) -> int:
        """Columns of C."""
        return self.modes_stored * (2 if self.bidirectional else 1)


class S5(AbstractS5):
    """The names of s5-pytorch: complex Lambda (P,) and C, B (P,H,2), log_step (P,).

    With a generator the weights are random: rates -1/2 + iπn, steps between 0.001 and 0.1.
    Without one they are zeros, to be loaded.
    """

    def __init__(
        self,
        width: int,
        states: int = 64,
        *,
        disc: str = "zoh",
        bidirectional: bool = False,
        conj_sym: bool = False,
        clip_eigs: bool = False,
        degree: int = 1,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(
            width,
            states,
            disc=disc,
            bidirectional=bidirectional,
            conj_sym=conj_sym,
            clip_eigs=clip_eigs,
            degree=degree,
        )
        self.Lambda = _complex_zeros(states)
        self.B = nn.Parameter(torch.zeros(states, width, 2))
        self.C = _complex_zeros(width, self.columns)
        self.log_step = nn.Parameter(torch.zeros(states))
        if generator is not None:
            self._start(generator)

    def stored(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        return self.Lambda, torch.view_as_complex(self.B), self.C, self.log_step

    @torch.no_grad()
    def _start(self, generator: torch.Generator) -> None:
        half = torch.full((self.modes_stored,), -0.5)
        # Frequencies of both signs where both of a pair are stored.
        order = torch.arange(self.modes_stored, dtype=half.dtype)
        order = order if self.conj_sym else order - (self.modes_stored - 1) / 2
        self.Lambda.copy_(torch.complex(half, math.pi * order))
        self.B.normal_(0.0, math.sqrt(0.5 / self.width), generator=generator)
        pairs = torch.randn(*self.C.shape, 2, generator=generator)
        self.C.copy_(torch.view_as_complex(pairs) * math.sqrt(0.5 / self.modes_stored))
        draw_log_steps(self.log_step, generator)
        self.D.normal_(generator=generator)


class FlaxS5(AbstractS5):
    """The names of S5 in JAX: Lambda_re and Lambda_im (P,), B (P,H,2), log_step (P,1).

    C is (H,P,2), or of two directions either (H,2P,2) or, when `apart`, C1 and C2 (H,P,2).
    """

    diagonal: ClassVar[str] = "Lambda_re"

    def __init__(
        self,
        width: int,
        states: int = 64,
        *,
        disc: str = "zoh",
        bidirectional: bool = False,
        apart: bool = False,
        conj_sym: bool = True,
        clip_eigs: bool = False,
    ) -> None:
        super().__init__(
            width,
            states,
            disc=disc,
            bidirectional=bidirectional,
            conj_sym=conj_sym,
            clip_eigs=clip_eigs,
        )
        self.readouts = ("C1", "C2") if apart else ("C",)
        self.Lambda_re = nn.Parameter(torch.zeros(states))
        self.Lambda_im = nn.Parameter(torch.zeros(states))
        self.B = nn.Parameter(torch.zeros(states, width, 2))
        for name in self.readouts:
            zeros = torch.zeros(width, self.columns // len(self.readouts), 2)
            self.register_parameter(name, nn.Parameter(zeros))
        self.log_step = nn.Parameter(torch.zeros(states, 1))

    def stored(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        rates = complex_of(self.Lambda_re, self.Lambda_im)
        c = torch.cat([torch.view_as_complex(getattr(self, n)) for n in self.readouts], dim=1)
        return rates, torch.view_as_complex(self.B), c, self.log_step[:, 0]


class FactorizedS5(AbstractS5):
    """s5-pytorch with B = BP BHᵀ and C = CHᵀ CP of rank R, complex: BH (H,R), BP (P,R)."""

    def __init__(
        self,
        width: int,
        states: int,
        rank: int,
        *,
        disc: str = "zoh",
        bidirectional: bool = False,
        degree: int = 1,
    ) -> None:
        super().__init__(width, states, disc=disc, bidirectional=bidirectional, degree=degree)
        self.Lambda = _complex_zeros(states)
        self.BH = _complex_zeros(width, rank)
        self.BP = _complex_zeros(states, rank)
        self.CH = _complex_zeros(rank, width)
        self.CP = _complex_zeros(rank, self.columns)
        self.log_step = nn.Parameter(torch.zeros(states))

    def stored(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        return self.Lambda, self.BP @ self.BH.mT, self.CH.mT @ self.CP, self.log_step


def _complex_zeros(*shape: int) -> nn.Parameter:
    return nn.Parameter(torch.view_as_complex(torch.zeros(*shape, 2)))


class S5Holder(nn.Module):
    """The recurrence under the name `seq`."""

    def __init__(self, seq: Core) -> None:
        super().__init__()
        self.seq = seq


class S5Block(nn.Module):
    """S5Block of s5-pytorch: norm, S5, gelu; norm, feed-forward layer, gated when `gated`.

    Both skip connections start behind their norm, not before it.
    """

    def __init__(self, seq: Core, *, hidden: int, gated: bool) -> None:
        super().__init__()
        width = seq.width
        self.gated = gated
        self.s5 = S5Holder(seq)
        self.attn_norm = nn.LayerNorm(width)
        self.ff_enc = nn.Linear(width, hidden * (2 if gated else 1), bias=False)
        self.ff_dec = nn.Linear(hidden, width, bias=False)
        self.ff_norm = nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        x = self.attn_norm(x)
        x = functional.gelu(self.s5.seq(x)) + x
        x = self.ff_norm(x)
        inner = self.ff_enc(x)
        if self.gated:
            kept, gate = inner.chunk(2, dim=-1)
            inner = kept * functional.gelu(gate)
        return self.ff_dec(inner) + x


class S5Stack(SequenceNet):
    """Blocks in a row; `ends` are the sizes (inputs, outputs) of encoder and decoder, or None.

    `biases` tells whether encoder and decoder have one; `pooling` is none, mean or last.
    """

    def __init__(
        self,
        blocks: Sequence[S5Block],
        *,
        ends: tuple[int, int] | None,
        biases: tuple[bool, bool] = (True, True),
        pooling: str = "none",
    ) -> None:
        super().__init__()
        width = blocks[0].attn_norm.normalized_shape[0]
        self.width = ends[0] if ends else width
        self.pooling = pooling
        self.pooled = pooling != "none"
        self.encoder = nn.Linear(ends[0], width, bias=biases[0]) if ends else nn.Identity()
        self.layers = nn.ModuleList(blocks)
        self.decoder = nn.Linear(width, ends[1], bias=biases[1]) if ends else nn.Identity()

    def cores(self) -> Mapping[str, Core]:
        return cores_of(self.layers, "layers")

    def forward(self, inputs: Tensor, record: Record | None = None) -> Tensor:
        x = self.run_blocks(self.encoder(inputs), self.layers, record)
        return self.decoder(pool(x, self.pooling))

    def describe(self) -> str:
        return f"{len(self.layers)} S5 blocks"


_FIRST = re.compile(r"^(?P<prefix>(?:.*[./])?)(?P<leaf>Lambda_re|Lambda)\Z")
_UNSAID = "nothing says otherwise"
LIQUID = "in the liquid form the rates move with the input"
UNCLIPPED = "some rates are above -1e-4, and whether the module cuts them off is not known"


class S5Family(AbstractFamily):
    """Lambda, or Lambda_re and Lambda_im, beside B, C, D and log_step."""

    name: ClassVar[str] = "s5"
    cell: ClassVar[str] = "s5"

    def find(self, tensors: Tensors) -> list[Group]:
        def roles(prefix: str, leaf: str) -> dict[str, str] | None:
            if leaf == "Lambda_re":
                readout = ("C1", "C2") if f"{prefix}C1" in tensors else ("C",)
                names = ("Lambda_re", "Lambda_im", "B", *readout)
            else:
                # Lambda is a name that others use too.
                if f"{prefix}log_step" not in tensors:
                    return None
                factors = f"{prefix}BH" in tensors
                names = ("Lambda", *(("BH", "BP", "CH", "CP") if factors else ("B", "C")))
            return {role: prefix + role for role in (*names, "D", "log_step")}

        return find_layers(tensors, _FIRST, roles)

    def layer(self, group: Group, tensors: Tensors, hyper: Hyperparameters) -> AbstractS5:
        keys = group.keys
        rates = keys["Lambda_re" if "Lambda_re" in keys else "Lambda"]
        for role, axis in {"B": 1, "BH": 0, "C": 0, "C1": 0, "C2": 0, "CH": 1}.items():
            if role in keys:
                require_alike(tensors, (keys[role], axis), (keys["D"], 0))
        for role in ("B", "BP", "log_step"):
            if role in keys:
                require_alike(tensors, (keys[role], 0), (rates, 0))
        if "Lambda_re" in keys:
            return _flax_layer(group, tensors, hyper)
        return _torch_layer(group, tensors, hyper)

    def whole(self, groups: list[Group], tensors: Tensors, hyper: Hyperparameters) -> Whole | str:
        if all("Lambda_re" in group.keys for group in groups):
            return whole_model(self, groups, tensors, hyper, S5_CODE)
        return self._blocks(groups, tensors, hyper)

    def published(self, module: nn.Module, own: Tensors) -> StoredDecay | None:
        if "log_step" not in own or not {"Lambda", "Lambda_re"} & set(own):
            return None
        if "Lambda_re" in own:
            name, part = "Lambda_re", "all"
            fits = "Lambda_im" in own and own[name].shape == own["Lambda_im"].shape
        else:
            name, part = "Lambda", "real"
            fits = own[name].is_complex()
        rates = own[name]
        if not fits or rates.ndim != 1 or own["log_step"].numel() != len(rates):
            return None
        clipped = getattr(module, "clip_eigs", None)
        if getattr(module, "liquid", False):
            return NoDecay(LIQUID)
        if clipped is None and part == "all" and bool((rates > LARGEST_RATE).any()):
            return NoDecay(UNCLIPPED)
        law = Clip(ceiling=LARGEST_RATE) if clipped else Direct()
        return DiagonalDecay(module, name, law, part=part)

    def _blocks(self, groups: list[Group], tensors: Tensors, hyper: Hyperparameters) -> Whole | str:
        """The blocks in a row between encoder and decoder, if there are such, or why not."""
        fronts = _fronts(groups)
        if fronts is None:
            return "the layers are not those of blocks: N.s5.seq"
        if not {front + end for front in fronts for end in _BLOCK} <= set(tensors):
            return "a block lacks attn_norm, ff_norm, ff_enc or ff_dec"
        coded = [name for name in ("encoder.weight", "decoder.weight") if name in tensors]
        if len(coded) == 1:
            return f"there is {coded[0]} alone, without its counterpart"
        blocks = [
            _feed_forward(self.layer(group, tensors, hyper), front, tensors, hyper)
            for front, group in fronts.items()
        ]
        net = S5Stack(blocks, ends=None)
        if coded:
            inputs = shape_of(tensors, "encoder.weight", 2)[1]
            outputs = shape_of(tensors, "decoder.weight", 2)[0]
            sizes = {
                "d_input": (inputs, "the inputs of encoder.weight are"),
                "d_output": (outputs, "the outputs of decoder.weight are"),
            }
            hyper.require_sizes(sizes)
            biases = (_biased(tensors, hyper, "encoder"), _biased(tensors, hyper, "decoder"))
            pooling = read_pooling(hyper, default="none", also=("pooling",), why=_UNSAID)
            net = S5Stack(blocks, ends=(inputs, outputs), biases=biases, pooling=pooling)
        widths = {block.s5.seq.width for block in blocks}
        if len(widths) > 1:
            raise weights_error(f"the blocks have {sorted(widths)} features, and no common width")
        features = (max(widths), "the features of the blocks are")
        count = (len(blocks), "the blocks in the file are")
        hyper.require_sizes({"dim": features, "d_model": features, "n_layers": count})
        ends = ("encoder.", "decoder.") if coded else ()
        names = {
            name: f"layers.{i}.{name.removeprefix(front)}"
            for i, front in enumerate(fronts)
            for name in tensors
            if name.startswith(front) and not name.startswith(ends)
        }
        return Whole(net, notes=(_ORDER,) if len(blocks) > 1 or coded else (), names=names)


def _flax_layer(group: Group, tensors: Tensors, hyper: Hyperparameters) -> FlaxS5:
    states, width = paired_shape(tensors, group.keys["B"], 2)
    apart = "C1" in group.keys
    columns = paired_shape(tensors, group.keys["C1" if apart else "C"], 2)[1]
    rates = plain_numbers(tensors, group.keys["Lambda_re"])
    pace = hyper.stated("step_rescale")
    if pace is not None and pace != 1:
        raise unsupported(
            f"the config says step_rescale = {clean(pace)}, which is not rebuilt",
            hint="add its logarithm to every log_step, and remove it from the config",
        )
    # Clipping matters only where there is something to clip.
    loose = bool((rates > LARGEST_RATE).any())
    return FlaxS5(
        width,
        states,
        disc=hyper.choice("disc", STEPS, default="zoh", also=("discretization",)),
        bidirectional=apart or _two_ways(group, hyper, "C", columns, states),
        apart=apart,
        conj_sym=hyper.flag("conj_sym", default=True),
        clip_eigs=loose and hyper.flag("clip_eigs", default=False),
    )


def _torch_layer(group: Group, tensors: Tensors, hyper: Hyperparameters) -> AbstractS5:
    if hyper.flag("liquid", default=False, why=_UNSAID):
        raise unsupported(
            "the liquid form of S5 is not known here: its eigenvalues move with the input",
            hint="build the model in Python and pass the module to memaudit.scan",
            stage="recognise",
        )
    disc = hyper.choice("disc", STEPS, default=STEPS[0], also=("discretization",), why=_UNSAID)
    degree = hyper.number("degree")
    if degree is None:
        hyper.assumed["degree"] = f"1 ({_UNSAID})"
        degree = 1.0
    if not math.isfinite(degree) or degree != int(degree) or degree < 1:
        raise config_error(
            f"degree is {degree:g}, not a whole number from 1 on",
            hint="correct it, or give --set degree=1",
        )
    key = group.keys["Lambda"]
    states = shape_of(tensors, key, 1)[0]
    hyper.require_sizes({"state_dim": (states, f"the length of {clean(key)} is")})
    if "BH" in group.keys:
        width, rank = shape_of(tensors, group.keys["BH"], 2)
        columns = shape_of(tensors, group.keys["CP"], 2)[1]
        both = _two_ways(group, hyper, "CP", columns, states)
        return FactorizedS5(width, states, rank, disc=disc, bidirectional=both, degree=int(degree))
    width, columns = shape_of(tensors, group.keys["C"], 2)
    both = _two_ways(group, hyper, "C", columns, states)
    return S5(width, states, disc=disc, bidirectional=both, degree=int(degree))


def _two_ways(group: Group, hyper: Hyperparameters, role: str, columns: int, states: int) -> bool:
    """Two directions have a column of C each for every state."""
    key = clean(group.keys[role])
    if columns not in (states, 2 * states):
        raise weights_error(f"{key} reads {columns} states where it has {states}")
    both = columns == 2 * states
    stated = hyper.stated("bidir", "bidirectional")
    if stated is not None and bool(stated) != both:
        fact = f"{key} reads {columns} columns of {states} states"
        raise weights_error(f"{fact}, and the config says bidirectional = {clean(stated)}")
    if both and stated is None:
        if hyper.has_config:
            # One direction is the code's own default.
            fact = f"{key} reads two directions, and the config does not say bidirectional: true"
            raise weights_error(fact)
        hyper.assumed["bidirectional"] = f"true (by the columns of {key})"
    return both


#: The blocks of a list, of whatever name, or one block alone.
_PLACE = re.compile(r"^(?P<front>(?:.*\.)?(?P<number>[0-9]{1,6})\.|)s5\.seq\.\Z")
_BLOCK = (
    *("attn_norm.weight", "attn_norm.bias", "ff_norm.weight", "ff_norm.bias"),
    *("ff_enc.weight", "ff_dec.weight"),
)
_ORDER = "the blocks are taken to follow each other in the order of their numbers"


def _fronts(groups: list[Group]) -> dict[str, Group] | None:
    """What stands before s5.seq of every layer, by number; None when they are no list."""
    matches = [(_PLACE.match(group.prefix), group) for group in groups]
    found = [(match, group) for match, group in matches if match is not None]
    if len(found) < len(groups):
        return None
    if len(groups) == 1 and not found[0][0]["front"]:
        return {"": groups[0]}
    numbered = {int(m["number"] or -1): (m["front"], group) for m, group in found}
    lists = {front.removesuffix(f"{number}.") for number, (front, _) in numbered.items()}
    if sorted(numbered) != list(range(len(groups))) or len(lists) != 1:
        return None
    return dict(numbered[i] for i in range(len(groups)))


def _feed_forward(seq: Core, front: str, tensors: Tensors, hyper: Hyperparameters) -> S5Block:
    """A block with the feed-forward layer that the tensors show."""
    into, out = f"{front}ff_enc.weight", f"{front}ff_dec.weight"
    rows, hidden = shape_of(tensors, into, 2)[0], shape_of(tensors, out, 2)[1]
    shown = f"{clean(into)} gives {rows} features, and {clean(out)} takes {hidden}"
    if rows not in (hidden, 2 * hidden):
        raise weights_error(shown)
    gated = rows == 2 * hidden
    stated = hyper.stated("glu")
    # The code's own default is the gate.
    if gated != (True if stated is None else bool(stated)):
        if hyper.has_config:
            raise weights_error(f"{shown}, but the config does not say glu: {str(gated).lower()}")
        hyper.assumed["glu"] = f"false ({shown})"
    return S5Block(seq, hidden=hidden, gated=gated)


def _biased(tensors: Tensors, hyper: Hyperparameters, name: str) -> bool:
    """Whether a linear layer has a bias: it must, unless the config says that it has none."""
    if f"{name}.bias" in tensors:
        return True
    if hyper.stated("bias") is not False:
        raise weights_error(f"{name}.bias is not there, and no config says bias: false")
    return False
