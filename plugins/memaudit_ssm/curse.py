"""Curse-of-memory: residual recurrences that step h towards balance by dt at a time."""

from __future__ import annotations

import math
import re
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from memaudit.errors import ArgumentError, clean
from memaudit.interfaces import AbstractReparam, DiagonalDecay
from memaudit.numerics.linear import Bank, Dense, System, eigenvalues_of
from memaudit.reparams import Relu, Softplus
from memaudit_ssm.core import Core, class_name
from memaudit_ssm.family import (
    AbstractFamily,
    Group,
    Projection,
    Record,
    SequenceNet,
    Tensors,
    Whole,
    read_projection,
    require_alike,
    shape_of,
)
from memaudit_ssm.settings import Hyperparameters, config_error, unsupported


@dataclass(frozen=True, slots=True)
class StableExponential(AbstractReparam):
    """f(w) = e^{-e^w} in discrete time, the stable exponential of the LRU; modulus e^beta - 1.

    What rounds to nothing has the raw weight of the smallest number, what is negative none.
    """

    name: ClassVar[str] = "exp"
    summary: ClassVar[str] = "exp(-exp(w)), the stable exponential of the LRU"
    times: ClassVar[tuple[str, ...]] = ("discrete",)
    stable: ClassVar[bool] = True

    time: str = "discrete"

    def forward(self, w: Tensor) -> Tensor:
        return torch.exp(-w.exp())

    def inverse(self, lam: Tensor) -> Tensor:
        held = lam.clamp(min=torch.finfo(lam.dtype).tiny)
        return torch.where(lam >= 0.0, (-held.log()).log(), torch.nan)

    def contains(self, lam: Tensor) -> Tensor:
        return (lam > 0.0) & (lam < 1.0)

    def modulus(self, beta: float) -> float:
        return math.expm1(beta)


@dataclass(frozen=True, slots=True)
class EulerRelu(AbstractReparam):
    """f(w) = 1 - dt·max(w, 0) in discrete time: one step of forward Euler, down to -infinity."""

    name: ClassVar[str] = "relu"
    summary: ClassVar[str] = "1 - dt·max(w, 0); reaches both boundaries, not stable"
    times: ClassVar[tuple[str, ...]] = ("discrete",)
    stable: ClassVar[bool] = False

    time: str = "discrete"
    dt: float = 1.0

    def forward(self, w: Tensor) -> Tensor:
        return 1.0 - self.dt * w.relu()

    def inverse(self, lam: Tensor) -> Tensor:
        return (1.0 - lam) / self.dt

    def contains(self, lam: Tensor) -> Tensor:
        return (lam <= 1.0) & lam.isfinite()

    def modulus(self, beta: float) -> float:
        del beta
        return math.inf


#: What the steps of Curse-of-memory make of its laws.
PARTLY = "a step of {dt:g} replaces that share of the state: its modes are 1 - {dt:g} (1 - lambda)"

TURNED = (
    "its modes are those of one step by Pᵀ diag(rates) P: they decay as long as all rates do, P "
    "has an inverse, and no rate of the product is beyond {end:g}, where steps overshoot"
)

#: What stands around one step; all have the slope 1 at 0.
ACTIVATIONS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "linear": lambda x: x,
    "tanh": torch.tanh,
    "hardtanh": functional.hardtanh,
}


class Weight(nn.Module):
    """A tensor under the name `weight`."""

    def __init__(self, *shape: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(shape))


class ResidualRNN(Core):
    """h_t = h_{t-1} + dt·act(gains·x_t + recurrent h_{t-1}), read out as it is.

    `recurrent` is a diagonal (m,) or a symmetric matrix (m,m) without positive eigenvalues. With
    the activation linear the layer is linear and has its system; else it is stepped, and its modes
    are those of the step at h = 0 and x = 0. With a generator the weights are random as at the
    start of training; without one they are zeros, to be loaded.
    """

    def __init__(
        self,
        width: int,
        *,
        dt: float = 1.0,
        activation: str = "linear",
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        if activation not in ACTIVATIONS:
            raise ValueError(f"{activation!r} is none of {', '.join(ACTIVATIONS)}")
        self.width = width
        self.dt = dt
        self.activation = activation
        self.W = Weight(width)
        self._build()
        if generator is not None:
            self._start(generator)

    @abstractmethod
    def recurrent_matrix(self) -> Tensor:
        """What multiplies the state: a diagonal (m,) or a symmetric matrix (m,m)."""

    def gains(self) -> Tensor:
        """By what each input is multiplied (m,)."""
        return torch.ones_like(self.W.weight)

    def modes(self) -> Tensor:
        recurrent = self.recurrent_matrix()
        # Rounding must not push a mode that is kept for ever beyond the boundary.
        rates = (
            recurrent
            if recurrent.ndim == 1
            else eigenvalues_of(recurrent, torch.linalg.eigvalsh).clamp(max=0.0)
        )
        modes = 1.0 + self.dt * rates
        return modes.to(torch.promote_types(modes.dtype, torch.complex64))

    def system(self) -> System:
        """The system of the linear layer."""
        recurrent, gains = self.recurrent_matrix(), self.dt * self.gains()
        if recurrent.ndim == 1:
            modes = (1.0 + self.dt * recurrent).unsqueeze(-1)
            return Bank(modes, gains.unsqueeze(-1), torch.ones_like(modes).unsqueeze(0))
        same = torch.eye(self.width, dtype=recurrent.dtype, device=recurrent.device)
        return Dense(same + self.dt * recurrent, torch.diag(gains), same)

    def systems(self) -> Mapping[str, System]:
        return {"": self.system()} if self.activation == "linear" else {}

    def run(self, u: Tensor) -> Tensor:
        if self.activation == "linear":
            return self.system().run(u, self.execution).flatten(2)
        return self._step_through(u)

    @property
    def states(self) -> int:
        """Real numbers in the state of one sequence."""
        return self.width

    @property
    def at(self) -> str:
        """At which point of operation the modes are taken."""
        return "every step" if self.activation == "linear" else "rest, without input"

    def _step_through(self, u: Tensor) -> Tensor:
        act, dt, recurrent = ACTIVATIONS[self.activation], self.dt, self.recurrent_matrix()
        full = recurrent.ndim == 2
        state = torch.zeros_like(u[:, 0])
        states: list[Tensor] = []
        for now in (u * self.gains()).unbind(1):
            drawn = (
                torch.addmm(now, state, recurrent) if full else torch.addcmul(now, state, recurrent)
            )
            state = state + dt * act(drawn)
            states.append(state)
        return torch.stack(states, dim=1)

    def _build(self) -> None:
        """Make the further weights."""

    @torch.no_grad()
    def _start(self, generator: torch.Generator) -> None:
        self.W.weight.normal_(generator=generator)


class SimpleDiagonalRNN(ResidualRNN):
    """h + dt·act(x - relu(W) h): a weight that is not positive keeps its state for ever."""

    cell: ClassVar[str] = "diagonalrnn"
    parameterization = "relu"

    def recurrent_matrix(self) -> Tensor:
        return -functional.relu(self.W.weight)

    def decay(self) -> DiagonalDecay:
        return DiagonalDecay(self.W, "weight", EulerRelu(dt=self.dt))


class ResidualLRU(ResidualRNN):
    """h + dt·act(w h + √(1 - w²) x) with w = e^{-e^W} - 1, between -1 and 0."""

    cell: ClassVar[str] = "lru"
    parameterization = "exp"

    def recurrent_matrix(self) -> Tensor:
        return torch.expm1(-self.W.weight.exp())

    def gains(self) -> Tensor:
        kept = torch.exp(-self.W.weight.exp())  # 1 + w
        return torch.sqrt(kept * (2.0 - kept))

    def decay(self) -> DiagonalDecay:
        return DiagonalDecay(self.W, "weight", StableExponential(), note=PARTLY.format(dt=self.dt))


class SimpleRNN(ResidualRNN):
    """h + dt·act(x - Pᵀ relu(W) P h); P is orthogonal at the start of training."""

    cell: ClassVar[str] = "rnn"
    parameterization = "relu"

    def decay(self) -> DiagonalDecay:
        law = Softplus() if self.parameterization == "softplus" else Relu()
        return DiagonalDecay(self.W, "weight", law, note=TURNED.format(end=2.0 / self.dt))

    def rates(self) -> Tensor:
        """The numbers (m,) between P and its transpose, none of them negative."""
        return functional.relu(self.W.weight)

    def recurrent_matrix(self) -> Tensor:
        basis = self.P.weight
        recurrent = -(basis.mT * self.rates()) @ basis
        # Symmetric to the last bit, which the product of matrices does not promise.
        return (recurrent + recurrent.mT) / 2.0

    def _build(self) -> None:
        self.P = Weight(self.width, self.width)

    @torch.no_grad()
    def _start(self, generator: torch.Generator) -> None:
        super()._start(generator)
        basis = torch.empty_like(self.P.weight).normal_(generator=generator)
        self.P.weight.copy_(torch.linalg.qr(basis)[0])


class SoftplusRNN(SimpleRNN):
    """SimpleRNN with softplus in the place of relu: every state decays."""

    cell: ClassVar[str] = "softplusrnn"
    parameterization = "softplus"

    def rates(self) -> Tensor:
        return functional.softplus(self.W.weight)


class TwoLinears(nn.Module):
    """linear2(act(linear1(x))), all of one width."""

    def __init__(self, width: int, *, activation: str) -> None:
        super().__init__()
        self.activation = activation
        self.linear1 = nn.Linear(width, width)
        self.linear2 = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        """The same shape."""
        return self.linear2(ACTIVATIONS[self.activation](self.linear1(x)))


class SimpleSSM(SimpleRNN):
    """The recurrence between g and f, which is that of SimpleRNN."""

    cell: ClassVar[str] = "ssm"


class SimpleSSMBlock(SimpleSSM):
    """SimpleSSM between its two small networks, g before it and f behind."""

    def forward(self, u: Tensor) -> Tensor:
        return self.f(self.run(self.g(u)))

    def _build(self) -> None:
        super()._build()
        self.g = TwoLinears(self.width, activation=self.activation)
        self.f = TwoLinears(self.width, activation=self.activation)

    @torch.no_grad()
    def _start(self, generator: torch.Generator) -> None:
        super()._start(generator)
        bound = 1.0 / math.sqrt(self.width)
        for weight in (*self.g.parameters(), *self.f.parameters()):
            weight.uniform_(-bound, bound, generator=generator)


#: The recurrences by the names of the option `cell`.
CELLS: Mapping[str, type[ResidualRNN]] = {
    cell.cell: cell for cell in (SimpleRNN, SoftplusRNN, SimpleDiagonalRNN, ResidualLRU, SimpleSSM)
}

#: The same with everything that the net of a model has around its recurrence.
BLOCKS: Mapping[str, type[ResidualRNN]] = {**CELLS, "ssm": SimpleSSMBlock}


class CurseNet(SequenceNet):
    """One residual recurrence between linear layers; `pooled` reads its last state alone."""

    def __init__(
        self, net: ResidualRNN, *, encoder: Projection, decoder: Projection, pooled: bool
    ) -> None:
        super().__init__()
        self.width = encoder.U.in_features
        self.pooled = pooled
        self.encoder = encoder
        self.net = net
        self.decoder = decoder

    def cores(self) -> Mapping[str, Core]:
        return {"net": self.net}

    def forward(self, inputs: Tensor, record: Record | None = None) -> Tensor:
        x = self.run_blocks(self.encoder(inputs), [self.net], record)
        return self.decoder(x[:, -1] if self.pooled else x)

    def describe(self) -> str:
        net = self.net
        return f"{class_name(net)} of width {net.width}, {net.activation}, dt {net.dt:g}"


_FIRST = re.compile(r"^(?P<prefix>(?:.*\.)?)[WP]\.weight\Z")
_NETS = (("model", "net"), ("net",))
_MIXING = tuple(
    f"{net}.linear{i}.{end}" for net in "gf" for i in (1, 2) for end in ("weight", "bias")
)
#: The classes of the public code, in small letters.
_CLASSES = {"simplernn": "rnn", "simplediagonalrnn": "diagonalrnn", "simplessm": "ssm"}
_HINT = "correct the config, or give --set cell=… --set dt=… --set activation=…"


class CurseFamily(AbstractFamily):
    """net.W.weight (m,), and net.P.weight (m,m) or none, between encoder.U and decoder.U.

    The class of the recurrence, its dt and its activation are not in the file.
    """

    name: ClassVar[str] = "curse"
    cell: ClassVar[str] = "curse"

    def find(self, tensors: Tensors) -> list[Group]:
        matches = [m for name in tensors if (m := _FIRST.match(name)) is not None]
        prefixes = dict.fromkeys(match["prefix"] for match in matches)
        return [_group(prefix, tensors) for prefix in prefixes if _is_ours(prefix, tensors)]

    def layer(self, group: Group, tensors: Tensors, hyper: Hyperparameters) -> ResidualRNN:
        return _core(group, tensors, hyper, CELLS)

    def whole(self, groups: list[Group], tensors: Tensors, hyper: Hyperparameters) -> Whole | str:
        if [group.prefix for group in groups] != ["net."]:
            return "the recurrence is not the one that is called net"
        if not {"encoder.U.weight", "decoder.U.weight"} <= set(tensors):
            return "encoder.U or decoder.U is missing"
        core = _core(groups[0], tensors, hyper, BLOCKS)
        encoder = read_projection(tensors, hyper, "encoder")
        decoder = read_projection(tensors, hyper, "decoder")
        require_alike(tensors, ("net.W.weight", 0), ("encoder.U.weight", 0))
        require_alike(tensors, ("net.W.weight", 0), ("decoder.U.weight", 1))
        said = [hyper.section(*path).get("return_sequences") for path in _NETS]
        sequences = next((value for value in said if isinstance(value, bool)), None)
        if sequences is None:
            assumed = "true (nothing says it; the code's own default)"
            hyper.assumed["return_sequences"] = assumed
        net = CurseNet(core, encoder=encoder, decoder=decoder, pooled=sequences is False)
        return Whole(net)


def _is_ours(prefix: str, tensors: Tensors) -> bool:
    """W beside P, or W alone in the place that the models give it: a name is not much."""
    names = (f"{prefix}W.weight", f"{prefix}P.weight")
    if all(name in tensors for name in names):
        return any(tensors[name].ndim == axes for name, axes in zip(names, (1, 2), strict=True))
    outside = prefix.removesuffix("net.")
    around = {f"{outside}encoder.U.weight", f"{outside}decoder.U.weight"}
    if prefix != outside and around & set(tensors):
        return True
    return prefix in ("", "net.") and names[0] in tensors and tensors[names[0]].ndim == 1


def _group(prefix: str, tensors: Tensors) -> Group:
    """W, and P where it belongs; g and f stand around the recurrence."""
    inside = [name for name in tensors if name.startswith(prefix)]
    known = (f"{prefix}g.", f"{prefix}f.", f"{prefix}W.", f"{prefix}P.")
    mixed = any(name.startswith(known[:2]) for name in inside)
    roles = ["W.weight", "P.weight"] if mixed or f"{prefix}P.weight" in tensors else ["W.weight"]
    ours = inside if prefix else [name for name in inside if name.startswith(known)]
    expected = {prefix + role for role in (*roles, *(_MIXING if mixed else ()))}
    unknown = tuple(name for name in ours if name not in expected)
    return Group(prefix, {role: prefix + role for role in roles}, unknown)


def _core(
    group: Group, tensors: Tensors, hyper: Hyperparameters, kinds: Mapping[str, type[ResidualRNN]]
) -> ResidualRNN:
    key = group.keys["W.weight"]
    (width,) = shape_of(tensors, key, 1)
    hyper.require_sizes({"rec1_size": (width, f"the length of {clean(key)} is")}, places=_NETS)
    if "P.weight" in group.keys:
        require_alike(tensors, (key, 0), (group.keys["P.weight"], 0))
        require_alike(tensors, (key, 0), (group.keys["P.weight"], 1))
    word = _cell(group, hyper, mixed=f"{group.prefix}{_MIXING[0]}" in tensors)
    # Only where the config states the net does a missing word mean the code's default.
    speaks = any(hyper.section(*path) for path in _NETS)
    step = _step(hyper, default="1.0" if speaks else None)
    default = "linear" if speaks else None
    activation = hyper.choice("activation", tuple(ACTIVATIONS), default=default)
    given = {r for r in ("W.weight", "P.weight", *_MIXING) if group.prefix + r in tensors}
    wanted = set(BLOCKS[word](width).state_dict())
    if wanted != given:
        odd = ", ".join(sorted(group.prefix + role for role in wanted ^ given))
        what = "lack" if wanted - given else "hold"
        raise config_error(f"the cell is {word}, but the weights {what} {clean(odd)}", hint=_HINT)
    core = kinds[word](width, dt=step, activation=activation)
    raw = any(hyper.section(*path).get("training") is False for path in _NETS)
    if raw and bool((tensors[key] < 0).any()) and core.parameterization == "relu":
        raise unsupported(
            f"the config says training: false, so that {clean(key)}, which has negative entries, "
            "passes through no relu; such a net is not rebuilt",
            hint="audit the net as it was trained: remove training: false from the config",
        )
    return core


def _cell(group: Group, hyper: Hyperparameters, *, mixed: bool) -> str:
    """From the option, or from the class in the config; names alone leave two of them open."""
    targets = [hyper.section(*path).get("_target_") for path in _NETS]
    target = next((target for target in targets if isinstance(target, str)), None)
    if target is not None and not hyper.given("cell"):
        word = target.rpartition(".")[2].lower()
        word = _CLASSES.get(word, word)
        if word not in CELLS:
            known = ", ".join(CELLS)
            fact = f"the net is a {clean(target)}, which is none of {known}"
            raise config_error(fact, hint=_HINT)
        return word
    # The cells with these names first, for the hint.
    likely = ("diagonalrnn", "lru")
    if "P.weight" in group.keys:
        likely = ("ssm",) if mixed else ("rnn", "softplusrnn")
    return hyper.choice("cell", tuple(dict.fromkeys((*likely, *CELLS))))


def _step(hyper: Hyperparameters, *, default: str | None) -> float:
    step = hyper.number("dt")
    if step is None:
        # A number that nobody says is taken or asked for like any other word.
        step = float(hyper.choice("dt", ("1.0",), default=default))
    if not (math.isfinite(step) and step > 0.0):
        fact = f"dt is {step:g}, not a positive number"
        if hyper.given("dt"):
            raise ArgumentError(fact, hint="give --set dt=0.33")
        raise config_error(fact, hint=_HINT)
    return step
