"""S4 in all its versions: banks of diagonal or diagonal plus low-rank systems."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor, nn

from memaudit_ssm.layers.core import Core, run_both_ways
from memaudit_ssm.layers.s4_continuous import system_of
from memaudit_ssm.layers.s4_dplr import DplrBank
from memaudit_ssm.layers.s4_kernel import AbstractS4Kernel, S4Kernel, S4Recipe, S4Sizes

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    from memaudit.numerics.linear import System
    from memaudit_ssm.layers.stored import Stored

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
