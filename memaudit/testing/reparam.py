"""The laws of a reparameterization."""

from __future__ import annotations

import math

import torch

from memaudit.numerics.reparameterization import derivative, gradient_scale, modulus
from memaudit.numerics.signals import seeded
from memaudit.reparam import TIMES, AbstractReparam
from memaudit.testing.law import check_words, draw, must

#: Raw weights that are tried, and moves of a weight for which the modulus is held against them.
WEIGHTS, BETAS = 512, (0.01, 0.1, 1.0)
#: A round trip loses the digits that logarithms and roots lose, far less than this.
CLOSE = 1e-12
#: The definition is searched on a grid.
SEARCHED = 1e-4
#: A closed form of the gradient scale and the numeric one differ by cancelled digits only.
SAME_SCALE = 1e-6
#: Between these weights float64 tells the modes of every usual form from the boundary: 1 - tanh(w)
#: is zero from 19 on. The number is even, so that zero, where a discrete form may touch the
#: boundary, is not among them.
STRICT, DENSE = 18.0, 20_000
#: Beyond, a mode may round to the boundary, and must not pass it.
FAR = (0.0, 19.0, 50.0, 300.0, 800.0, 1e4, 1e8, 1e100)
#: A trained weight takes so many steps of these sizes.
STEPS, RATE, WILD = 3, 0.5, 1e4


def check_reparam(reparam: AbstractReparam) -> None:
    """The laws of `AbstractReparam`: round trips, its range, its gradient, and its modulus."""
    must(isinstance(reparam, AbstractReparam), f"{reparam!r} is no AbstractReparam")
    check_words(reparam, "name", "summary", "time")
    must(set(reparam.times) <= set(TIMES), f"times holds {reparam.times}, which are not {TIMES}")
    must(reparam.time in reparam.times, f"it was made in {reparam.time} time without such a form")
    must(isinstance(reparam.stable, bool), f"stable is {reparam.stable!r}, not True or False")
    # Not so wide that e^{-e^w} is zero.
    w = 1.5 * draw(WEIGHTS, 1)[:, 0]
    lam = reparam.forward(w)
    must(lam.shape == w.shape, f"forward gives {tuple(lam.shape)} for {tuple(w.shape)}")
    must(bool(lam.isfinite().all()), "forward gives a number that is not finite")
    must(_contained(reparam, lam), "contains denies an eigenvalue that forward gives")
    must(_contained(reparam.fitted(lam), lam), "fitted to eigenvalues, it denies one of them")
    off = float((reparam.forward(reparam.inverse(lam)) - lam).abs().div(lam.abs() + 1.0).amax())
    must(off <= CLOSE, f"f(inverse(lambda)) is off by {off:.2g} of lambda")
    _check_range(reparam)
    _check_gradient(reparam, w)
    _check_scale(reparam, w)
    _check_modulus(reparam)
    if reparam.stable:
        must(bool(decays(reparam, lam).all()), "it is called stable, and gives an unstable mode")
        _check_far(reparam)
        _check_steps(reparam, lam)


def decays(reparam: AbstractReparam, lam: torch.Tensor) -> torch.Tensor:
    """Which modes are stable."""
    return lam < 0.0 if reparam.time == "continuous" else lam.abs() < 1.0


def stays(reparam: AbstractReparam, lam: torch.Tensor) -> torch.Tensor:
    """Which modes are stable, or so slow that they round to the boundary."""
    return lam <= 0.0 if reparam.time == "continuous" else lam.abs() <= 1.0


def _contained(reparam: AbstractReparam, lam: torch.Tensor) -> bool:
    told = reparam.contains(lam)
    boolean = isinstance(told, torch.Tensor) and told.dtype == torch.bool
    must(boolean and told.shape == lam.shape, "contains does not answer by a boolean for each")
    return bool(told.all())


def _check_range(reparam: AbstractReparam) -> None:
    """What it says to reach it reaches with a finite weight: slow, fast and unstable modes."""
    sizes = torch.logspace(-6, 3, 1000, dtype=torch.float64)
    lam = -sizes if reparam.time == "continuous" else torch.cat([-(-sizes).exp(), (-sizes).exp()])
    beyond = torch.tensor([-2.0, -1.5, -1.0, 0.0, 1e-6, 0.5, 1.0, 1.5, 2.0], dtype=torch.float64)
    lam = torch.cat([lam, beyond])
    inside = lam[reparam.contains(lam)]
    must(bool(inside.numel()), "contains holds no eigenvalue of a usual size")
    w = reparam.inverse(inside)
    must(bool(w.isfinite().all()), "contains holds an eigenvalue without a finite raw weight")
    off = float((reparam.forward(w) - inside).abs().div(inside.abs() + 1.0).max())
    must(off <= CLOSE, f"contains holds an eigenvalue that is missed by {off:.2g}")
    nothing = torch.tensor([math.nan, math.inf, -math.inf], dtype=torch.float64)
    must(not bool(reparam.contains(nothing).any()), "contains holds a number that is not finite")


def _check_gradient(reparam: AbstractReparam, w: torch.Tensor) -> None:
    """The gradient is a number everywhere, and that of central differences away from kinks."""
    places = torch.cat([_dense(), torch.arange(-8.0, 9.0, dtype=torch.float64)])
    known = derivative(reparam.forward, places).isfinite()
    must(bool(known.all()), "the gradient is not finite at w = " + _first(places, ~known))
    h = 1e-6
    ahead, behind = reparam.forward(w + h), reparam.forward(w - h)
    left, right = derivative(reparam.forward, w - h), derivative(reparam.forward, w + h)
    smooth = (left - right).abs() <= 1e-3 * (1.0 + left.abs())
    must(bool(smooth.any()), "the gradient jumps at every weight")
    off = (derivative(reparam.forward, w) - (ahead - behind) / (2 * h)).abs()
    worst = float((off / (1.0 + left.abs()))[smooth].amax())
    must(worst <= 1e-4, f"the gradient is off by {worst:.2g} from the slope")


def _check_scale(reparam: AbstractReparam, w: torch.Tensor) -> None:
    """A closed form of the gradient scale is the numeric one."""
    stated, found = reparam.gradient_scale(w), gradient_scale(reparam.forward, w, time=reparam.time)
    must(stated.shape == w.shape, f"gradient_scale gives {tuple(stated.shape)}")
    off = (stated - found).abs() <= SAME_SCALE * found
    right = off | (stated == found)
    must(bool(right.all()), f"gradient_scale is not |f'| / f² at w = {_first(w, ~right)}")


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


def _check_far(reparam: AbstractReparam) -> None:
    """No weight leaves the stable set, however far it is."""
    near = _dense()
    inside = decays(reparam, reparam.forward(near))
    must(bool(inside.all()), f"it is called stable, and is not at w = {_first(near, ~inside)}")
    far = torch.tensor([*FAR, *(-w for w in FAR)], dtype=torch.float64)
    inside = stays(reparam, reparam.forward(far))
    must(bool(inside.all()), f"it is called stable, and is not at w = {_first(far, ~inside)}")


def _check_steps(reparam: AbstractReparam, lam: torch.Tensor) -> None:
    """Gradient descent towards the boundary stays inside, whatever the size of a step."""
    pull = torch.rand(lam.shape, generator=seeded(1), dtype=torch.float64)
    for rate, holds in ((RATE, decays), (WILD, stays)):
        w = reparam.inverse(lam).clone().requires_grad_()
        optimizer = torch.optim.SGD([w], lr=rate)
        for _ in range(STEPS):
            optimizer.zero_grad()
            (-(pull * reparam.forward(w)).sum()).backward()
            optimizer.step()
            inside = bool(holds(reparam, reparam.forward(w.detach())).all())
            must(inside, "a step of gradient descent makes a mode unstable")


def _dense() -> torch.Tensor:
    return torch.linspace(-STRICT, STRICT, DENSE, dtype=torch.float64)


def _first(w: torch.Tensor, there: torch.Tensor) -> str:
    return f"{float(w[there][0]):.6g}" if bool(there.any()) else "none"
