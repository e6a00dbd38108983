"""S4 and S4D as version 4 of state-spaces/s4 has them: systems, layers, blocks, checkpoints."""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from memaudit.errors import SourceError, clean
from memaudit.interfaces import AbstractReparam, DiagonalDecay, NoDecay, StoredDecay
from memaudit.numerics.linear import (
    DISCRETIZATIONS,
    Bank,
    DenseBank,
    System,
    discretize,
    eigenvalues_of,
)
from memaudit.reparams import Exp, Softplus
from memaudit_ssm.core import ROUNDING, Core, complex_of, draw_log_steps
from memaudit_ssm.family import AbstractFamily, Group, Tensors, Whole, shape_of, weights_error
from memaudit_ssm.s4_models import stack_of
from memaudit_ssm.settings import Hyperparameters, config_error, unsupported

#: Added by S4 to what relu gives, so that no rate is zero.
RELU_FLOOR = 1e-4
#: As S4 names them: all give a number that is not negative, except none.
POSITIVE: Mapping[str, Callable[[Tensor], Tensor]] = {
    "none": lambda w: w,
    "exp": torch.exp,
    "relu": lambda w: functional.relu(w) + RELU_FLOOR,
    "sigmoid": torch.sigmoid,
    "softplus": functional.softplus,
}


@dataclass(frozen=True, slots=True)
class Negated(AbstractReparam):
    """f(w) = -w in continuous time: what is stored is the rate itself, of either sign."""

    name: ClassVar[str] = "direct"
    summary: ClassVar[str] = "-w; not stable"
    times: ClassVar[tuple[str, ...]] = ("continuous",)
    stable: ClassVar[bool] = False

    def forward(self, w: Tensor) -> Tensor:
        return -w

    def inverse(self, lam: Tensor) -> Tensor:
        return -lam

    def contains(self, lam: Tensor) -> Tensor:
        return lam.isfinite()

    def modulus(self, beta: float) -> float:
        del beta
        return math.inf


@dataclass(frozen=True, slots=True)
class FlooredRelu(AbstractReparam):
    """f(w) = -(max(w, 0) + floor) in continuous time; the modulus is beta / floor.

    Slower rates than the floor have no raw weight.
    """

    name: ClassVar[str] = "relu"
    summary: ClassVar[str] = "-(max(w, 0) + 1e-4), as S4 has it; no gradient at the floor"
    times: ClassVar[tuple[str, ...]] = ("continuous",)
    stable: ClassVar[bool] = True

    floor: float = RELU_FLOOR

    def forward(self, w: Tensor) -> Tensor:
        return -(w.relu() + self.floor)

    def inverse(self, lam: Tensor) -> Tensor:
        return torch.where(-lam >= self.floor * (1.0 - ROUNDING), -lam - self.floor, torch.nan)

    def contains(self, lam: Tensor) -> Tensor:
        return (lam.double() <= -self.floor) & lam.isfinite()

    def modulus(self, beta: float) -> float:
        return beta / self.floor


@dataclass(frozen=True, slots=True)
class Sigmoid(AbstractReparam):
    """f(w) = -1 / (1 + e^-w) in continuous time, rates below 1; the modulus is e^beta - 1.

    A rate that rounds to 1 has the raw weight of the last number below it, a faster one none.
    """

    name: ClassVar[str] = "sigmoid"
    summary: ClassVar[str] = "-sigmoid(w); rates below 1"
    times: ClassVar[tuple[str, ...]] = ("continuous",)
    stable: ClassVar[bool] = True

    def forward(self, w: Tensor) -> Tensor:
        return -torch.sigmoid(w)

    def inverse(self, lam: Tensor) -> Tensor:
        held = (-lam).clamp(max=1.0 - torch.finfo(lam.dtype).eps / 2.0)
        return torch.where(-lam <= 1.0 + ROUNDING, torch.logit(held), torch.nan)

    def contains(self, lam: Tensor) -> Tensor:
        return (lam < 0.0) & (lam > -1.0)

    def modulus(self, beta: float) -> float:
        return math.expm1(beta)


#: Behind the transforms of S4, by their names: the real part of a rate in continuous time.
S4_LAWS: dict[str, AbstractReparam] = {
    "none": Negated(),
    "exp": Exp(),
    "relu": FlooredRelu(),
    "sigmoid": Sigmoid(),
    "softplus": Softplus(),
}
#: What a low-rank part leaves of the law of its diagonal.
TIED = "its modes are those of diag - P P*, which decay as long as the diagonal does"
UNTIED = "its modes are those of diag - P Qᵀ: of them a diagonal that decays promises nothing"
#: Of a step size that is stored as it is.
SIGNED = "nothing keeps its step sizes positive, and a negative one turns decay into growth"
UNSTATED_LAW = "how {name} becomes a rate is not said: {attribute} is none of {known}"

#: Beyond this condition number fewer than three digits of the readout are left in float64.
WORST_CONDITION = 1e13


@dataclass(frozen=True, slots=True)
class DplrBank(DenseBank):
    """Diagonal plus low-rank systems by the bilinear rule, with dense matrices (H,2N,2N).

    `eigenvalues` may be known beforehand, in a better precision than the matrix. `condition` is the
    worst condition number of the equations that gave the readout; 1 when there were none.
    """

    eigenvalues: Tensor | None = None
    condition: float = 1.0

    def modes(self) -> Tensor:
        return eigenvalues_of(self.matrix) if self.eigenvalues is None else self.eigenvalues


@dataclass(frozen=True, slots=True)
class Continuous:
    """x' = A x + B u, y = C x for every feature, one of each conjugate pair stored.

    A is diag(rates) - P Qᵀ: `rates` (H,N), and P and Q are `left` and `right` (R,H,N), or None.
    `inputs` (H,N) is B, `readout` (C,H,N) is C, `steps` the step sizes (H,1) or (H,N). Real weights
    stand for themselves; S4 doubles their output too. The readout that is stored beside a low rank
    belongs to a kernel of `length` steps that repeats: C (I - A^length); with length 0 it is C.
    """

    rates: Tensor
    steps: Tensor
    inputs: Tensor
    readout: Tensor
    left: Tensor | None = None
    right: Tensor | None = None
    length: int = 0

    def band_limited(self, bandlimit: float | None) -> Continuous:
        """Without the modes whose frequency lies above half the limit, in cycles a step."""
        if bandlimit is None:
            return self
        cycles = self.steps * self.rates.imag.abs() / (2.0 * torch.pi)
        return replace(self, readout=self.readout * (cycles < bandlimit / 2.0))

    def system(self, direct: Tensor | None, *, disc: str, checked: bool = True) -> System:
        """The bank in discrete time; a low-rank part has dense matrices, by the bilinear rule.

        A readout that cannot be restored is refused when `checked`, and not finite otherwise.
        """
        if self.left is None or self.right is None:
            modes, gains = discretize(self.rates, self.steps, how=disc)
            # The other one of each pair doubles the real part; S4 doubles real modes all the same.
            return Bank(modes, gains * self.inputs, 2.0 * self.readout, direct)
        # x_{t+1} = (M - A)^-1 (M + A) x_t + (M - A)^-1 2B u_t with M = diag(2 / step), over both of
        # each conjugate pair.
        rates = _both_of_pairs(self.rates)
        steps = _wide(self.steps).repeat(1, 2 if self.steps.shape[1] > 1 else 1)
        low = torch.einsum("rhn,rhm->hnm", _both_of_pairs(self.left), _both_of_pairs(self.right))
        full = torch.diag_embed(rates) - low
        two = torch.diag_embed((2.0 / steps).expand(rates.shape).to(rates.dtype))
        matrix = torch.linalg.solve(two - full, two + full)
        fed = 2.0 * _both_of_pairs(self.inputs).unsqueeze(-1)
        inputs = torch.linalg.solve(two - full, fed).squeeze(-1)
        stored = _both_of_pairs(self.readout)
        readout, condition = restore_readout(matrix, stored, self.length, checked=checked)
        kind, device = self.rates.dtype, self.rates.device
        # In double precision: the order is that of the matrix, not that of its rounding. Copies
        # that are only run need none.
        eigenvalues = eigenvalues_of(matrix).to(device, kind) if checked else None
        return DplrBank(
            *(part.to(device, kind) for part in (matrix, inputs, readout)),
            direct=direct,
            eigenvalues=eigenvalues,
            condition=condition,
        )


def restore_readout(
    matrix: Tensor, readout: Tensor, length: int, *, checked: bool = True
) -> tuple[Tensor, float]:
    """C from the stored C (I - A^length), and the condition number; E_WEIGHTS if none can be.

    Unless `checked`, nothing is refused, and the condition number is not computed.
    """
    if length < 0:
        fact = f"the stored length of the kernel is {length}"
        raise SourceError("E_WEIGHTS", fact, hint="save the model again", stage="weights")
    if length == 0:
        return readout, 1.0
    eye = torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)
    gap = eye - torch.linalg.matrix_power(matrix, length)
    stored = readout.transpose(0, 1).mT
    if not checked:
        return torch.linalg.solve_ex(gap.mT, stored)[0].mT.transpose(0, 1), torch.nan
    finite = bool(gap.isfinite().all())
    condition = float(torch.linalg.cond(gap.detach()).max()) if finite else torch.inf
    # A comparison that NaN fails too.
    if not condition <= WORST_CONDITION:
        raise SourceError(
            "E_WEIGHTS",
            f"the readout cannot be restored: I - A^{length} is singular "
            f"(condition number {condition:.1e}), some mode returns or grows within {length} steps",
            hint="take a checkpoint of a stable model, or one with another kernel length",
            stage="weights",
        )
    return torch.linalg.solve(gap.mT, stored).mT.transpose(0, 1), condition


def tiled(copies: Tensor, width: int) -> Tensor:
    """(…,S,N) trained copies for all features, (…,H,N): feature h takes copy h mod S."""
    times = width // copies.shape[-2]
    return copies.repeat(*(1 for _ in copies.shape[:-2]), times, 1)


def _both_of_pairs(half: Tensor) -> Tensor:
    wide = _wide(half)
    return torch.cat([wide, wide.conj()], dim=-1)


def _wide(values: Tensor) -> Tensor:
    # Not every device has double precision.
    kind = torch.complex128 if values.is_complex() else torch.float64
    return values.cpu().to(kind)


@dataclass(frozen=True, slots=True)
class S4Recipe:
    """What the weights of S4 mean: the functions between them and the system, by name."""

    real_transform: str = "exp"
    imag_transform: str = "none"
    dt_transform: str = "exp"
    disc: str = "zoh"
    #: Whether the step size passes through sinh before its transform.
    dt_fast: bool = False
    #: Modes above half of it, in cycles a step, are not read.
    bandlimit: float | None = None

    def __post_init__(self) -> None:
        for name in (self.real_transform, self.imag_transform, self.dt_transform):
            if name not in POSITIVE:
                raise ValueError(f"{name!r} is none of {', '.join(POSITIVE)}")
        if self.disc not in DISCRETIZATIONS:
            raise ValueError(f"{self.disc!r} is none of {', '.join(DISCRETIZATIONS)}")


@dataclass(frozen=True, slots=True)
class S4Sizes:
    """How many of everything: features H, stored modes N, copies S, kernels C and the rank R.

    With `real` weights there is no imaginary part; `per_mode` has a step size for every mode.
    """

    width: int
    modes: int
    copies: int = 1
    kernels: int = 1
    rank: int = 0
    real: bool = False
    per_mode: bool = False


class AbstractS4Kernel(nn.Module, ABC):
    """Stored weights that are a linear system in continuous time.

    Law: `continuous` has the features `width`, and does not change while the weights do not.
    """

    width: int
    recipe: S4Recipe

    @abstractmethod
    def continuous(self) -> Continuous:
        """The weights as a system in continuous time."""

    @abstractmethod
    def decay(self) -> StoredDecay:
        """The weight that makes the diagonal, or a sentence why there is no such weight."""


class S4Kernel(AbstractS4Kernel):
    """A = -f(A_real) - i·g(A_imag), minus P P* where there is a P; dt = h(inv_dt)."""

    def __init__(self, sizes: S4Sizes, recipe: S4Recipe) -> None:
        super().__init__()
        self.width = sizes.width
        self.recipe = recipe
        self.real_transform = recipe.real_transform  # under the name of the published kernel
        pair = () if sizes.real else (2,)
        small = (sizes.copies, sizes.modes)
        self.C = nn.Parameter(torch.zeros(sizes.kernels, sizes.width, sizes.modes, *pair))
        self.B = nn.Parameter(torch.zeros(1, *small, *pair))
        self.inv_dt = nn.Parameter(torch.zeros(sizes.width, sizes.modes if sizes.per_mode else 1))
        self.A_real = nn.Parameter(torch.zeros(*small))
        self.A_imag = None if sizes.real else nn.Parameter(torch.zeros(*small))
        self.P = nn.Parameter(torch.zeros(sizes.rank, *small, 2)) if sizes.rank else None
        if self.P is not None:
            self.register_buffer("l_kernel", torch.zeros((), dtype=torch.int64))

    def continuous(self) -> Continuous:
        recipe, width = self.recipe, self.width
        rates = -POSITIVE[recipe.real_transform](self.A_real)
        inputs, readout = self.B[0], self.C
        if self.A_imag is not None:
            rates = complex_of(rates, -POSITIVE[recipe.imag_transform](self.A_imag))
            inputs, readout = torch.view_as_complex(inputs), torch.view_as_complex(readout)
        raw = self.inv_dt.sinh() if recipe.dt_fast else self.inv_dt
        steps = POSITIVE[recipe.dt_transform](raw)
        weights = Continuous(tiled(rates, width), steps, tiled(inputs, width), readout)
        if self.P is not None:
            left = tiled(torch.view_as_complex(self.P), width)
            length = int(self.get_buffer("l_kernel"))
            weights = replace(weights, left=left, right=left.conj(), length=length)
        return weights.band_limited(recipe.bandlimit)

    def decay(self) -> DiagonalDecay:
        return _stored_rates(
            self,
            S4_LAWS[self.recipe.real_transform],
            low_rank=self.P is not None,
            dt_transform=self.recipe.dt_transform,
        )


def _stored_rates(
    kernel: nn.Module, law: AbstractReparam, *, low_rank: bool, dt_transform: str
) -> DiagonalDecay:
    notes = [TIED] if low_rank else []
    notes += [SIGNED] if dt_transform == "none" else []
    return DiagonalDecay(kernel, "A_real", law, note="; ".join(notes))


class S4Layer(Core):
    """A bank of systems whose weights a kernel of any version holds, and the skip D.

    Every feature has a system of its own with `channels` outputs. With two directions the kernel
    has twice as many readouts: the first half runs forwards, the second backwards.
    """

    cell: ClassVar[str] = "s4"

    def __init__(self, kernel: nn.Module, direct: Tensor, *, bidirectional: bool = False) -> None:
        super().__init__()
        self.kernel = kernel
        self.D = nn.Parameter(direct)
        self.bidirectional = bidirectional
        self.width = self.inner.width
        # The raw weight itself is called direct among the reparameterizations.
        named = self.inner.recipe.real_transform
        self.parameterization = "direct" if named == "none" else named
        self._known: tuple[Hashable, dict[str, System]] | None = None

    @property
    def inner(self) -> AbstractS4Kernel:
        """The kernel itself; older versions have it one level deeper."""
        return next(part for part in self.kernel.modules() if isinstance(part, AbstractS4Kernel))

    def systems(self) -> Mapping[str, System]:
        key = self._state()
        if key is not None and self._known is not None and self._known[0] == key:
            return self._known[1]
        inner = self.inner
        weights = inner.continuous()
        direct = self.D if self.D.ndim == 2 else self.D.unsqueeze(0)
        ways: dict[str, tuple[Tensor, Tensor | None]] = {"": (weights.readout, direct)}
        if self.bidirectional:
            ahead, back = weights.readout.chunk(2)
            ways = {"forward": (ahead, direct), "backward": (back, None)}
        made = {
            name: replace(weights, readout=readout).system(
                skip, disc=inner.recipe.disc, checked=self.checked
            )
            for name, (readout, skip) in ways.items()
        }
        self._known = None if key is None else (key, made)
        return made

    def modes(self) -> Tensor:
        return next(iter(self.systems().values())).modes()

    def decay(self) -> StoredDecay:
        return self.inner.decay()

    def run(self, u: Tensor) -> Tensor:
        return self.channels(u).flatten(2)

    def channels(self, u: Tensor) -> Tensor:
        """The recurrent layer alone, with its channels apart: (B,T,C,H)."""
        systems = self.systems()
        if not self.bidirectional:
            return systems[""].run(u, self.execution)
        later = systems["backward"].run(u.flip(1), self.execution).flip(1)
        # The step itself belongs to the forward direction; the backward one begins at the next.
        shifted = torch.cat([later[:, 1:], torch.zeros_like(later[:, :1])], dim=1)
        return systems["forward"].run(u, self.execution) + shifted

    @property
    def states(self) -> int:
        """Real numbers in the state: a stored pair has two, a real or an unpaired mode one."""
        paired = self.inner.continuous().rates.is_complex()
        return sum(
            system.modes().numel() * (2 if paired and not isinstance(system, DplrBank) else 1)
            for system in self.systems().values()
        )

    @property
    def condition(self) -> float:
        systems = self.systems().values()
        return max([s.condition for s in systems if isinstance(s, DplrBank)], default=1.0)

    def _state(self) -> Hashable | None:
        """What changes when a weight does; None while weights are trained."""
        tensors = [*self.parameters(), *self.buffers()]
        if torch.is_grad_enabled() and any(t.requires_grad for t in tensors):
            return None
        if any(t.is_inference() for t in tensors):
            return None
        try:
            return tuple((t.data_ptr(), t._version, t.dtype, t.device) for t in tensors)
        except RuntimeError:  # a batch of copies at once has no address
            return None


class S4(S4Layer):
    """S4D (`rank` 0) or S4 as version 4 of state-spaces/s4 has it.

    x' = A x + B u with A = -f(A_real) - i·g(A_imag), minus P P* of the rank given. `states` is the
    full number; half of it is stored. With a generator the weights are random as at the start of
    training (A_n = -1/2 - i·pi·n, P small); without one they are zeros, to be loaded.
    """

    def __init__(
        self,
        width: int,
        states: int = 64,
        *,
        rank: int = 0,
        channels: int = 1,
        bidirectional: bool = False,
        recipe: S4Recipe | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        kernels = 2 * channels if bidirectional else channels
        sizes = S4Sizes(width, states // 2, kernels=kernels, rank=rank)
        kernel = S4Kernel(sizes, recipe or S4Recipe())
        super().__init__(kernel, torch.zeros(channels, width), bidirectional=bidirectional)
        if generator is not None:
            _start(kernel, self.D, generator)


@torch.no_grad()
def _start(kernel: S4Kernel, direct: Tensor, generator: torch.Generator) -> None:
    recipe = kernel.recipe
    kernel.C.normal_(0.0, math.sqrt(0.5), generator=generator)
    kernel.B[..., 0].fill_(1.0)
    steps = draw_log_steps(torch.empty_like(kernel.inv_dt), generator).exp()
    raw = _raw(steps, recipe.dt_transform)
    kernel.inv_dt.copy_(raw.asinh() if recipe.dt_fast else raw)
    kernel.A_real.copy_(_raw(torch.full_like(kernel.A_real, 0.5), recipe.real_transform))
    if kernel.A_imag is not None:
        pitch = math.pi * torch.arange(kernel.A_imag.shape[1]).to(kernel.A_imag)
        kernel.A_imag.copy_(_raw(pitch.clamp(min=1e-4), recipe.imag_transform))
    if kernel.P is not None:
        kernel.P.normal_(0.0, 0.5, generator=generator)
    direct.normal_(generator=generator)


def _raw(values: Tensor, transform: str) -> Tensor:
    """The raw weight of a positive number."""
    inverse = {"exp": torch.log, "sigmoid": torch.logit, "softplus": lambda v: v.expm1().log()}
    return inverse[transform](values) if transform in inverse else values


_PLAIN: Mapping[str, Callable[[Tensor], Tensor]] = {
    **dict.fromkeys(("none", "id", "identity", "linear"), lambda x: x),
    "tanh": torch.tanh,
    "relu": functional.relu,
    "gelu": functional.gelu,
    "elu": functional.elu,
    "swish": functional.silu,
    "silu": functional.silu,
    "sigmoid": torch.sigmoid,
    "softplus": functional.softplus,
    "sqrelu": lambda x: functional.relu(x).square(),
    "relu2": lambda x: functional.relu(x).square(),
    # The Gaussian distribution function with which Mega imitates the squared relu.
    "laplace": lambda x: 0.5 * (1.0 + torch.erf((x - 0.707107) / (0.282095 * 2.0**0.5))),
}


def _gated(x: Tensor, gate: Callable[[Tensor], Tensor]) -> Tensor:
    value, raw = x.chunk(2, dim=-1)
    return value * gate(raw)


#: The activations of S4 by name, along the last axis; glu multiplies halves.
ACTIVATIONS: Mapping[str, Callable[[Tensor], Tensor]] = {
    **_PLAIN,
    "glu": functional.glu,
    **{f"glu-{name}": (lambda x, gate=gate: _gated(x, gate)) for name, gate in _PLAIN.items()},
}


@dataclass(frozen=True, slots=True)
class Pointwise:
    """The activations of a block by name.

    `hyper_act` None has no product of channels, whatever an activation called none does.
    """

    activation: str = "gelu"
    mult_act: str = "none"
    final_act: str = "glu"
    hyper_act: str | None = None
    swap_channels: bool = False

    def before(self, y: Tensor) -> Tensor:
        """Channels (B,T,C,H) as the features that the mixing layer takes."""
        if self.hyper_act is not None:
            y, gate = y.chunk(2, dim=2)
            y = ACTIVATIONS[self.hyper_act](gate) * y
        flat = (y.mT if self.swap_channels else y).flatten(2)
        return ACTIVATIONS[self.mult_act](ACTIVATIONS[self.activation](flat))

    def after(self, y: Tensor) -> Tensor:
        """What follows the mixing layer."""
        return ACTIVATIONS[self.final_act](y)

    def require_width(self, layer: S4Layer, *, takes: int, gives: int, key: str) -> None:
        """Raise E_CONFIG unless the activations fit what the mixing layer `key` takes and gives."""
        halved = [name for name in (self.activation, self.mult_act) if name.startswith("glu")]
        share = 2 ** (len(halved) + (self.hyper_act is not None))
        if layer.D.numel() != takes * share:
            left = f"activation {self.activation} leaves 1/{share} of {layer.D.numel()} features"
            raise config_error(f"{left}, and {clean(key)} takes {takes}")
        if gives != layer.width * (2 if self.final_act.startswith("glu") else 1):
            left = f"final_act {self.final_act} follows {gives} features of {clean(key)}"
            raise config_error(f"{left}, and the layer has {layer.width}")


class Mix(nn.Module):
    """A linear layer over features, whose stored tensors may have further axes of length 1.

    Convolutions of one step have a weight with three axes, the transposed layers of the versions
    1 and 2 a bias with two.
    """

    def __init__(self, weight: tuple[int, ...], bias: tuple[int, ...] | None = None) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(weight))
        self.bias = nn.Parameter(torch.zeros(bias or weight[:1]))

    def forward(self, x: Tensor) -> Tensor:
        return functional.linear(x, self.weight.flatten(1), self.bias.flatten())


class S4Block(nn.Module):
    """S4Block of version 4: the recurrence is its part called `layer`."""

    def __init__(
        self,
        layer: S4Layer,
        pointwise: Pointwise,
        *,
        output_linear: nn.Module | None,
        input_linear: nn.Module | None,
    ) -> None:
        super().__init__()
        self.input_linear = input_linear
        self.layer = layer
        self.output_linear = output_linear
        self.pointwise = pointwise

    def forward(self, u: Tensor) -> Tensor:
        u = u if self.input_linear is None else self.input_linear(u)
        y = self.pointwise.before(self.layer.channels(u))
        return y if self.output_linear is None else self.pointwise.after(self.output_linear(y))


_FAMILY_MODES = {"diag": False, "s4d": False, "dplr": True, "nplr": True, "s4": True}
#: Either tells of a layer, so that the loss of the other is reported, too.
_FIRST = re.compile(r"^(?P<prefix>(?:.*\.)?)kernel\.(?:inv_dt|A_real)\Z")
#: The axes: Q channels, K kernels, H features, T step sizes, N modes, S copies, R the rank.
_AXES = {
    "D": "QH",
    "kernel.C": "KHN2",
    "kernel.B": "1SN2",
    "kernel.inv_dt": "HT",
    "kernel.A_real": "SN",
    "kernel.A_imag": "SN",
    "kernel.P": "RSN2",
    "kernel.l_kernel": "",
}
_LOW_RANK = ("kernel.P", "kernel.l_kernel")


class S4Family(AbstractFamily):
    """kernel.{C, B, inv_dt, A_real, A_imag} beside D; P and l_kernel where there is a low rank."""

    name: ClassVar[str] = "s4"
    cell: ClassVar[str] = "s4"

    def find(self, tensors: Tensors) -> list[Group]:
        matches = [m for name in tensors if (m := _FIRST.match(name)) is not None]
        return [_group(prefix, tensors) for prefix in dict.fromkeys(m["prefix"] for m in matches)]

    def layer(self, group: Group, tensors: Tensors, hyper: Hyperparameters) -> S4Layer:
        sizes, channels = _sizes(group, tensors)
        recipe = _read_recipe(hyper, sizes)
        both = sizes.kernels == 2 * channels
        rates, readout = group.keys["kernel.A_real"], group.keys["kernel.C"]
        found: dict[str, tuple[Any, str]] = {
            "d_state": (sizes.modes if sizes.real else 2 * sizes.modes, rates),
            "n_ssm": (sizes.copies, rates),
            "is_real": (sizes.real, readout),
            "bidirectional": (both, readout),
            "channels": (channels, group.keys["D"]),
        }
        if sizes.rank:
            found["rank"] = (sizes.rank, group.keys["kernel.P"])
            if layer_setting(hyper, "rank") is None:
                require_rank(hyper, *found["rank"])
        require_agreement(hyper, found, low_rank=sizes.rank > 0)
        require_directions(hyper, both=both, key=readout)
        direct = torch.zeros(channels, sizes.width)
        return S4Layer(S4Kernel(sizes, recipe), direct, bidirectional=both)

    def whole(self, groups: list[Group], tensors: Tensors, hyper: Hyperparameters) -> Whole | str:
        found = stack_of(
            groups, tensors, hyper, lambda group: self._block(group, tensors, hyper), end=".layer."
        )
        return found if isinstance(found, str) else Whole(found, notes=kernel_notes(hyper))

    def published(self, module: nn.Module, own: Tensors) -> StoredDecay | None:
        if not {"C", "inv_dt", "A_real", "B"} <= set(own):
            return None
        law = stated_law(module, "A_real", "real_transform")
        if isinstance(law, str):
            return NoDecay(law)
        dt_transform = getattr(module, "dt_transform", "exp")
        return _stored_rates(module, law, low_rank="P" in own, dt_transform=dt_transform)

    def _block(self, group: Group, tensors: Tensors, hyper: Hyperparameters) -> S4Block | str:
        # Of the public code a gate cannot be built, and a bottleneck fits only when it is 1.
        gate, bottleneck = layer_setting(hyper, "gate"), layer_setting(hyper, "bottleneck")
        if gate is not None or bottleneck not in (None, 1):
            return "gate or bottleneck is set, and the public code cannot run that"
        outside = group.prefix.removesuffix("layer.")
        layer = self.layer(group, tensors, hyper)
        out, into = outside + "output_linear.0.weight", outside + "input_linear.weight"
        names = tuple(ACTIVATIONS)
        pointwise = Pointwise(
            activation=hyper.choice("activation", names, default="gelu"),
            mult_act=hyper.choice("mult_act", names, default="none"),
            final_act=read_final_act(hyper) if out in tensors else "none",
            swap_channels=bool(layer_setting(hyper, "swap_channels")),
        )
        front = None
        if into in tensors:
            shape = shape_of(tensors, into, 2)
            # Without a gate or a bottleneck the layer in front keeps the width.
            if shape != (layer.width, layer.width):
                fact = f"{clean(into)} has the shape {shape}, and the layer {layer.width} features"
                raise weights_error(fact)
            front = Mix(shape)
        mix = mixing(out, tensors, hyper, pointwise, layer)
        return S4Block(layer, pointwise, output_linear=mix, input_linear=front)


def _group(prefix: str, tensors: Tensors) -> Group:
    roles = ["D", "kernel.C", "kernel.B", "kernel.inv_dt", "kernel.A_real"]
    pairs = [tensors.get(f"{prefix}kernel.{name}") for name in "BC"]
    # Real weights have an axis less; one tensor alone with such axes is damaged.
    paired = all(t is None or t.ndim == len("KHN2") for t in pairs)
    if f"{prefix}kernel.A_imag" in tensors or paired:
        roles.append("kernel.A_imag")
    if any(prefix + role in tensors for role in _LOW_RANK):
        roles += _LOW_RANK
    keys = {role: prefix + role for role in roles}
    inside = [name for name in tensors if name.startswith(f"{prefix}kernel.")]
    return Group(prefix, keys, tuple(name for name in inside if name not in keys.values()))


def _sizes(group: Group, tensors: Tensors) -> tuple[S4Sizes, int]:
    """The sizes, and the channels of D."""
    keys = group.keys
    real = "kernel.A_imag" not in keys
    axes = {role: _AXES[role].removesuffix("2") if real else _AXES[role] for role in keys}
    size = fitting_sizes(tensors, keys, axes)
    channels, kernels, width, modes, copies = (size[letter] for letter in "QKHNS")
    rank = size.get("R", 0)
    if size["T"] not in (1, modes):
        raise weights_error(f"{clean(keys['kernel.inv_dt'])} does not fit {modes} modes")
    if kernels not in (channels, 2 * channels):
        shown = f"{clean(keys['kernel.C'])} has {kernels} kernels"
        raise weights_error(f"{shown}, which do not fit {channels} channels of {clean(keys['D'])}")
    if rank:
        require_length(tensors, keys["kernel.l_kernel"])
    if real and rank:
        raise weights_error(f"{clean(keys['kernel.P'])} beside real weights")
    per_mode = size["T"] > 1
    return S4Sizes(width, modes, copies, kernels, rank, real=real, per_mode=per_mode), channels


def fitting_sizes(
    tensors: Tensors, keys: Mapping[str, str], axes: Mapping[str, str]
) -> dict[str, int]:
    """What every letter of the axes stands for; E_WEIGHTS unless each has one size.

    H features take S copies in turn.
    """
    sizes = {"1": 1, "2": 2}
    # C names most letters, and is looked at first.
    for role in sorted(keys, key=lambda role: role.rpartition(".")[2] != "C"):
        key, letters = keys[role], axes[role]
        shape = tuple(tensors[key].shape)
        here = dict(zip(letters, shape, strict=False))
        known = {letter: sizes.get(letter, size) for letter, size in here.items()}
        if len(letters) != len(shape) or 0 in shape or known != here:
            raise weights_error(f"{clean(key)} {shape} does not fit its neighbours")
        sizes |= known
    if sizes["H"] % sizes.get("S", 1):
        where = clean(next(iter(keys.values())))
        raise weights_error(f"{where}: {sizes['S']} copies do not fit {sizes['H']} features")
    return sizes


def _read_recipe(hyper: Hyperparameters, sizes: S4Sizes) -> S4Recipe:
    names = ("real_transform", "imag_transform", "dt_transform", "disc", "dt_fast")
    require_one_layer(hyper, names)
    known, real = tuple(POSITIVE), sizes.real
    recipe = S4Recipe(
        real_transform=hyper.choice("real_transform", known, default="exp"),
        imag_transform="none" if real else hyper.choice("imag_transform", known, default="none"),
        dt_transform=hyper.choice("dt_transform", known, default="exp"),
        disc="bilinear" if sizes.rank else read_disc(hyper, default="zoh"),
        dt_fast=hyper.flag("dt_fast", default=False),
        bandlimit=hyper.number("bandlimit"),
    )
    if real and recipe.bandlimit is not None:
        raise config_error("the config says a bandlimit, and real modes have no frequency")
    return recipe


def layer_setting(hyper: Hyperparameters, name: str) -> Any:
    """What the config says of the layer, and not of the model around it; or None."""
    inner = hyper.section("model", "layer") or hyper.section("layer")
    return (inner or hyper.section()).get(name)


def read_disc(hyper: Hyperparameters, *, default: str) -> str:
    """The discretization of a diagonal system; dss is refused with its reason."""
    disc = hyper.choice("disc", (*DISCRETIZATIONS, "dss"), default=default)
    if disc == "dss":
        raise unsupported(
            "the discretization dss divides by a sum over the whole sequence: its kernel is "
            "another one for every length, and so no recurrence",
            hint="audit a model that was trained with zoh or bilinear",
        )
    return disc


def read_final_act(hyper: Hyperparameters) -> str:
    """What follows the mixing layer of a block."""
    return hyper.choice("final_act", tuple(ACTIVATIONS), default="glu", also=("postact",))


def mixing(
    key: str,
    tensors: Tensors,
    hyper: Hyperparameters,
    pointwise: Pointwise,
    layer: S4Layer,
    *,
    activations: Sequence[str] = ("activation", "mult_act", "final_act"),
) -> nn.Module | None:
    """The mixing layer of a block, in a sequence where its name has a number; None without one.

    It is compared with the activations once these settings are known.
    """
    known = hyper.has_config or all(hyper.given(name) for name in activations)
    if key not in tensors:
        if known:
            after = "what follows the layer"
            pointwise.require_width(layer, takes=layer.width, gives=layer.width, key=after)
        return None
    # The weight may have a third axis of length 1, the bias a second one.
    weight = shape_of(tensors, key, max(2, tensors[key].ndim))
    if weight[2:] not in ((), (1,)):
        raise weights_error(f"{clean(key)} has the shape {weight}, and is no matrix")
    rows, bias = weight[0], key.removesuffix("weight") + "bias"
    if bias not in tensors:
        raise weights_error(f"{clean(bias)} is not there")
    shift = tuple(tensors[bias].shape)
    if shift not in ((rows,), (rows, 1)):
        raise weights_error(f"{clean(bias)} has the shape {shift}, and {clean(key)} {rows} rows")
    if known:
        pointwise.require_width(layer, takes=weight[1], gives=rows, key=key)
    mix = Mix(weight, shift)
    return nn.Sequential(mix) if key.endswith(".0.weight") else mix


def require_one_layer(hyper: Hyperparameters, names: Sequence[str]) -> None:
    """Raise E_CONFIG when the config lists several kinds of layers, unless all names are given."""
    several = [hyper.section("model").get("layer"), hyper.section().get("layer")]
    unknown = [name for name in names if not hyper.given(name)]
    if unknown and any(isinstance(layer, list) for layer in several):
        raise config_error(
            "the config lists several layers, and which of them is meant is not known",
            hint="say it: " + " ".join(f"--set {name}=VALUE" for name in unknown),
        )


def require_agreement(
    hyper: Hyperparameters, found: Mapping[str, tuple[Any, str]], *, low_rank: bool
) -> None:
    """Raise E_CONFIG where the config says another layer than the tensors show.

    `found` has what every setting is, and the name of the tensor that shows it.
    """
    mode = layer_setting(hyper, "mode") or layer_setting(hyper, "kernel")
    if isinstance(mode, str) and _FAMILY_MODES.get(mode, low_rank) != low_rank:
        shown = "a low-rank part P" if low_rank else "no low-rank part P"
        raise config_error(f"the config says mode {clean(mode)}, and the tensors have {shown}")
    for name, (value, key) in found.items():
        stated = layer_setting(hyper, name)
        if stated is not None and stated != value:
            raise config_error(
                f"the config says {name} = {clean(stated)}, and {clean(key)} shows {value}"
            )


def require_rank(hyper: Hyperparameters, rank: int, key: str) -> None:
    """Refuse another rank than the config says; where it does not say, the code's own is 1."""
    stated = layer_setting(hyper, "rank")
    if hyper.has_config and rank != (1 if stated is None else stated):
        other = "does not say so" if stated is None else f"says {clean(stated)}"
        raise weights_error(f"{clean(key)} has rank {rank}, and the config {other}")


def require_length(tensors: Tensors, key: str) -> None:
    """Refuse a length in few bits: the code stores 64, so it may be what is left of another."""
    if tensors[key].dtype not in (torch.int32, torch.int64):
        raise weights_error(f"{clean(key)} is no whole number of 64 bits")


def require_directions(hyper: Hyperparameters, *, both: bool, key: str) -> None:
    """Refuse twice as many kernels as channels where a config says nothing of two directions."""
    if not both or layer_setting(hyper, "bidirectional") is not None:
        return
    shown = f"{clean(key)} has two kernels for every channel of D"
    if hyper.has_config:
        # The code's own default is one direction.
        raise weights_error(f"{shown}, and the config does not say bidirectional: true")
    hyper.assumed["bidirectional"] = f"true ({shown})"


def kernel_notes(hyper: Hyperparameters) -> tuple[str, ...]:
    """What the original does otherwise."""
    cut = layer_setting(hyper, "l_max")
    if not isinstance(cut, int) or cut <= 0:
        return ()
    return (
        f"the original cuts its kernels after l_max = {cut} steps when it convolves; "
        "here they are run without the cut, as when it steps",
    )


def stated_law(module: nn.Module, name: str, attribute: str) -> AbstractReparam | str:
    """The law of a published kernel, by the name that the module keeps of it, or why none."""
    stated: Any = getattr(module, attribute, None)
    if isinstance(stated, str) and stated in S4_LAWS:
        return S4_LAWS[stated]
    return UNSTATED_LAW.format(name=name, attribute=attribute, known=", ".join(S4_LAWS))
