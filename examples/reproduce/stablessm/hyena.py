"""A small Hyena whose long convolution is a real diagonal state space behind any form."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from memaudit.interfaces import AbstractReparam
from memaudit.numerics.linear import powers

#: Rates of the modes at the start: the steps of S4 and S5, a rate of one held over each.
SLOWEST, FASTEST = 0.001, 0.1


@dataclass(frozen=True, slots=True)
class Size:
    """How large a model is, and how long its sequences are."""

    tokens: int
    width: int
    depth: int
    length: int


class Mixer(nn.Module):
    """x_t = lambda x_{t-1} + gain · B u_t and y_t = C x_t + D u_t, with a real mode for each state.

    In discrete time lambda = f(raw), and the gain is sqrt(1 - lambda²) at the start, a constant:
    all states begin with the same size. In continuous time f(raw) is a rate that starts at
    `rate`, lambda = exp(step f(raw)) with a trained step, and the gain is that of a held input.
    """

    memaudit_roles = {"raw": "recurrent/diagonal"}  # noqa: RUF012

    def __init__(self, width: int, *, form: AbstractReparam, rate: float = -0.5) -> None:
        super().__init__()
        self.form = form
        self.parameterization = form.name
        rates = torch.logspace(math.log10(SLOWEST), math.log10(FASTEST), width, dtype=torch.float64)
        modes = torch.exp(-rates)
        if form.time == "discrete":
            self.raw = nn.Parameter(form.inverse(modes).float())
            self.register_buffer("gain", (1.0 - modes.square()).sqrt().float())
        else:
            start = form.inverse(torch.full_like(rates, rate))
            self.raw = nn.Parameter(start.float())
            self.log_step = nn.Parameter((rates / abs(rate)).log().float())
        self.B = nn.Parameter(torch.zeros(width, width))
        self.C = nn.Parameter(torch.zeros(width, width))
        self.D = nn.Parameter(torch.ones(width))

    def modes(self) -> Tensor:
        """The eigenvalues of one step."""
        rates = self.form.forward(self.raw)
        return rates if self.form.time == "discrete" else torch.exp(self.log_step.exp() * rates)

    def _gain(self) -> Tensor:
        if self.form.time == "discrete":
            return self.gain
        rates = self.form.forward(self.raw)
        return torch.expm1(self.log_step.exp() * rates) / rates

    def forward(self, u: Tensor) -> Tensor:
        """(B,T,H) to (B,T,H), by FFT."""
        steps = u.shape[1]
        fed = (functional.linear(u, self.B) * self._gain()).mT
        kernels = torch.fft.rfft(powers(self.modes(), steps), n=2 * steps)
        states = torch.fft.irfft(torch.fft.rfft(fed, n=2 * steps) * kernels, n=2 * steps)
        return functional.linear(states[..., :steps].mT, self.C) + self.D * u


class Block(nn.Module):
    """Hyena of order two, q · mixer(k · v) with a short convolution before, and a small network."""

    def __init__(self, width: int, *, form: AbstractReparam, rate: float) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.inward = nn.Linear(width, 3 * width)
        self.short = nn.Conv1d(3 * width, 3 * width, 3, groups=3 * width, padding=2)
        self.mixer = Mixer(width, form=form, rate=rate)
        self.outward = nn.Linear(width, width)
        self.network = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: Tensor) -> Tensor:
        """(B,T,H) to (B,T,H)."""
        fed = self.short(self.inward(self.norms[0](x)).mT)[..., : x.shape[1]].mT
        q, k, v = fed.chunk(3, dim=-1)
        x = x + self.outward(q * self.mixer(k * v))
        return x + self.network(self.norms[1](x))


class TokenModel(nn.Module):
    """Tokens (B,T) to the scores (B,T,V) of the next one."""

    def __init__(
        self, size: Size, *, form: AbstractReparam, generator: torch.Generator, rate: float = -0.5
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(size.tokens, size.width)
        self.blocks = nn.ModuleList(
            Block(size.width, form=form, rate=rate) for _ in range(size.depth)
        )
        self.norm = nn.LayerNorm(size.width)
        self.head = nn.Linear(size.width, size.tokens)
        fill(self, generator)

    def forward(self, tokens: Tensor) -> Tensor:
        """The scores of the next token at every place."""
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))

    def raws(self) -> list[nn.Parameter]:
        """The raw weights of all mixers."""
        return [part.raw for part in self.modules() if isinstance(part, Mixer)]


@torch.no_grad()
def fill(module: nn.Module, generator: torch.Generator) -> None:
    """Draw every matrix from N(0, 1/fan-in) and set biases to zero; modes and norms stay.

    Forms draw nothing, so that models which differ by their form alone start as equals.
    """
    for name, weight in module.named_parameters():
        if name.endswith("bias"):
            weight.zero_()
        elif weight.ndim > 1:
            weight.normal_(0.0, weight[0].numel() ** -0.5, generator=generator)
