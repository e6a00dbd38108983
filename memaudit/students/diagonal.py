"""A diagonal linear recurrence whose modes stand behind any reparameterization."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from memaudit.errors import ArgumentError, clean
from memaudit.students.activations import activation as function_of
from memaudit.students.forms import form_of

if TYPE_CHECKING:
    from memaudit.reparam import AbstractReparam

#: Powers of a growing mode stay below this, far enough from the end of float64 for sums of them.
LARGEST = 1e150


class DiagonalStudent(nn.Module):
    """x_t = lambda x_{t-1} + b u_t and y_t = c · act(x_t), with m real modes.

    In discrete time lambda = f(raw). In continuous time f(raw) is a rate, held over a `step`:
    lambda = exp(step f(raw)). The activation stands at the readout; "linear" leaves the student a
    convolution. `modes` are those that it starts with; one that the form cannot reach is refused.
    `amplitudes` a (m,) set b c = a, with |b| = |c|; else they are random with a generator, b ~
    N(0, 1) and c ~ N(0, 1/m), and zeros without one.
    """

    memaudit_roles = {"raw": "recurrent/diagonal", "b": "input/vector", "c": "readout/vector"}  # noqa: RUF012

    def __init__(
        self,
        modes: Tensor,
        *,
        reparam: str | AbstractReparam = "direct",
        time: str = "discrete",
        step: float = 1.0,
        activation: str = "linear",
        amplitudes: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.form = form_of(reparam, time=time)
        self.parameterization = self.form.name
        self.step_size = step
        self.activation = activation
        self._read = function_of(activation)
        given: object = modes
        if not isinstance(given, Tensor) or modes.ndim != 1 or not len(modes):
            shape = tuple(modes.shape) if isinstance(given, Tensor) else clean(given)
            hint = "give the modes (m,) that it starts with, as in torch.linspace(0.1, 0.9, 8)"
            raise ArgumentError(f"the modes are {shape}", hint=hint)
        if modes.is_complex():
            raise ArgumentError("the modes are complex", hint="give real ones, or memaudit_ssm.LRU")
        wanted = modes.detach().to(torch.float64)
        lam = wanted if time == "discrete" else wanted.log() / step
        if not bool((self.form.contains(lam) & lam.isfinite()).all()):
            fact = f"{self.form.name} cannot reach all of these modes"
            raise ArgumentError(fact, hint="give others, or a form with other constants")
        # A copy: the identity would train the tensor of whoever called.
        self.raw = nn.Parameter(self.form.inverse(lam).clone())
        self.b = nn.Parameter(torch.zeros_like(wanted))
        self.c = nn.Parameter(torch.zeros_like(wanted))
        self._start(amplitudes, generator)

    def modes(self) -> Tensor:
        """The eigenvalues (m,) of one step."""
        lam = self.form.forward(self.raw)
        return lam if self.form.time == "discrete" else torch.exp(self.step_size * lam)

    def kernel(self, steps: int) -> Tensor:
        """The kernel (T,) of a student with a linear readout."""
        lags = torch.arange(steps, dtype=self.raw.dtype, device=self.raw.device)
        return ((self.b * self.c)[:, None] * self.modes()[:, None] ** lags).sum(0)

    def states(self, u: Tensor) -> Tensor:
        """The states (B,T,m) under (B,T,1)."""
        lags = torch.arange(u.shape[1], dtype=self.raw.dtype, device=self.raw.device)
        modes = self.modes()
        fed = _convolved(u.mT, modes[:, None] ** lags, modes)  # (B,m,T)
        return fed.mT * self.b

    def forward(self, u: Tensor) -> Tensor:
        """The answers (B,T,1) to (B,T,1)."""
        if self.activation == "linear":
            return _convolved(u.mT, self.kernel(u.shape[1])[None], self.modes()).mT
        return (self._read(self.states(u)) @ self.c)[..., None]

    @torch.no_grad()
    def _start(self, amplitudes: Tensor | None, generator: torch.Generator | None) -> None:
        if amplitudes is not None:
            size = amplitudes.to(self.b).abs().sqrt()
            self.b.copy_(size)
            self.c.copy_(size * amplitudes.sign())
        elif generator is not None:
            self.b.normal_(0.0, 1.0, generator=generator)
            self.c.normal_(0.0, len(self.c) ** -0.5, generator=generator)


def _convolved(u: Tensor, kernels: Tensor, modes: Tensor) -> Tensor:
    """(B,K,T): the signal (B,1,T) under each of the kernels (K,T), sums of powers of the modes.

    An FFT spreads the rounding of the largest answer over all times. Where modes grow, signal and
    kernels are divided by r^t and the answers multiplied by it, r being the largest mode: then
    every answer has the rounding of its own size, and nothing runs back in time.
    """
    steps = u.shape[-1]
    most = LARGEST ** (1.0 / steps)
    growth = modes.detach().abs().amax().clamp(min=1.0, max=most)
    sizes = growth ** torch.arange(steps, dtype=u.dtype, device=u.device)
    spectrum = torch.fft.rfft(u / sizes, n=2 * steps)
    spectrum = spectrum * torch.fft.rfft(kernels / sizes, n=2 * steps)
    return torch.fft.irfft(spectrum, n=2 * steps)[..., :steps] * sizes
