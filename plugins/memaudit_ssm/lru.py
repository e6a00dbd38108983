"""The linear recurrent unit: minimal-LRU in flax, and its ports to torch."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor, nn

from memaudit.errors import SourceError, clean
from memaudit.numerics.linear import Modal, System
from memaudit.reparams.exp import Exp
from memaudit_ssm.core import Core, Stored, complex_of
from memaudit_ssm.family import AbstractFamily, Group, Whole, plain_numbers, shape_of, weights_error
from memaudit_ssm.flax import LRU_CODE, by_module, named_apart, of_optimizer, whole_model
from memaudit_ssm.settings import MODEL_PLACES, Facts, assumed_flag, require_stated

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

    def decay(self) -> Stored:
        return Stored(self, "nu_log", Exp())

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

_SPLIT = ("B_re", "B_im", "C_re", "C_im")

_VECTORS = ("nu_log", "theta_log", "gamma_log")


class LRUFamily(AbstractFamily):
    """nu_log, theta_log and gamma_log beside B, C and D."""

    name: ClassVar[str] = "lru"

    def find(self, tensors: Mapping[str, Tensor]) -> list[Group]:
        found: dict[str, Group] = {}
        modules = by_module(tensors)
        for name in tensors:
            match = _FIRST.match(name)
            if match is None or of_optimizer(name):
                continue
            prefix = match["prefix"]
            if match["leaf"] == "nu" and not _is_port(tensors, prefix):
                continue
            # Beside gamma_log it tells that nu_log was lost.
            if match["leaf"] == "theta_log" and f"{prefix}gamma_log" not in tensors:
                continue
            roles = _roles(tensors, prefix)
            strange = tuple(key for key in modules[prefix] if key not in roles.values())
            found[prefix] = Group(prefix, roles, strange)
        return named_apart(found)

    def layer(self, group: Group, tensors: Mapping[str, Tensor], facts: Facts) -> LRU:
        _require_logarithms(group, tensors)
        form = _form(group, tensors)
        end = "_re" if form == "split" else ""
        b, c = (_shape(group, tensors, name, form) for name in ("B", "C"))
        direct = tensors.get(group.keys["D"])
        dense = direct is not None and direct.ndim == 2
        if not dense and b[1] != c[0]:
            shown = [clean(group.keys[role + end]) for role in "BC"]
            fact = f"{shown[0]} has {b[1]} inputs and {shown[1]} {c[0]} outputs"
            raise weights_error(f"{fact}, which {clean(group.keys['D'])} does not join")
        first = group.keys["B" + end]
        require_stated(facts, MODEL_PLACES, "d_hidden", b[0], f"the states of {clean(first)} are")
        return LRU(b[1], b[0], outputs=c[0], form=form, dense=dense, doubled=_doubled(facts, form))

    def whole(
        self, groups: list[Group], tensors: Mapping[str, Tensor], facts: Facts
    ) -> Whole | str:
        def build(group: Group) -> LRU:
            return self.layer(group, tensors, facts)

        return whole_model(groups, tensors, facts, build=build, code=LRU_CODE)


def _is_port(tensors: Mapping[str, Tensor], prefix: str) -> bool:
    """Whether nu has the company of an LRU: it is a name that others use too."""
    return f"{prefix}theta" in tensors and any(f"{prefix}{b}" in tensors for b in ("B", "B_re"))


def _roles(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, str]:
    """The name inside the layer → the name in the file; ports may leave out _log."""
    short = {role: prefix + role.removesuffix("_log") for role in _VECTORS}
    roles = {
        role: key if prefix + role not in tensors and key in tensors else prefix + role
        for role, key in short.items()
    }
    matrices = ("B", "C") if f"{prefix}B" in tensors else _SPLIT
    return roles | {name: prefix + name for name in (*matrices, "D")}


def _form(group: Group, tensors: Mapping[str, Tensor]) -> str:
    if "B" not in group.keys:
        return "split"
    return "complex" if tensors[group.keys["B"]].is_complex() else "pairs"


def _shape(group: Group, tensors: Mapping[str, Tensor], name: str, form: str) -> tuple[int, ...]:
    """Rows and columns of B or C."""
    if form == "split":
        return shape_of(tensors, group.keys[f"{name}_re"], 2)
    key = group.keys[name]
    shape = shape_of(tensors, key, 3 if form == "pairs" else 2)
    if form == "pairs" and shape[2] != 2:
        raise weights_error(f"{clean(key)} does not end in pairs (real, imaginary)")
    return shape[:2]


def _require_logarithms(group: Group, tensors: Mapping[str, Tensor]) -> None:
    """Refuse nu, theta or gamma that may be the numbers themselves: only a log is negative.

    Logarithms of phases above 1 are positive too: theta is what nu is, if both leave out _log.
    """
    keys = {role: key for role, key in group.keys.items() if not key.endswith(role)}
    open_ones = {
        role: key
        for role, key in keys.items()
        if role in _VECTORS and not bool((plain_numbers(tensors, key) < 0).any())
    }
    if "nu_log" in keys and "nu_log" not in open_ones:
        open_ones.pop("theta_log", None)
    for role, key in open_ones.items():
        raise SourceError(
            "E_UNSUPPORTED",
            f"{clean(key)} may hold numbers or their logarithms: none is negative",
            hint=f"save the logarithms under the name {role}",
            stage="recognise",
        )


def _doubled(facts: Facts, form: str) -> bool:
    """Known of minimal-LRU, which does not double; of ports only by being told."""
    if form == "split":
        return False
    unsaid = "nothing says that the port doubles Re(C x)"
    return assumed_flag(facts, "conj_sym", default=False, why=unsaid)
