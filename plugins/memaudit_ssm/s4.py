"""S4 and S4D as version 4 of state-spaces/s4 has them: systems, blocks, checkpoints."""

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

from memaudit.contracts import AbstractReparam
from memaudit.errors import SourceError, clean
from memaudit.numerics.linear import DISCRETIZATIONS, Bank, DenseBank, System, discretize
from memaudit.numerics.linear.numbers import eigenvalues_of
from memaudit.reparams.exp import Exp
from memaudit.reparams.softplus import Softplus
from memaudit_ssm.core import ROUNDING, Core, Stored, complex_of
from memaudit_ssm.family import (
    AbstractFamily,
    Group,
    Whole,
    require_alike,
    shape_of,
    weights_error,
)
from memaudit_ssm.s4_models import stack_of
from memaudit_ssm.settings import (
    Facts,
    config_error,
)

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

#: Beyond this condition number fewer than three digits of the readout are left in float64.
WORST_CONDITION = 1e13


@dataclass(frozen=True, slots=True)
class DplrBank(System):
    """Full state matrices (H,2N,2N) with `inputs` (H,2N), `readout` (C,H,2N) and D (C,H).

    `eigenvalues` may be known beforehand, in a better precision than the matrix. `condition` is the
    worst condition number of the equations that gave the readout; 1 when there were none.
    """

    matrix: Tensor
    inputs: Tensor
    readout: Tensor
    eigenvalues: Tensor | None = None
    direct: Tensor | None = None
    condition: float = 1.0
    banked: ClassVar[bool] = True

    @property
    def width(self) -> int:
        """Inputs."""
        return self.matrix.shape[0]

    def modes(self) -> Tensor:
        return eigenvalues_of(self.matrix) if self.eigenvalues is None else self.eigenvalues

    def kernel(self, start: int, stop: int) -> Tensor:
        return self._dense().kernel(start, stop)

    def reach(self, start: int, stop: int) -> Tensor:
        return self._dense().reach(start, stop)

    def transition(self) -> Tensor:
        return self._dense().transition()

    def convolve(self, u: Tensor) -> Tensor:
        return self._dense().convolve(u)

    def in_chunks(self, u: Tensor) -> Tensor:
        return self._dense().in_chunks(u)

    def step_through(self, u: Tensor) -> Tensor:
        return self._dense().step_through(u)

    def lightly(self, u: Tensor) -> Tensor:
        return self._dense().lightly(u)

    def _dense(self) -> DenseBank:
        return DenseBank(self.matrix, self.inputs, self.readout, self.direct)


def discretize_dplr(
    rates: Tensor, steps: Tensor, inputs: Tensor, *, left: Tensor, right: Tensor
) -> tuple[Tensor, Tensor]:
    """The matrix and the inputs of one step of x' = (diag(rates) - P Qᵀ) x + B u.

    Everything over both of each conjugate pair: rates and inputs (H,2N), left and right (R,H,2N).
    With M = diag(2 / step): (M - A)^-1 (M + A), and (M - A)^-1 2B.
    """
    full = torch.diag_embed(rates) - torch.einsum("rhn,rhm->hnm", left, right)
    two = torch.diag_embed((2.0 / steps).expand(rates.shape).to(rates.dtype))
    below = two - full
    matrix = torch.linalg.solve(below, two + full)
    return matrix, torch.linalg.solve(below, 2.0 * inputs.unsqueeze(-1)).squeeze(-1)


def restore_readout(
    matrix: Tensor, readout: Tensor, length: int, *, checked: bool = True
) -> tuple[Tensor, float]:
    """C from the stored C (I - A^length), and the condition number; E_WEIGHTS if none can be.

    Unless `checked`, nothing is refused, and the condition number is not asked for.
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
    tame = bool(gap.isfinite().all())
    condition = float(torch.linalg.cond(gap.detach()).max()) if tame else torch.inf
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


@dataclass(frozen=True, slots=True)
class LowRank:
    """The part -P Qᵀ of the state matrix: `left` is P, `right` is Q, both (R,H,N).

    The stored readout belongs to a kernel of `length` steps that repeats: C (I - A^length). With
    the length 0 it is C itself.
    """

    left: Tensor
    right: Tensor
    length: int


@dataclass(frozen=True, slots=True)
class Continuous:
    """x' = A x + B u, y = C x for every feature, one of each conjugate pair stored.

    `rates` (H,N) is the diagonal of A, `inputs` (H,N) is B, `readout` (C,H,N) is C, `steps` the
    step sizes (H,1) or (H,N). Real weights stand for themselves; S4 doubles their output too.
    """

    rates: Tensor
    steps: Tensor
    inputs: Tensor
    readout: Tensor
    low_rank: LowRank | None = None

    def read_by(self, readout: Tensor) -> Continuous:
        """The same system with another readout."""
        return replace(self, readout=readout)


def system_of(
    weights: Continuous, direct: Tensor | None, *, disc: str, checked: bool = True
) -> System:
    """The bank in discrete time; a low-rank part has dense matrices, by the bilinear rule.

    A readout that cannot be restored is refused when `checked`, and not finite otherwise.
    """
    if weights.low_rank is not None:
        return _dense(weights, weights.low_rank, direct, checked=checked)
    modes, gains = discretize(weights.rates, weights.steps, how=disc)
    # The other one of each pair doubles the real part; S4 doubles real modes all the same.
    return Bank(modes, gains * weights.inputs, 2.0 * weights.readout, direct)


def _dense(weights: Continuous, low: LowRank, direct: Tensor | None, *, checked: bool) -> DplrBank:
    kind, device = weights.rates.dtype, weights.rates.device
    matrix, inputs = discretize_dplr(
        _both_of_pairs(weights.rates),
        _wide(weights.steps).repeat(1, 2 if weights.steps.shape[1] > 1 else 1),
        _both_of_pairs(weights.inputs),
        left=_both_of_pairs(low.left),
        right=_both_of_pairs(low.right),
    )
    stored = _both_of_pairs(weights.readout)
    readout, condition = restore_readout(matrix, stored, low.length, checked=checked)
    # In double precision: the order is that of the matrix, not that of its rounding. Copies
    # that are only run need none.
    eigenvalues = eigenvalues_of(matrix).to(device, kind) if checked else None
    return DplrBank(
        *(part.to(device, kind) for part in (matrix, inputs, readout)),
        direct=direct,
        eigenvalues=eigenvalues,
        condition=condition,
    )


def tiled(copies: Tensor, width: int) -> Tensor:
    """(…,S,N) trained copies for all features, (…,H,N): feature h takes copy h mod S."""
    times = width // copies.shape[-2]
    return copies.repeat(*(1 for _ in copies.shape[:-2]), times, 1)


def band_limited(weights: Continuous, bandlimit: float | None) -> Continuous:
    """Modes read as silent whose frequency lies above half the limit, in cycles a step."""
    if bandlimit is None:
        return weights
    cycles = weights.steps * weights.rates.imag.abs() / (2.0 * torch.pi)
    heard = cycles < bandlimit / 2.0
    return weights.read_by(weights.readout * heard)


def _both_of_pairs(half: Tensor) -> Tensor:
    """Both of each conjugate pair, in the widest precision."""
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

    def __post_init__(self) -> None:
        if self.width % self.copies:
            raise ValueError(f"{self.copies} copies do not divide {self.width} features")
        if self.real and self.rank:
            raise ValueError("a low-rank part needs complex weights")


class AbstractS4Kernel(nn.Module, ABC):
    """Stored weights that are a linear system in continuous time.

    Law: `continuous` has the features `width`, and does not change while the weights do not.
    """

    width: int
    #: How the input is held between two steps, of a diagonal system.
    disc: str
    #: Between the raw weight and the real part of a rate, by its name among the transforms.
    real_transform: str

    @abstractmethod
    def continuous(self) -> Continuous:
        """The weights as a system in continuous time."""

    @abstractmethod
    def decay(self) -> Stored | str:
        """The weight that makes the diagonal, or a sentence why there is no such weight."""


class S4Kernel(AbstractS4Kernel):
    """A = -f(A_real) - i·g(A_imag), minus P P* where there is a P; dt = h(inv_dt)."""

    def __init__(self, sizes: S4Sizes, recipe: S4Recipe) -> None:
        super().__init__()
        self.width = sizes.width
        self.disc = recipe.disc
        self.real_transform = recipe.real_transform
        self.recipe = recipe
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
            imaginary = POSITIVE[recipe.imag_transform](self.A_imag)
            rates = complex_of(rates, -imaginary)
            inputs, readout = torch.view_as_complex(inputs), torch.view_as_complex(readout)
        raw = self.inv_dt.sinh() if recipe.dt_fast else self.inv_dt
        weights = Continuous(
            tiled(rates, width),
            POSITIVE[recipe.dt_transform](raw),
            tiled(inputs, width),
            readout,
            self._low_rank(),
        )
        return band_limited(weights, recipe.bandlimit)

    def decay(self) -> Stored:
        notes = [TIED] if self.P is not None else []
        notes += [SIGNED] if self.recipe.dt_transform == "none" else []
        law = S4_LAWS[self.recipe.real_transform]
        return Stored(self, "A_real", law, note="; ".join(notes))

    def _low_rank(self) -> LowRank | None:
        if self.P is None:
            return None
        left = tiled(torch.view_as_complex(self.P), self.width)
        length = self.get_buffer("l_kernel")
        return LowRank(left, left.conj(), int(length))


def run_both_ways(forward: System, backward: System, u: Tensor, execution: str) -> Tensor:
    """Two directions of a bank added as S4 adds them: the backward one sees the future alone."""
    later = backward.run(u.flip(1), execution).flip(1)
    # The step itself belongs to the forward direction; the backward one begins at the next.
    shifted = torch.cat([later[:, 1:], torch.zeros_like(later[:, :1])], dim=1)
    return forward.run(u, execution) + shifted


#: Step sizes at the start of training lie between these.
_SMALLEST_STEP, _LARGEST_STEP = 0.001, 0.1


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
        inner = self.inner
        self.width = inner.width
        # The raw weight itself is called direct among the reparameterizations.
        named = inner.real_transform
        self.parameterization = "direct" if named == "none" else named
        self._known: tuple[Hashable, dict[str, System]] | None = None

    @property
    def inner(self) -> AbstractS4Kernel:
        """The kernel itself; older versions have it one level deeper."""
        found = [part for part in self.kernel.modules() if isinstance(part, AbstractS4Kernel)]
        return found[0]

    def systems(self) -> Mapping[str, System]:
        key = self._state()
        if key is not None and self._known is not None and self._known[0] == key:
            return self._known[1]
        made = self._make()
        self._known = None if key is None else (key, made)
        return made

    def modes(self) -> Tensor:
        return next(iter(self.systems().values())).modes()

    def decay(self) -> Stored | str:
        return self.inner.decay()

    def run(self, u: Tensor) -> Tensor:
        return self.channels(u).flatten(2)

    def channels(self, u: Tensor) -> Tensor:
        """The recurrent layer alone, with its channels apart: (B,T,C,H)."""
        systems = self.systems()
        if self.bidirectional:
            return run_both_ways(systems["forward"], systems["backward"], u, self.execution)
        return systems[""].run(u, self.execution)

    @property
    def states(self) -> int:
        """Real numbers in the state: a stored pair has two, a real or an unpaired mode one."""
        systems = self.systems().values()
        return sum(s.modes().numel() * (2 if self._halved(s) else 1) for s in systems)

    @property
    def condition(self) -> float:
        """How much the stored readout loses when it is restored; 1 for nothing."""
        systems = self.systems().values()
        return max([s.condition for s in systems if isinstance(s, DplrBank)], default=1.0)

    def _halved(self, system: System) -> bool:
        return not isinstance(system, DplrBank) and self.inner.continuous().rates.is_complex()

    def _make(self) -> dict[str, System]:
        inner = self.inner
        weights = inner.continuous()
        direct = self.D if self.D.ndim == 2 else self.D.unsqueeze(0)
        if not self.bidirectional:
            return {"": system_of(weights, direct, disc=inner.disc, checked=self.checked)}
        ways = zip(("forward", "backward"), weights.readout.chunk(2), (direct, None), strict=True)
        return {
            name: system_of(weights.read_by(half), skip, disc=inner.disc, checked=self.checked)
            for name, half, skip in ways
        }

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
    low, high = math.log(_SMALLEST_STEP), math.log(_LARGEST_STEP)
    steps = torch.empty_like(kernel.inv_dt).uniform_(low, high, generator=generator).exp()
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
        input_linear: nn.Module | None = None,
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


class S4OldBlock(S4Layer):
    """S4 of versions 1 to 3: recurrence and mixing layer in one module."""

    def __init__(
        self,
        kernel: nn.Module,
        direct: Tensor,
        pointwise: Pointwise,
        *,
        bidirectional: bool = False,
        output_linear: nn.Module,
    ) -> None:
        super().__init__(kernel, direct, bidirectional=bidirectional)
        self.pointwise = pointwise
        self.output_linear = output_linear

    def forward(self, u: Tensor) -> Tensor:
        y = self.pointwise.before(self.channels(u))
        return self.pointwise.after(self.output_linear(y))


def _gated(x: Tensor, gate: Callable[[Tensor], Tensor]) -> Tensor:
    value, raw = x.chunk(2, dim=-1)
    return value * gate(raw)


_DIAGONAL_MODES, _LOW_RANK_MODES = ("diag", "s4d"), ("dplr", "nplr", "s4")

#: The settings that change what the weights mean.
_RECIPE = ("real_transform", "imag_transform", "dt_transform", "disc", "dt_fast")

#: A discretization whose kernel is another one for every length of the sequence.
_DSS = "dss"


def read_recipe(facts: Facts, *, low_rank: bool, real: bool, disc: str = "zoh") -> S4Recipe:
    """The recipe of version 4; `disc` is the default of the code."""
    require_one_layer(facts, _RECIPE)
    names = tuple(POSITIVE)
    recipe = S4Recipe(
        real_transform=facts.choice("real_transform", names, default="exp"),
        imag_transform="none" if real else facts.choice("imag_transform", names, default="none"),
        dt_transform=facts.choice("dt_transform", names, default="exp"),
        disc="bilinear" if low_rank else read_disc(facts, default=disc),
        dt_fast=facts.flag("dt_fast", default=False),
        bandlimit=facts.number("bandlimit"),
    )
    if real and recipe.bandlimit is not None:
        raise config_error("it says a bandlimit, and real modes have no frequency")
    return recipe


def read_disc(facts: Facts, *, default: str) -> str:
    """The discretization of a diagonal system; dss is refused with its reason."""
    disc = facts.choice("disc", (*DISCRETIZATIONS, _DSS), default=default)
    if disc == _DSS:
        raise SourceError(
            "E_UNSUPPORTED",
            "the discretization dss divides by a sum over the whole sequence: its kernel is "
            "another one for every length, and so no recurrence",
            hint="audit a model that was trained with zoh or bilinear",
            stage="config",
        )
    return disc


def read_pointwise(facts: Facts, *, mixed: bool) -> Pointwise:
    """The activations of a block of version 4; `mixed` when a mixing layer follows."""
    names = tuple(ACTIVATIONS)
    final = "none"
    if mixed:
        final = facts.choice("final_act", names, default="glu", also=("postact",))
    return Pointwise(
        activation=facts.choice("activation", names, default="gelu"),
        mult_act=facts.choice("mult_act", names, default="none"),
        final_act=final,
        swap_channels=bool(stated(facts, "swap_channels") or False),
    )


def require_one_layer(facts: Facts, names: Sequence[str]) -> None:
    """Raise E_CONFIG when the config lists several kinds of layers, unless all names are given."""
    several = [facts.section("model").get("layer"), facts.section().get("layer")]
    asked = [name for name in names if not facts.given(name)]
    if asked and any(isinstance(layer, list) for layer in several):
        raise SourceError(
            "E_CONFIG",
            "the config lists several layers, and which of them is meant is not known",
            hint="say it: " + " ".join(f"--set {name}=VALUE" for name in asked),
            stage="config",
        )


def require_agreement(
    facts: Facts, found: Mapping[str, tuple[Any, str]], *, low_rank: bool
) -> None:
    """Raise E_CONFIG where the config says another layer than the tensors show.

    `found` has what every setting is, and the name of the tensor that shows it.
    """
    mode = stated(facts, "mode") or stated(facts, "kernel")
    known = _LOW_RANK_MODES if low_rank else _DIAGONAL_MODES
    if isinstance(mode, str) and mode in (*_DIAGONAL_MODES, *_LOW_RANK_MODES) and mode not in known:
        shown = "a low-rank part P" if low_rank else "no low-rank part P"
        raise config_error(f"it says mode {clean(mode)}, and the tensors have {shown}")
    for name, (value, key) in found.items():
        said = stated(facts, name)
        if said is not None and said != value:
            raise config_error(f"it says {name} = {clean(said)}, and {clean(key)} shows {value}")


def require_rank(facts: Facts, rank: int, *, key: str) -> None:
    """Refuse another rank than the config says; where it is silent, the code's own is 1."""
    said = stated(facts, "rank")
    if facts.stated and rank != (1 if said is None else said):
        told = "the config does not say so" if said is None else f"the config says {clean(said)}"
        raise weights_error(f"{clean(key)} has rank {rank}, and {told}")


def require_length(tensor: Tensor, *, key: str) -> None:
    """Refuse a length in few bits: the code stores 64, so it may be what is left of another."""
    if tensor.dtype not in (torch.int32, torch.int64):
        raise weights_error(f"{clean(key)} is no whole number of 64 bits")


def require_directions(facts: Facts, *, both: bool, key: str) -> None:
    """Refuse twice as many kernels as channels where a config says nothing of two directions."""
    if not both or stated(facts, "bidirectional") is not None:
        return
    shown = f"{clean(key)} has two kernels for every channel of D"
    if facts.stated:
        # The code's own default is one direction.
        raise weights_error(f"{shown}, and the config does not say bidirectional: true")
    facts.assumed["bidirectional"] = f"true ({shown})"


def require_width(
    pointwise: Pointwise, layer: S4Layer, *, takes: int, gives: int, key: str
) -> None:
    """Raise E_CONFIG unless the activations fit the mixing layer `key`, which takes and gives."""
    halved = [name for name in (pointwise.activation, pointwise.mult_act) if _halves(name)]
    share = 2 ** (len(halved) + (pointwise.hyper_act is not None))
    if layer.D.numel() != takes * share:
        said = f"activation {pointwise.activation} leaves 1/{share} of {layer.D.numel()} features"
        raise config_error(f"{said}, and {clean(key)} takes {takes}")
    if gives != layer.width * (2 if _halves(pointwise.final_act) else 1):
        said = f"final_act {pointwise.final_act} follows {gives} features of {clean(key)}"
        raise config_error(f"{said}, and the layer has {layer.width}")


def _halves(activation: str) -> bool:
    return activation.startswith("glu")


def notes_of(facts: Facts) -> tuple[str, ...]:
    """What the original does otherwise."""
    cut = stated(facts, "l_max")
    if not isinstance(cut, int) or cut <= 0:
        return ()
    return (
        f"the original cuts its kernels after l_max = {cut} steps when it convolves; "
        "here they are run without the cut, as when it steps",
    )


def stated(facts: Facts, name: str) -> Any:
    """What the config says of the layer, and not of the model around it; or None."""
    inner = facts.section("model", "layer") or facts.section("layer")
    return (inner or facts.section()).get(name)


def mixing(
    key: str,
    tensors: Mapping[str, Tensor],
    facts: Facts,
    pointwise: Pointwise,
    layer: S4Layer,
    *,
    asked: tuple[str, ...] = ("activation", "mult_act", "final_act"),
) -> nn.Module | None:
    """The mixing layer of a block, in a sequence where its name has a number; None without one.

    It is compared with the activations once they are known: `asked` are their names.
    """
    known = facts.stated or all(facts.given(name) for name in asked)
    if key not in tensors:
        if known:
            width = layer.width
            require_width(pointwise, layer, takes=width, gives=width, key="what follows the layer")
        return None
    weight = _matrix_shape(tensors, key)
    mix = Mix(weight, _bias_shape(tensors, key, weight[0]))
    if known:
        require_width(pointwise, layer, takes=weight[1], gives=weight[0], key=key)
    return nn.Sequential(mix) if key.endswith(".0.weight") else mix


def _matrix_shape(tensors: Mapping[str, Tensor], key: str) -> tuple[int, ...]:
    """The shape of a matrix, with or without a third axis of length 1."""
    shape = shape_of(tensors, key, max(2, tensors[key].ndim))
    if shape[2:] not in ((), (1,)):
        raise weights_error(f"{clean(key)} has the shape {shape}, and is no matrix")
    return shape


def _bias_shape(tensors: Mapping[str, Tensor], key: str, rows: int) -> tuple[int, ...]:
    """The shape of the bias, with or without a second axis of length 1; every version has one."""
    bias = key.removesuffix("weight") + "bias"
    if bias not in tensors:
        raise weights_error(f"{clean(bias)} is not there")
    shape = tuple(tensors[bias].shape)
    if shape not in ((rows,), (rows, 1)):
        raise weights_error(f"{clean(bias)} has the shape {shape}, and {clean(key)} {rows} rows")
    return shape


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
