"""S4D in its standalone form, and StableSSM, which is S4D with other parameterizations."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeVar, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from memaudit.interfaces import AbstractReparam, DiagonalDecay, NoDecay, StoredDecay
from memaudit.numerics.linear import Bank, System, discretize
from memaudit.reparams import Best, Direct, Exp, Softplus
from memaudit_ssm.core import ROUNDING, Core, complex_of, draw_log_steps
from memaudit_ssm.family import (
    AbstractFamily,
    Group,
    Projection,
    ResidualStack,
    Tensors,
    Whole,
    in_order,
    paired_shape,
    read_projection,
    require_alike,
    shape_of,
)
from memaudit_ssm.settings import Hyperparameters, read_pooling

#: The constant of `best` in the public code of StableSSM: rate = 1 / (w² + 0.1).
BEST_OFFSET = 0.1
#: As StableSSM names them: the real part of A in continuous time.
REAL_PART: Mapping[str, Callable[[Tensor], Tensor]] = {
    "exp": lambda w: -torch.exp(w),
    "softplus": lambda w: -functional.softplus(w),
    "best": lambda w: -1.0 / (w * w + BEST_OFFSET),
    "direct": lambda w: w,
}
#: The raw weight of the rate 1/2 with which training starts.
_RAW_HALF = {
    "exp": math.log(0.5),
    "softplus": math.log(math.expm1(0.5)),
    "best": math.sqrt(2.0 - BEST_OFFSET),
    "direct": -0.5,
}


@dataclass(frozen=True, slots=True)
class HeldBest(Best):
    """`best` as a law of stored weights: faster rates than 1/b have no raw weight.

    At 1/b itself the root has no slope, which must not become a gradient that is no number.
    """

    def inverse(self, lam: Tensor) -> Tensor:
        above = -1.0 / lam - self.b
        root = (above.clamp(min=torch.finfo(lam.dtype).tiny) / self.a).sqrt()
        return torch.where(above >= -ROUNDING * self.b, root, torch.nan)


#: Behind the parameterizations of StableSSM.
STABLE_LAWS: dict[str, AbstractReparam] = {
    "exp": Exp(),
    "softplus": Softplus(),
    "best": HeldBest(a=1.0, b=BEST_OFFSET),
    "direct": Direct(),
}


class S4DKernel(nn.Module):
    """The weights of S4D: C (H,N,2), log_dt (H,), log_A_real (H,N) and A_imag (H,N)."""

    def __init__(self, width: int, pairs: int) -> None:
        super().__init__()
        self.C = nn.Parameter(torch.zeros(width, pairs, 2))
        self.log_dt = nn.Parameter(torch.zeros(width))
        self.log_A_real = nn.Parameter(torch.zeros(width, pairs))
        self.A_imag = nn.Parameter(torch.zeros(width, pairs))


class S4D(Core):
    """A bank of `width` diagonal systems with `states` / 2 conjugate pairs each.

    A = f(log_A_real) + i·A_imag in continuous time, B = 1, held over a step of exp(log_dt):
    K(l) = 2 Re Σ_n C_n (e^{dt·A_n} - 1) / A_n · e^{dt·A_n·l}. `parameterization` names f: exp,
    softplus, best (-1/(w² + 0.1)) or direct. With a generator the weights are random as at the
    start of training; without one they are zeros, to be loaded.
    """

    cell: ClassVar[str] = "s4d"

    def __init__(
        self,
        width: int,
        states: int = 64,
        *,
        parameterization: str = "exp",
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        if parameterization not in REAL_PART:
            raise ValueError(f"{parameterization!r} is none of {', '.join(REAL_PART)}")
        self.width = width
        self.parameterization = parameterization
        self.D = nn.Parameter(torch.zeros(width))
        self.kernel = S4DKernel(width, states // 2)
        if generator is not None:
            self._start(generator)

    def rates(self) -> Tensor:
        """A (H,N) in continuous time, one of each conjugate pair."""
        real = REAL_PART[self.parameterization](self.kernel.log_A_real)
        return complex_of(real, self.kernel.A_imag)

    def system(self) -> Bank:
        """The bank in discrete time."""
        kernel = self.kernel
        modes, gains = discretize(self.rates(), kernel.log_dt.exp().unsqueeze(-1), how="zoh")
        # One of each conjugate pair is stored; the other one doubles the real part.
        readout = 2.0 * torch.view_as_complex(kernel.C)
        return Bank(modes, gains, readout.unsqueeze(0), self.D.unsqueeze(0))

    def systems(self) -> Mapping[str, System]:
        return {"": self.system()}

    def modes(self) -> Tensor:
        return self.system().modes()

    def decay(self) -> DiagonalDecay:
        return DiagonalDecay(self.kernel, "log_A_real", STABLE_LAWS[self.parameterization])

    def run(self, u: Tensor) -> Tensor:
        return self.system().run(u, self.execution).flatten(2)

    @torch.no_grad()
    def _start(self, generator: torch.Generator) -> None:
        kernel = self.kernel
        draw_log_steps(kernel.log_dt, generator)
        kernel.C.normal_(0.0, math.sqrt(0.5), generator=generator)
        kernel.A_imag.copy_(math.pi * torch.arange(kernel.A_imag.shape[1]))
        kernel.log_A_real.fill_(_RAW_HALF[self.parameterization])
        self.D.normal_(generator=generator)


class S4DBlock(S4D):
    """S4D with its activation and its gated mixing layer (H → 2H, halves multiplied)."""

    def __init__(self, width: int, states: int = 64, *, parameterization: str = "exp") -> None:
        super().__init__(width, states, parameterization=parameterization)
        self.output_linear = nn.Sequential(nn.Conv1d(width, 2 * width, kernel_size=1))

    def forward(self, u: Tensor) -> Tensor:
        mix = cast("nn.Conv1d", self.output_linear[0])
        hidden = functional.gelu(self.run(u))
        return functional.glu(functional.linear(hidden, mix.weight[..., 0], mix.bias), dim=-1)


class ExampleStack(ResidualStack):
    """S4Model of state-spaces/s4's example.py."""

    listed: ClassVar[str] = "s4_layers"

    def __init__(
        self,
        layers: Sequence[nn.Module],
        *,
        inputs: int,
        outputs: int,
        hidden: int,
        prenorm: bool,
        pooling: str,
    ) -> None:
        super().__init__(inputs=inputs, hidden=hidden, prenorm=prenorm, pooling=pooling)
        self.encoder = nn.Linear(inputs, hidden)
        self.s4_layers = nn.ModuleList(layers)
        self.norms = nn.ModuleList(nn.LayerNorm(hidden) for _ in layers)
        self.decoder = nn.Linear(hidden, outputs)

    def stack(self) -> tuple[nn.ModuleList, nn.ModuleList]:
        return self.s4_layers, self.norms


def example_stack(
    layers: Sequence[nn.Module], tensors: Tensors, hyper: Hyperparameters, *, pooling: str
) -> ExampleStack:
    """The example's stack around these layers, with the sizes of its encoder and decoder."""
    outputs, hidden = shape_of(tensors, "decoder.weight", 2)
    inputs = shape_of(tensors, "encoder.weight", 2)[1]
    require_alike(tensors, ("encoder.weight", 0), ("decoder.weight", 1))
    hyper.require_sizes(
        {
            "d_input": (inputs, "the inputs of encoder.weight are"),
            "d_output": (outputs, "the outputs of decoder.weight are"),
            "d_model": (hidden, "the inputs of decoder.weight are"),
            "n_layers": (len(layers), "the layers in the file are"),
        }
    )
    prenorm = hyper.flag("prenorm", default=False)
    return ExampleStack(
        layers, inputs=inputs, outputs=outputs, hidden=hidden, prenorm=prenorm, pooling=pooling
    )


class StableLayers(nn.Module):
    """The layers and their norms, under the names of StableSSM."""

    def __init__(self, layers: Sequence[Core], hidden: int) -> None:
        super().__init__()
        self.stablessm_layers = nn.ModuleList(layers)
        self.norms = nn.ModuleList(nn.LayerNorm(hidden) for _ in layers)


class StableStack(ResidualStack):
    """StableSSMModel between its linear encoder and decoder, as Lightning saves them."""

    listed: ClassVar[str] = "stablessm_layers"

    def __init__(
        self,
        layers: Sequence[Core],
        *,
        ends: tuple[Projection, Projection],
        prenorm: bool,
        pooling: str,
    ) -> None:
        encoder, decoder = ends
        inputs, hidden = encoder.U.in_features, encoder.U.out_features
        super().__init__(inputs=inputs, hidden=hidden, prenorm=prenorm, pooling=pooling)
        self.encoder = encoder
        self.net = StableLayers(layers, hidden)
        self.decoder = decoder

    def stack(self) -> tuple[nn.ModuleList, nn.ModuleList]:
        return self.net.stablessm_layers, self.net.norms


_Layer = TypeVar("_Layer", bound=S4D)

_FIRST = re.compile(r"^(?P<prefix>(?:.*\.)?)kernel\.(?P<role>log_A_real|A_imag)\Z")
_KERNEL = ("kernel.C", "kernel.log_dt", "kernel.log_A_real", "kernel.A_imag")
_MIX = ("output_linear.0.weight", "output_linear.0.bias")
_NETS = (("model", "net"), ("net",))
#: How log_A_real becomes a rate follows from the kernel of the module alone.
UNCLEAR = "how log_A_real becomes a rate is not clear: its kernel is that of no known form"


class S4DFamily(AbstractFamily):
    """kernel.{C, log_dt, log_A_real, A_imag} beside D; B is 1 and not stored."""

    name: ClassVar[str] = "s4d"
    cell: ClassVar[str] = "s4d"

    def find(self, tensors: Tensors) -> list[Group]:
        groups: dict[str, Group] = {}
        for name in tensors:
            match = _FIRST.match(name)
            if match is None or match["prefix"] in groups:
                continue
            prefix = match["prefix"]
            inside = [key for key in tensors if key.startswith(f"{prefix}kernel.")]
            roles = {role: prefix + role for role in (*_KERNEL, "D")}
            unknown = tuple(key for key in inside if key not in roles.values())
            # Other families have an A_imag too; here it tells that log_A_real was lost.
            if match["role"] == "log_A_real" or (not unknown and len(inside) == len(_KERNEL) - 1):
                groups[prefix] = Group(prefix, roles, unknown)
        return list(groups.values())

    def layer(self, group: Group, tensors: Tensors, hyper: Hyperparameters) -> S4D:
        return self._built(S4D, group, tensors, hyper)

    def whole(self, groups: list[Group], tensors: Tensors, hyper: Hyperparameters) -> Whole | str:
        example, stable = in_order(groups, "s4_layers."), in_order(groups, "net.stablessm_layers.")
        ordered = example or stable
        if ordered is None:
            return "the layers are named neither s4_layers.N nor net.stablessm_layers.N"
        if not {f"{g.prefix}{end}" for g in groups for end in _MIX} <= set(tensors):
            return "a layer has no output_linear"
        ends = ("encoder", "decoder") if example else ("encoder.U", "decoder.U")
        if not {f"{end}.weight" for end in ends} <= set(tensors):
            return f"{' or '.join(ends)} is missing"
        layers = [self._block(group, tensors, hyper) for group in ordered]
        if example:
            pooling = read_pooling(hyper, default="mean", also=("pooled",))
            return Whole(example_stack(layers, tensors, hyper, pooling=pooling))
        return Whole(_stable_stack(layers, tensors, hyper))

    def published(self, module: nn.Module, own: Tensors) -> StoredDecay | None:
        if not {"C", "log_dt", "log_A_real", "A_imag"} <= set(own) or "B" in own:
            return None
        law = law_of_kernel(module, own)
        return NoDecay(UNCLEAR) if law is None else DiagonalDecay(module, "log_A_real", law)

    def _block(self, group: Group, tensors: Tensors, hyper: Hyperparameters) -> S4DBlock:
        block = self._built(S4DBlock, group, tensors, hyper)
        readout = group.keys["kernel.C"]
        require_alike(tensors, (readout, 0), (f"{group.prefix}{_MIX[0]}", 1))
        states = 2 * block.kernel.C.shape[1]
        hyper.require_sizes({"d_state": (states, f"{readout} has room for")})
        return block

    def _built(
        self, kind: type[_Layer], group: Group, tensors: Tensors, hyper: Hyperparameters
    ) -> _Layer:
        readout, rates = group.keys["kernel.C"], group.keys["kernel.log_A_real"]
        width, pairs = paired_shape(tensors, readout, 2)
        require_alike(tensors, (readout, 0), (rates, 0), axes=2)
        # S4D has exp and no other; StableSSM states its own.
        stable = "stablessm" in group.prefix or bool(hyper.section("model", "net"))
        default = "exp" if hyper.has_config and not stable else None
        parameterization = hyper.choice(
            "parameterization", tuple(REAL_PART), default=default, also=("real_transform",)
        )
        return kind(width, 2 * pairs, parameterization=parameterization)


def _stable_stack(
    layers: Sequence[S4DBlock], tensors: Tensors, hyper: Hyperparameters
) -> StableStack:
    encoder = read_projection(tensors, hyper, "encoder")
    decoder = read_projection(tensors, hyper, "decoder")
    require_alike(tensors, ("encoder.U.weight", 0), ("decoder.U.weight", 1))
    sizes = {
        "rec1_size": (encoder.U.out_features, "the outputs of encoder.U.weight are"),
        "n_layers": (len(layers), "the layers in the file are"),
    }
    hyper.require_sizes(sizes, places=_NETS)
    prenorm = hyper.flag("prenorm", default=False)
    # StableSSM says return_seq for the opposite of an average.
    sequences = hyper.section("model", "net").get("return_seq")
    if sequences is None or hyper.given("pool"):
        pooling = read_pooling(hyper, default="mean")
    else:
        pooling = "none" if sequences else "mean"
    return StableStack(layers, ends=(encoder, decoder), prenorm=prenorm, pooling=pooling)


#: So many steps tell one form from another even where step sizes are 0.001.
_STEPS = 64
#: Single precision loses up to a ten-thousandth where the code subtracts one from exp(dt·A).
_CLOSE = 1e-3
#: What a module raises that only looks like a kernel.
_NO_KERNEL = (RuntimeError, TypeError, ValueError, AttributeError, IndexError)


def law_of_kernel(module: nn.Module, own: Tensors) -> AbstractReparam | None:
    """The one law with which the kernel of S4D is that of the module; None for none or several."""
    rates, steps = own["log_A_real"], own["log_dt"]
    alike = rates.shape == own["A_imag"].shape and own["C"].shape == (*rates.shape, 2)
    if not alike or rates.ndim != 2 or steps.shape != rates.shape[:1]:
        return None
    try:
        with torch.no_grad():
            found = module(_STEPS).reshape(len(rates), _STEPS)
            fitting = [law for law in STABLE_LAWS.values() if _is_kernel(found, law, own)]
    except _NO_KERNEL:
        return None
    return fitting[0] if len(fitting) == 1 else None


def _is_kernel(found: Tensor, law: AbstractReparam, own: Tensors) -> bool:
    """Whether K(l) = 2 Re Σ_n C_n (e^{dt·A_n} - 1) / A_n · e^{dt·A_n·l} with this law."""
    rates = torch.complex(law.forward(own["log_A_real"].double()), own["A_imag"].double())
    modes, gains = discretize(rates, own["log_dt"].double().exp().unsqueeze(-1), how="zoh")
    powers = modes.unsqueeze(-1) ** torch.arange(_STEPS, dtype=torch.float64, device=rates.device)
    readout = gains * torch.view_as_complex(own["C"].double().contiguous())
    kernel = 2.0 * torch.einsum("hn,hnl->hl", readout, powers).real
    return bool((kernel - found).abs().amax() <= _CLOSE * kernel.abs().amax())
