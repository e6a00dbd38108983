"""How much of every past input a linear readout finds in a state, from samples."""

from __future__ import annotations

import torch
from torch import Tensor

#: Numbers in one block of the spectra of states and channels.
_BLOCK = 2**24


class CrossFit:
    """R²(lag) of past inputs from states, by the coefficients of one half of the samples.

    With b the least-squares coefficients of one half and c the covariances of the other,
    R²(k) = b(k)·c(k) / var(u), both ways round: noise in b and in c is independent, so that noise
    has mean zero and does not count as memory. Numbers of the state have variance 1, and the ridge
    is n·max(eps², 2.2e-16) for a state of n numbers in a dtype with that eps: what the rounding
    of the state hides is not found. `null` is the same with the inputs of other sequences.
    """

    def __init__(self, lags: int, *, eps: float) -> None:
        self.lags = lags
        self.samples = 0
        self._eps = eps
        self._shift: Tensor | None = None
        self._unit: Tensor | None = None
        self._halves: list[_Sums | None] = [None, None]

    def add(self, half: int, states: Tensor, channels: Tensor) -> None:
        """Sequences of states (B,T,n) and channels (B,T,C); the first `lags` steps pass by."""
        if self._shift is None or self._unit is None:
            # Sums of squares keep their digits when the mean is near zero, and their range when
            # the states are of the size of 1.
            top = states.double().abs().amax((0, 1))
            self._unit = torch.where(top > 0, top, 1.0)
            self._shift = (states[:, self.lags :] / self._unit).mean((0, 1))
        moved = states / self._unit - self._shift
        found = _Sums.of(moved, channels, self.lags)
        before = self._halves[half]
        self._halves[half] = found if before is None else before.plus(found)
        self.samples += states.shape[0] * (states.shape[1] - self.lags)

    def copy(self) -> CrossFit:
        """What was found so far, to come back to."""
        made = CrossFit(self.lags, eps=self._eps)
        made.samples, made._shift, made._unit = self.samples, self._shift, self._unit
        made._halves = [*self._halves]
        return made

    def values(self) -> tuple[Tensor, Tensor]:
        """R² and null (lags,) as means over the channels; zeros where the state never moves."""
        one, other = (half.moments() for half in self._halves if half is not None)
        scale = ((one[0].diagonal() + other[0].diagonal()) / 2).sqrt()
        size = scale if self._shift is None else torch.maximum(scale, self._shift.abs())
        live = scale > self._eps * size
        if not bool(live.any()):
            return torch.zeros(self.lags).double(), torch.zeros(self.lags).double()
        fits = [self._fit(moments, live, scale[live]) for moments in (one, other)]
        (b, c), (beta, gamma) = fits
        both = ((b * gamma).sum(1) + (beta * c).sum(1)) / 2  # (2,lags,C)
        real, null = (both / ((one[2] + other[2]) / 2)).mean(-1)
        return real.clamp(0, 1), null

    def scatter(self) -> Tensor:
        """How much more the noise at every lag scatters than `null` does, at least 1: (lags,).

        Products x u of numbers that depend on each other scatter by E[x² u²], not by E[x²] E[u²],
        even where they are not correlated, as u² and u.
        """
        found = [half.sums[-1] / half.count for half in self._halves if half is not None]
        return torch.stack(found).mean(0).sqrt().clamp(min=1)

    def _fit(
        self, moments: tuple[Tensor, Tensor, Tensor], live: Tensor, scale: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Coefficients and covariances (2,n,lags,C), of the inputs and of those of others."""
        square, cross, _ = moments
        square = square[live][:, live] / (scale[:, None] * scale)
        cross = cross[:, live] / scale[:, None, None]
        count = len(scale)
        ridge = count * max(self._eps**2, torch.finfo(torch.float64).eps)
        square = square + ridge * torch.eye(count, dtype=square.dtype)
        flat = torch.linalg.solve(square, cross.flatten(2))
        return flat.view_as(cross), cross


class _Sums:
    """Sums of products over the samples of one half."""

    def __init__(self, *sums: Tensor, count: int) -> None:
        self.sums = sums
        self.count = count

    @classmethod
    def of(cls, states: Tensor, channels: Tensor, lags: int) -> _Sums:
        """Those of some sequences: states, their squares, products with past channels."""
        steps = states.shape[1] - lags
        kept = states[:, lags:].flatten(0, 1)
        total = torch.cat([channels.new_zeros(1, channels.shape[2]), channels.sum(0).cumsum(0)])
        squares = channels.square().sum(0)
        power = torch.cat([squares.new_zeros(1, squares.shape[1]), squares.cumsum(0)])
        ends = torch.arange(states.shape[1], steps, -1)  # lag k sums over [lags - k, T - k)
        pairs = (channels, channels.roll(1, 0))
        cross = torch.stack([correlated(states, fed, lags) for fed in pairs])
        sums = (kept.sum(0), kept.mT @ kept, cross)
        return cls(
            *sums,
            total[ends] - total[ends - steps],
            power[ends] - power[ends - steps],
            _dependence(states, channels, lags) * len(kept),
            count=len(kept),
        )

    def plus(self, other: _Sums) -> _Sums:
        """Both together."""
        pairs = zip(self.sums, other.sums, strict=True)
        return _Sums(*(a + b for a, b in pairs), count=self.count + other.count)

    def moments(self) -> tuple[Tensor, Tensor, Tensor]:
        """Covariance of the states (n,n), with the channels (2,n,lags,C), variances (lags,C)."""
        total, square, cross, fed, power, _ = (part / self.count for part in self.sums)
        variance = power - fed.square()
        products = cross - total[:, None, None] * fed
        return square - total[:, None] * total, products, variance


def _dependence(states: Tensor, channels: Tensor, lags: int) -> Tensor:
    """The mean over numbers and channels of (E[x² u²] / (E[x²] E[u²]))², by lag."""
    x, u = states.square(), channels.square()
    count = len(x) * (x.shape[1] - lags)
    sizes = x[:, lags:].mean((0, 1))[:, None, None] * u.mean((0, 1))
    found = correlated(x, u, lags) / count
    return (
        torch.where(sizes > 0, found / torch.where(sizes > 0, sizes, 1.0), 0).square().mean((0, 2))
    )


def correlated(states: Tensor, channels: Tensor, lags: int) -> Tensor:
    """Σ_t x_t z_{t-k} over the batch for t >= lags and k < lags: (n,lags,C), by FFT."""
    length = states.shape[1]
    late = states.clone()
    late[:, :lags] = 0  # so that t - k is never negative, and nothing wraps round
    ahead = torch.fft.rfft(channels, dim=1).conj()
    size = max(1, _BLOCK // (ahead.shape[1] * channels.shape[2]))
    found = []
    for part in late.split(size, dim=2):
        product = torch.einsum("bfn,bfc->nfc", torch.fft.rfft(part, dim=1), ahead)
        found.append(torch.fft.irfft(product, n=length, dim=1)[:, :lags])
    return torch.cat(found)
