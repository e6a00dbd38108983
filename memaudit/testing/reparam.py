"""The laws of a reparameterization."""

from __future__ import annotations

import math

import torch

from memaudit.numerics.gradient_scale import derivative
from memaudit.numerics.modulus import modulus
from memaudit.numerics.signals import seeded
from memaudit.reparam import TIMES, AbstractReparam
from memaudit.testing.law import check_words, draw, must

#: Raw weights that are tried, and moves of a weight for which the modulus is held against them.
WEIGHTS, BETAS = 512, (0.01, 0.1, 1.0)
#: A round trip loses the digits that logarithms and roots lose, far less than this.
CLOSE = 1e-12
#: The definition is searched on a grid.
SEARCHED = 1e-4
#: A trained weight takes so many steps of this size.
STEPS, RATE = 3, 0.5


def check_reparam(reparam: AbstractReparam) -> None:
    """The laws of `AbstractReparam`: round trips, its range, its gradient, and its modulus."""
    must(isinstance(reparam, AbstractReparam), f"{reparam!r} is no AbstractReparam")
    check_words(reparam, "name", "summary", "time")
    must(set(reparam.times) <= set(TIMES), f"times holds {reparam.times}, which are not {TIMES}")
    must(reparam.time in reparam.times, f"it was made in {reparam.time} time without such a form")
    # Not so wide that e^{-e^w} is zero.
    w = 1.5 * draw(WEIGHTS, 1)[:, 0]
    lam = reparam.forward(w)
    must(lam.shape == w.shape, f"forward gives {tuple(lam.shape)} for {tuple(w.shape)}")
    must(bool(reparam.contains(lam).all()), "contains denies an eigenvalue that forward gives")
    off = float((reparam.forward(reparam.inverse(lam)) - lam).abs().div(lam.abs() + 1.0).amax())
    must(off <= CLOSE, f"f(inverse(lambda)) is off by {off:.2g} of lambda")
    _check_range(reparam)
    _check_gradient(reparam, w)
    _check_modulus(reparam)
    if reparam.stable:
        must(bool(decays(reparam, lam).all()), "it is called stable, and gives an unstable mode")
        _check_steps(reparam, lam)


def decays(reparam: AbstractReparam, lam: torch.Tensor) -> torch.Tensor:
    """Which modes are stable."""
    return lam < 0.0 if reparam.time == "continuous" else lam.abs() < 1.0


def _check_range(reparam: AbstractReparam) -> None:
    """What it says to reach it reaches with a finite weight."""
    sizes = torch.logspace(-6, 3, 1000, dtype=torch.float64)
    lam = -sizes if reparam.time == "continuous" else torch.cat([-(-sizes).exp(), (-sizes).exp()])
    inside = lam[reparam.contains(lam)]
    w = reparam.inverse(inside)
    must(bool(w.isfinite().all()), "contains holds an eigenvalue without a finite raw weight")
    off = float((reparam.forward(w) - inside).abs().div(inside.abs() + 1.0).max())
    must(off <= CLOSE, f"contains holds an eigenvalue that is missed by {off:.2g}")
    nothing = torch.tensor([math.nan, math.inf, -math.inf], dtype=torch.float64)
    must(not bool(reparam.contains(nothing).any()), "contains holds a number that is not finite")


def _check_gradient(reparam: AbstractReparam, w: torch.Tensor) -> None:
    """The gradient is that of central differences, away from kinks."""
    h = 1e-6
    ahead, behind = reparam.forward(w + h), reparam.forward(w - h)
    left, right = derivative(reparam.forward, w - h), derivative(reparam.forward, w + h)
    smooth = (left - right).abs() <= 1e-3 * (1.0 + left.abs())
    off = (derivative(reparam.forward, w) - (ahead - behind) / (2 * h)).abs()
    worst = float((off / (1.0 + left.abs()))[smooth].amax())
    must(worst <= 1e-4, f"the gradient is off by {worst:.2g} from the slope")


def _check_modulus(reparam: AbstractReparam) -> None:
    for beta in BETAS:
        stated, found = reparam.modulus(beta), modulus(reparam.forward, beta, time=reparam.time)
        near = math.isfinite(found) and abs(stated - found) <= SEARCHED * found
        fact = f"modulus({beta:g}) is {stated:.5g}, where the definition gives {found:.5g}"
        must(near or stated == found, fact)
        endless = math.isinf(stated)
        must(endless or reparam.stable, f"it is not called stable, yet {fact}")
        # Definition 3.2 is about continuous time; in discrete time one weight may be on the edge.
        edge = reparam.time == "discrete"
        must(edge or not (endless and reparam.stable), f"it is called stable, yet {fact}")


def _check_steps(reparam: AbstractReparam, lam: torch.Tensor) -> None:
    """Gradient descent towards the boundary stays inside."""
    w = reparam.inverse(lam).clone().requires_grad_()
    pull = torch.rand(lam.shape, generator=seeded(1), dtype=torch.float64)
    optimizer = torch.optim.SGD([w], lr=RATE)
    for _ in range(STEPS):
        optimizer.zero_grad()
        (-(pull * reparam.forward(w)).sum()).backward()
        optimizer.step()
        inside = bool(decays(reparam, reparam.forward(w.detach())).all())
        must(inside, "a step of gradient descent makes a mode unstable")
