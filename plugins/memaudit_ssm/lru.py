"""The linear recurrent unit: minimal-LRU in flax, and its ports to torch."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor, nn

from memaudit.errors import clean
from memaudit.interfaces import DiagonalDecay, StoredDecay
from memaudit.numerics.linear import Modal, System
from memaudit.reparams import Exp
from memaudit_ssm.core import Core, complex_of
from memaudit_ssm.family import (
    AbstractFamily,
    Group,
    Tensors,
    Whole,
    paired_shape,
    plain_numbers,
    shape_of,
    weights_error,
)
from memaudit_ssm.flax import LRU_CODE, find_layers, whole_model
from memaudit_ssm.settings import Hyperparameters, unsupported

#: How B and C are stored: real and imaginary parts apart, as complex numbers, or as pairs (…,2).
FORMS = ("split", "complex", "pairs")

#: The slowest decay at the start of training: exp(nu_log) = 0, a mode on the circle, has no nu_log.
_SLOWEST = 5e-7


class LRU(Core):
    """x_t = λ x_{t-1} + exp(gamma_log) B u_t and y_t = Re(C x_t) + D u_t.

    λ = exp(-exp(nu_log) + i·exp(theta_log)) has N = `states` entries; B is (N,H), C (M,N), and D
    is (H,), or (M,H) when it is `dense`. `form` is how B and C are stored, one of FORMS. `doubled`
    is for code that reads 2 Re(C x_t). With a generator the weights are random as at the start of
    training, λ uniform on the ring between the two `radii`; with `roots` λ stands at even
    distances on the outer circle, exp(2πi j/N) times its radius, which at 1 is 1 - 5e-7. Without
    a generator they are zeros, to be loaded.
    """

    cell: ClassVar[str] = "lru"

    def __init__(
        self,
        width: int,
        states: int = 64,
        *,
        outputs: int | None = None,
        form: str = "split",
        dense: bool = False,
        doubled: bool = False,
        radii: tuple[float, float] = (0.0, 1.0),
        roots: bool = False,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        if form not in FORMS:
            raise ValueError(f"{form!r} is none of {', '.join(FORMS)}")
        outputs = width if outputs is None else outputs
        if not dense and outputs != width:
            raise ValueError(f"a diagonal D joins {width} inputs to as many outputs, not {outputs}")
        self.width = width
        self.form = form
        self.doubled = doubled
        self.nu_log = nn.Parameter(torch.zeros(states))
        self.theta_log = nn.Parameter(torch.zeros(states))
        self.gamma_log = nn.Parameter(torch.zeros(states))
        self._add("B", states, width)
        self._add("C", outputs, states)
        self.D = nn.Parameter(torch.zeros((outputs, width) if dense else (width,)))
        if generator is not None:
            self._start(generator, radii, roots=roots)

    def modes(self) -> Tensor:
        return torch.exp(complex_of(-self.nu_log.exp(), self.theta_log.exp()))

    def system(self) -> Modal:
        """The recurrence with its normalised inputs."""
        inputs = self.gamma_log.exp().unsqueeze(-1) * self._matrix("B")
        readout = (2.0 if self.doubled else 1.0) * self._matrix("C")
        return Modal(self.modes(), inputs, readout, self.D)

    def systems(self) -> Mapping[str, System]:
        return {"": self.system()}

    def decay(self) -> DiagonalDecay:
        return DiagonalDecay(self, "nu_log", Exp())

    def run(self, u: Tensor) -> Tensor:
        return self.system().run(u, self.execution)

    def _add(self, name: str, rows: int, columns: int) -> None:
        """A complex matrix of zeros in the form in which it is stored."""
        if self.form == "split":
            self.register_parameter(f"{name}_re", nn.Parameter(torch.zeros(rows, columns)))
            self.register_parameter(f"{name}_im", nn.Parameter(torch.zeros(rows, columns)))
            return
        pairs = torch.zeros(rows, columns, 2)
        stored = pairs if self.form == "pairs" else torch.view_as_complex(pairs)
        self.register_parameter(name, nn.Parameter(stored))

    def _matrix(self, name: str) -> Tensor:
        # As attributes: other tensors may stand in the place of the parameters for a while.
        if self.form == "split":
            return torch.complex(getattr(self, f"{name}_re"), getattr(self, f"{name}_im"))
        stored: Tensor = getattr(self, name)
        return torch.view_as_complex(stored) if self.form == "pairs" else stored

    @torch.no_grad()
    def _start(
        self, generator: torch.Generator, radii: tuple[float, float], *, roots: bool
    ) -> None:
        low, high = radii
        count = len(self.nu_log)
        # Uniform over the ring between the radii; a share of exactly 0 has no logarithm.
        share = torch.rand(self.nu_log.shape, generator=generator).clamp(min=1e-6)
        phase = torch.rand(self.theta_log.shape, generator=generator).clamp(min=1e-6)
        if roots:
            share, phase = torch.ones(count), torch.arange(1, count + 1) / count
        decay = -0.5 * (share.double() * (high**2 - low**2) + low**2).log()
        decay = decay.clamp(min=_SLOWEST)
        self.nu_log.copy_(decay.log())
        self.theta_log.copy_((math.tau * phase.double()).log())
        self.gamma_log.copy_(0.5 * (-torch.expm1(-2 * decay)).log())
        self._draw("B", math.sqrt(2 * self.width), generator)
        self._draw("C", math.sqrt(len(self.nu_log)), generator)
        self.D.normal_(generator=generator)

    def _draw(self, name: str, scale: float, generator: torch.Generator) -> None:
        rows, columns = self._matrix(name).shape
        parts = torch.randn(2, rows, columns, generator=generator) / scale
        if self.form == "split":
            self.get_parameter(f"{name}_re").copy_(parts[0])
            self.get_parameter(f"{name}_im").copy_(parts[1])
        else:
            pairs = parts.permute(1, 2, 0).contiguous()
            stored = self.get_parameter(name)
            stored.copy_(pairs if self.form == "pairs" else torch.view_as_complex(pairs))


_FIRST = re.compile(r"^(?P<prefix>(?:.*[./])?)(?P<leaf>nu_log|nu|theta_log)\Z")
_VECTORS = ("nu_log", "theta_log", "gamma_log")


class LRUFamily(AbstractFamily):
    """nu_log, theta_log and gamma_log beside B, C and D."""

    name: ClassVar[str] = "lru"
    cell: ClassVar[str] = "lru"

    def find(self, tensors: Tensors) -> list[Group]:
        def roles(prefix: str, leaf: str) -> dict[str, str] | None:
            # nu is a name that others use too: an LRU has it beside theta and B.
            port = f"{prefix}theta" in tensors and {f"{prefix}B", f"{prefix}B_re"} & set(tensors)
            if leaf == "nu" and not port:
                return None
            # Beside gamma_log theta_log tells that nu_log was lost.
            if leaf == "theta_log" and f"{prefix}gamma_log" not in tensors:
                return None
            return _roles(tensors, prefix)

        return find_layers(tensors, _FIRST, roles)

    def layer(self, group: Group, tensors: Tensors, hyper: Hyperparameters) -> LRU:
        _require_logarithms(group, tensors)
        keys = group.keys
        form = "split"
        if "B" in keys:
            form = "complex" if tensors[keys["B"]].is_complex() else "pairs"
        first, last = (keys[f"{name}_re" if form == "split" else name] for name in "BC")
        shape = paired_shape if form == "pairs" else shape_of
        (states, inputs), (outputs, _) = shape(tensors, first, 2), shape(tensors, last, 2)
        dense = tensors[keys["D"]].ndim == 2
        if not dense and inputs != outputs:
            fact = f"{clean(first)} has {inputs} inputs and {clean(last)} {outputs} outputs"
            raise weights_error(f"{fact}, which {clean(keys['D'])} does not join")
        hyper.require_sizes({"d_hidden": (states, f"the states of {clean(first)} are")})
        # minimal-LRU does not double; of ports it is not known.
        doubled = form != "split" and hyper.flag(
            "conj_sym", default=False, why="nothing says that the port doubles Re(C x)"
        )
        return LRU(inputs, states, outputs=outputs, form=form, dense=dense, doubled=doubled)

    def whole(self, groups: list[Group], tensors: Tensors, hyper: Hyperparameters) -> Whole | str:
        return whole_model(self, groups, tensors, hyper, LRU_CODE)

    def published(self, module: nn.Module, own: Tensors) -> StoredDecay | None:
        known = set(_VECTORS) <= set(own) and own["nu_log"].shape == own["theta_log"].shape
        return DiagonalDecay(module, "nu_log", Exp()) if known and own["nu_log"].ndim == 1 else None


def _roles(tensors: Tensors, prefix: str) -> dict[str, str]:
    """The name inside the layer → the name in the file; ports may leave out _log."""
    short = {role: prefix + role.removesuffix("_log") for role in _VECTORS}
    roles = {
        role: key if prefix + role not in tensors and key in tensors else prefix + role
        for role, key in short.items()
    }
    matrices = ("B", "C") if f"{prefix}B" in tensors else ("B_re", "B_im", "C_re", "C_im")
    return roles | {name: prefix + name for name in (*matrices, "D")}


def _require_logarithms(group: Group, tensors: Tensors) -> None:
    """Refuse nu, theta or gamma that may be the numbers themselves: only a log is negative.

    Logarithms of phases above 1 are positive too: theta is what nu is, if both leave out _log.
    """
    short = {r: k for r, k in group.keys.items() if r in _VECTORS and not k.endswith(r)}
    unclear = {r: k for r, k in short.items() if not bool((plain_numbers(tensors, k) < 0).any())}
    if "nu_log" in short and "nu_log" not in unclear:
        unclear.pop("theta_log", None)
    for role, key in unclear.items():
        raise unsupported(
            f"{clean(key)} may hold numbers or their logarithms: none is negative",
            hint=f"save the logarithms under the name {role}",
            stage="recognise",
        )
