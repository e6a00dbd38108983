"""The linear recurrent unit: one diagonal complex state between inputs and outputs."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor, nn

from memaudit.numerics.linear import Modal, System
from memaudit.reparams import Exp
from memaudit_ssm.layers.core import Core
from memaudit_ssm.layers.stored import Stored, complex_of

if TYPE_CHECKING:
    from collections.abc import Mapping

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
