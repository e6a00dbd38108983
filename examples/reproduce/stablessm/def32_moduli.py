"""S-Def3.2: which reparameterizations are stable, and with which modulus g(beta)."""

from __future__ import annotations

import math

import torch
from matplotlib.figure import Figure

from examples.reproduce.drawing import lines, panels
from examples.reproduce.row import Effort, Number, Outcome, Row
from memaudit import registry
from memaudit.interfaces import AbstractReparam
from memaudit.numerics.reparameterization import kernel_change, modulus
from memaudit.numerics.signals import seeded

BETAS = (0.01, 0.1, 1.0)
FORMS = ("exp", "softplus", "best", "heavytail", "direct")
#: The search over w and its neighbours is a grid that is refined: good to about 1e-4.
SEARCHED = 1e-3
#: Trapezoids of the integral.
QUADRATURE = 1e-4


def printed(name: str, beta: float) -> float | str | None:
    """g(beta) as Remark B.3 has it."""
    if name in ("exp", "softplus"):
        return math.expm1(beta)
    return {"best": "depends on w", "direct": "infinite"}.get(name)


def integral(lam: torch.Tensor, moved: torch.Tensor) -> torch.Tensor:
    """|lam| ∫ |e^{lam' t} - e^{lam t}| dt by trapezoids, for vectors of rates."""
    # Times from far below the fastest to far beyond the slowest of both modes.
    s = torch.linspace(-16.0, 5.0, 20001, dtype=torch.float64)
    slow = torch.maximum(lam, moved).abs()
    t = torch.cat([torch.zeros(1, dtype=torch.float64), s.exp()]) / slow[:, None]
    apart = (torch.exp(moved[:, None] * t) - torch.exp(lam[:, None] * t)).abs()
    return lam.abs() * torch.trapezoid(apart, t, dim=1)


def quadrature_error(form: AbstractReparam, generator: torch.Generator) -> float:
    """How far the integral and its formula |lam / lam' - 1| are apart on random neighbours."""
    w = 3.0 * torch.randn(40, generator=generator, dtype=torch.float64)
    v = w + 2.0 * torch.rand(40, generator=generator, dtype=torch.float64) - 1.0
    lam, moved = form.forward(w), form.forward(v)
    inside = (lam < -1e-3) & (moved < -1e-3)
    lam, moved = lam[inside], moved[inside]
    formula = kernel_change(lam, moved, time="continuous")
    return float((integral(lam, moved) - formula).abs().max())


def nearing(beta: float) -> list[float]:
    """The change of a direct mode that stands ever nearer to beta before the boundary."""
    w = -beta * (1.0 + torch.logspace(0, -6, 4, dtype=torch.float64))
    return kernel_change(w, w + beta, time="continuous").tolist()


def of_forms(found: dict[str, list[float]]) -> list[Number]:
    """The moduli beside the printed ones."""
    return [
        Number(f"{n}: g({b:g})", g, printed(n, b))
        for n in FORMS
        for b, g in zip(BETAS, found[n], strict=True)
    ]


def run(effort: Effort) -> Outcome:
    """The supremum of the definition by brute force, against formulas."""
    forms = {name: registry.build("reparams", name, time="continuous") for name in FORMS}
    found = {n: [modulus(f.forward, b, time="continuous") for b in BETAS] for n, f in forms.items()}
    generator = seeded(effort.seed)
    off = max(quadrature_error(f, generator) for n, f in forms.items() if f.stable)
    best = forms["best"]
    valid = [best.a * b**2 / best.b + b * math.sqrt(best.a / best.b) for b in BETAS]
    equal = all(
        abs(g / math.expm1(b) - 1) < SEARCHED for b, g in zip(BETAS, found["exp"], strict=True)
    )
    below = all(g <= math.expm1(b) for b, g in zip(BETAS, found["softplus"], strict=True))
    bounded = all(g <= most for g, most in zip(found["best"], valid, strict=True))
    library = max(
        abs(g / forms[n].modulus(b) - 1)
        for n in FORMS
        if forms[n].stable
        for b, g in zip(BETAS, found[n], strict=True)
    )
    growth = nearing(0.1)
    endless = all(math.isinf(g) for g in found["direct"]) and growth[-1] > 1e5
    numbers = of_forms(found)
    numbers += [
        Number("best: a valid bound a beta²/b + beta sqrt(a/b) at 1", valid[-1]),
        Number("best: the printed g(0.1) at w = 1000", best.a * (0.01 + 200.0) / best.b),
        Number("integral against its formula, largest difference", off),
        Number("search against the library's closed forms, largest share", library),
    ]
    return Outcome(
        holds=equal and below and bounded and endless and off < QUADRATURE and library < SEARCHED,
        reason=f"g(1) is {found['exp'][-1]:.4g} for exp (e - 1 is printed), "
        f"{found['softplus'][-1]:.4g} for softplus, {found['best'][-1]:.4g} for best and infinite "
        f"for direct, whose change grows to {growth[-1]:.2g} a millionth before the boundary",
        numbers=tuple(numbers),
        settings={"betas": BETAS, "time": "continuous", "a": best.a, "b": best.b},
        figure=_figure(forms),
        errata="Remark B.3 prints a g for best that depends on w and has no supremum over w; "
        "g(beta) = a beta²/b + beta sqrt(a/b) is a valid one, so best is stable all the same",
    )


def _figure(forms: dict[str, AbstractReparam]) -> Figure:
    figure, (left, right) = panels("modulus of Definition 3.2", "change of one mode at beta = 0.1")
    betas = torch.logspace(-2, 0.3, 12, dtype=torch.float64).tolist()
    stable = {n: f for n, f in forms.items() if f.stable}
    curves = {n: (betas, [f.modulus(b) for b in betas]) for n, f in stable.items()}
    lines(left, curves, x="beta", y="g(beta)", logs="xy")
    for form in stable.values():
        searched = [modulus(form.forward, b, time="continuous") for b in betas[::3]]
        left.plot(betas[::3], searched, "k.", markersize=4)
    left.plot([], [], "k.", markersize=4, label="by search")
    left.legend(fontsize=7)
    rates = torch.logspace(-3, 0.25, 400, dtype=torch.float64)
    modes = {}
    for name, form in forms.items():
        w = form.inverse(-rates)
        sides = [kernel_change(-rates, form.forward(w + s), time="continuous") for s in (-0.1, 0.1)]
        change = torch.maximum(*sides)
        fine = change.isfinite()
        modes[name] = (rates[fine].tolist(), change[fine].tolist())
    lines(right, modes, x="rate of the mode", y="relative change of its kernel", logs="xy")
    right.set_ylim(1e-3, 1e3)
    return figure


ROW = Row(
    id="S-Def3.2, B.3",
    title="Moduli of stability",
    claim="exp, softplus and best are stable reparameterizations, with the moduli of Remark B.3; "
    "direct is none",
    run=run,
)
