"""The raw weight that makes the sizes of a layer's modes, and how it makes them."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from memaudit.modes import UNKNOWN
from memaudit.numerics.reparameterization import derivative
from memaudit.numerics.signals import seeded
from memaudit.reparams import Best, forms

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from memaudit.interfaces import AbstractPerturbable, AbstractReparam

#: Relative difference up to which two formulas are one; modes come in float64.
ALIKE = 1e-6
#: StableSSM's own code has another b than its paper.
CODED_BEST = 0.1
_CONSTANT = re.compile(r"(\w+)=([-+.\de]+)")
#: Words in the names of step sizes.
STEPS = {"dt", "step"}


@dataclass(frozen=True, slots=True, eq=False)
class DecayWeight:
    """One raw weight w (n,) per mode, the eigenvalue lam (n,) that it makes, and dlam/dw (n,).

    In continuous time lam is the rate before it is held over a step; in discrete time the
    eigenvalue of one step, or its size where it is complex. `form` is the name of lam = f(w),
    `known` the reparameterization itself where it is one; `forward` is f in any case.
    """

    name: str
    time: str
    w: Tensor
    lam: Tensor
    slope: Tensor
    form: str
    known: AbstractReparam | None
    forward: Callable[[Tensor], Tensor]


def find_decay_weight(
    copies: AbstractPerturbable, layer: str, *, named: str = ""
) -> DecayWeight | None:
    """The weight behind the modes of a layer, one number per mode; None when there is none.

    `named` is what the layer's spectrum calls its form: of several weights that scale the modes
    the one of that form is meant. Step sizes scale rates as rates scale steps, so that names alone
    tell them apart.
    """
    own = [n for n, r in copies.roles.items() if (r.group, r.layer) == ("recurrent", layer)]
    # All of them in float64: where one weight alone is wide the others would round its modes.
    known = _Layer(copies, layer, {name: _wide(copies.weights[name]) for name in own})
    candidates = [_candidate(known, name) for name in own if copies.roles[name].form == "diagonal"]
    found = [w for one in candidates if one is not None for w in _recognised(one, named)]
    form = _read(named)[0]
    return min(found, key=lambda w: (is_step(w.name), w.form != form), default=None)


def is_step(name: str) -> bool:
    """Whether a weight is called a step size, as in `log_dt`, `dt_proj.bias` and `log_step`."""
    words = re.split(r"[._]", ".".join(name.split(".")[-2:]))
    return not STEPS.isdisjoint(words)


@dataclass(frozen=True, slots=True, eq=False)
class _Layer:
    """The recurrent weights of one layer, and the modes that they make; both on the CPU."""

    copies: AbstractPerturbable
    name: str
    weights: Mapping[str, Tensor]

    def modes(self, weight: str, value: Tensor) -> Tensor | None:
        """The modes (n,) with that value: as they are where all are real, else their sizes."""
        own = {**self.weights, weight: value}
        moved = {name: w[None].to(self.copies.weights[name].device) for name, w in own.items()}
        modes = self.copies.modes(moved)
        if self.name not in modes:
            return None
        lam = modes[self.name][0].flatten().cpu()
        if not lam.is_complex():
            return lam
        return lam.real if bool((lam.imag == 0.0).all()) else lam.abs()


def _candidate(layer: _Layer, name: str) -> _Candidate | None:
    """A weight with its modes; None when its entries do not stand for a mode each."""
    with torch.enable_grad():
        raw = layer.weights[name].clone().requires_grad_()
        modes = layer.modes(name, raw)
        if modes is None:
            return None
        for at in _picks(modes, raw):
            slope = _one_by_one(modes[at], raw)
            if slope is not None and bool((slope != 0.0).any()):
                return _Candidate(layer, name, at, modes[at].detach(), slope)
    return None


def _picks(modes: Tensor, raw: Tensor) -> tuple[slice, ...]:
    """Which modes may be those of the raw weights: all, or one of several that share a weight.

    Rates that all channels share make modes in blocks, one block for every channel; rates of heads
    make neighbours alike.
    """
    if not raw.numel() or len(modes) % raw.numel():
        return ()
    several = len(modes) // raw.numel()
    return (slice(None),) if several == 1 else (slice(raw.numel()), slice(None, None, several))


def _wide(weight: Tensor) -> Tensor:
    """The raw numbers in float64 on the CPU, where forms are compared.

    Of complex rates both parts, for only the real one decays.
    """
    wide = torch.complex128 if weight.is_complex() else torch.float64
    return weight.detach().cpu().to(wide)


def _one_by_one(sizes: Tensor, raw: Tensor) -> Tensor | None:
    """dlam_i/dw_i, or None unless mode i depends on entry i alone."""
    if sizes.numel() != raw.numel() or not sizes.requires_grad:
        return None
    weights = 1.0 + torch.rand(sizes.shape, generator=seeded(0), dtype=torch.float64).to(sizes)
    found = [
        torch.autograd.grad(sizes, raw, outer, retain_graph=True, allow_unused=True)[0]
        for outer in (torch.ones_like(sizes), weights)
    ]
    if found[0] is None or found[1] is None:
        return None
    alone, mixed = (_real(slope).flatten() for slope in found)
    apart = (mixed - weights * alone).abs()
    return alone if bool((apart <= ALIKE * alone.abs().amax()).all()) else None


def _real(value: Tensor) -> Tensor:
    return value.real if value.is_complex() else value


@dataclass(frozen=True, slots=True, eq=False)
class _Candidate:
    """A weight and the modes that it makes, before its form is known."""

    layer: _Layer
    name: str
    #: Which of the layer's modes belong to its entries.
    at: slice
    sizes: Tensor
    slope: Tensor

    @property
    def w(self) -> Tensor:
        return _real(self.layer.weights[self.name]).flatten()

    def forward(self, w: Tensor) -> Tensor:
        """The modes with other raw weights."""
        raw = self.layer.weights[self.name]
        moved = w.reshape(raw.shape)
        if raw.is_complex():
            moved = torch.complex(moved, raw.imag)
        modes = self.layer.modes(self.name, moved)
        return torch.full_like(w, torch.nan) if modes is None else modes[self.at]

    def follows(self, form: AbstractReparam) -> bool:
        """Whether the modes are f(w), or f(w) held over steps of any size.

        log lam = dt f(w), exact integration, has the derivative of log |f|, whatever dt is; so has
        lam - 1 = dt f(w), Euler's.
        """
        lam, value, slope = self.sizes, form.forward(self.w), derivative(form.forward, self.w)
        if form.time == "discrete":
            return _alike(value, lam) and _alike(slope, self.slope)
        held = ((lam.abs().log(), self.slope / lam), (lam - 1.0, self.slope))
        return any(
            _alike(change * value, slope * rate)
            and bool((rate.sign() == value.sign()).all())
            and bool((change.sign() == slope.sign()).all())
            for rate, change in held
        )


def _alike(first: Tensor, second: Tensor) -> bool:
    """Whether two formulas agree at every mode; none that is not finite does."""
    apart, size = (first - second).abs(), first.abs() + second.abs()
    return bool((apart <= ALIKE * size).all() and (size > 0.0).any())


def _read(named: str) -> tuple[str, dict[str, float]]:
    """A form with its constants, as in `best (a=0.25, b=0.125)`."""
    name, _, inside = named.partition(" (")
    return name, {word: float(number) for word, number in _CONSTANT.findall(inside)}


def _recognised(candidate: _Candidate, named: str) -> Iterator[DecayWeight]:
    """The weight with the form that its modes follow; without one, as the modes are.

    Where modes share a weight each has a step size of its own: then a rate is known or nothing.
    """
    named = "" if named == UNKNOWN else named
    name, constants = _read(named)
    known = [*forms("discrete"), *forms("continuous"), Best(b=CODED_BEST)]
    # What the layer's adapter calls it comes first: unclipped weights follow direct and clip.
    known.sort(key=lambda form: form.name != name)
    known = [replace(f, **constants) for f in known if f.name == name and constants] + known
    w, shared = candidate.w, candidate.at != slice(None)
    for form in known:
        if candidate.follows(form) and (form.time == "continuous" or not shared):
            lam, slope = form.forward(w), derivative(form.forward, w)
            yield DecayWeight(
                candidate.name, form.time, w, lam, slope, form.name, form, form.forward
            )
            return
    if not shared:
        form = f"{named or 'a form of its own'}, as stored"
        lam, slope = candidate.sizes, candidate.slope
        yield DecayWeight(candidate.name, "discrete", w, lam, slope, form, None, candidate.forward)
