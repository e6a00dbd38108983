"""I-AppC: rates divided by k help against sum k^-2 e^{-t/k}, and not against sum k^-2 e^{-t/k²}."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

import memaudit
from examples.reproduce.drawing import lines, panels
from examples.reproduce.row import Effort, Number, Outcome, Row
from memaudit.families.result import FamilyReport
from memaudit.numerics.convolution import filtered

SIZES = (4, 8, 16, 32, 64)
#: By slowness: beyond these steps the slowest mode of the largest member, e^{-t/64} or e^{-t/64²},
#: is seen to decay.
STEPS = {1: 400, 2: 4200}
TERMS = 2000
#: Model and target → slowness of the target, rescaling of the model; then what the paper expects.
ASKED = {
    "plain, e^{-t/k}": (1, 0),
    "rescaled, e^{-t/k}": (1, 1),
    "plain, e^{-t/k²}": (2, 0),
    "rescaled, e^{-t/k²}": (2, 1),
}
EXPECTED = ("unstable", "stable", "unstable", "unstable")


class ExponentialSum(nn.Module):
    """rho(t) = sum_k c_k e^{w_k t / k^rescaled}, next to sum_k k^-2 e^{-t / k^slowness}.

    Plain is rescaled = 0. The weights are those that the paper names: c_k = k^-2, and w_k such that
    the rates are those of the target.
    """

    memaudit_roles = {"w": "recurrent/diagonal", "c": "readout/vector"}  # noqa: RUF012

    def __init__(self, size: int, *, slowness: int, rescaled: int) -> None:
        super().__init__()
        k = torch.arange(1, size + 1, dtype=torch.float64)
        self.w = nn.Parameter(-(k ** (rescaled - slowness)))
        self.c = nn.Parameter(k**-2.0)
        self.register_buffer("scale", k**-rescaled)

    def modes(self) -> Tensor:
        """The eigenvalues of one step."""
        return torch.exp(self.w * self.scale)

    def forward(self, u: Tensor) -> Tensor:
        """The answers (B,T,1) to (B,T,1)."""
        t = torch.arange(u.shape[1], dtype=self.w.dtype)
        kernel = self.c @ torch.exp((self.w * self.scale)[:, None] * t)
        padded = 2 * len(t)
        product = torch.fft.rfft(u.mT, n=padded) * torch.fft.rfft(kernel, n=padded)
        return torch.fft.irfft(product, n=padded)[..., : len(t)].mT


def target(slowness: int, steps: int) -> Tensor:
    """The whole series: its first terms, and the integral of the rest."""
    t = torch.arange(steps, dtype=torch.float64)
    k = torch.arange(1, TERMS + 1, dtype=torch.float64)
    head = (k**-2)[None] * torch.exp(-t[:, None] / k**slowness)
    last = 1 / (TERMS + 0.5)
    later = t[1:]
    if slowness == 1:
        rest = -torch.expm1(-later * last) / later
    else:
        rest = (math.pi / later).sqrt() / 2 * torch.erf(later.sqrt() * last)
    return head.sum(1) + torch.cat([torch.tensor([last], dtype=torch.float64), rest])


def family(slowness: int, rescaled: int, seed: int, *, ascent: int = 0) -> FamilyReport:
    """E_m(beta) over moves of all weights, by ten draws as in App. D, or by climbing from them."""
    steps = STEPS[slowness]
    members = [
        memaudit.wrap(ExponentialSum(m, slowness=slowness, rescaled=rescaled), input_size=1)
        for m in SIZES
    ]
    goal = _convolution(target(slowness, steps))
    given = {"draws": 10, "ascent": ascent, "steps": steps, "norm": "sup", "seed": seed}
    return memaudit.family(members, target=goal, **given)


def _convolution(rho: Tensor) -> Callable[[Tensor], Tensor]:
    def functional(u: Tensor) -> Tensor:
        return filtered(u, rho[: u.shape[1]].reshape(-1, 1, 1))

    return functional


def price(size: int) -> float:
    """The most that a readout moved by one can add, in closed form: |(sum_t e^{-t/k})_k|_2."""
    k = torch.arange(1, size + 1, dtype=torch.float64)
    return float((1 / -torch.expm1(-1 / k)).norm())


def plain_crossings(report: FamilyReport) -> list[float]:
    """The first beta of the grid at which each member is worse than the next smaller one."""
    pairs = zip(report.members, report.members[1:], strict=False)
    worse = [large.errors > small.errors for small, large in pairs]
    return [float(report.betas[w.argmax()]) if w.any() else math.inf for w in worse]


def families(effort: Effort) -> dict[str, FamilyReport]:
    """Both targets by both models, by the paper's draws."""
    found = {}
    for done, (name, (slowness, rescaled)) in enumerate(ASKED.items()):
        found[name] = family(slowness, rescaled, effort.seed)
        effort.tick(done + 1, len(ASKED) + 1)
    return found


def run(effort: Effort) -> Outcome:
    """Both targets by both models, and the worst readout."""
    found = families(effort)
    worst = family(1, 1, effort.seed, ascent=10)
    crossed = plain_crossings(worst)
    return Outcome(
        holds=tuple(report.verdict for report in found.values()) == EXPECTED,
        reason=f"by ten random moves, the paper's protocol; {_worst(worst, crossed)}. By the draws "
        + "; ".join(f"{name}: {r.verdict} ({r.reason})" for name, r in found.items()),
        numbers=tuple(_numbers(found, crossed)),
        settings={"m": SIZES, "steps": STEPS, "draws": 10, "norm": "sup", "group": "all"},
        figure=_figure(found, worst),
        errata="w_k = 1 is printed for the rescaled model, it must be -1; both series are not "
        "integrable (they fall as 1/t and t^-1/2), so neither is a bounded functional, and over "
        "all moves of c the error per move grows as m^1.5: the rescaled model is stable by the "
        "paper's random draws, not by its definition with a supremum over all weights",
    )


def _worst(report: FamilyReport, crossed: list[float]) -> str:
    """What gradient ascent finds of the supremum: no radius is left if betas fall without end."""
    betas = ", ".join(f"{beta:.2g}" for beta in crossed)
    word = "not stable" if crossed[-1] * 2 < crossed[0] else report.verdict
    return (
        "under the supremum of the paper's definition, climbed over all weights, the rescaled "
        f"model of e^{{-t/k}} is {word}: m = {', '.join(map(str, SIZES[1:]))} is worse than m / 2 "
        f"from beta = {betas} on"
    )


def _numbers(found: dict[str, FamilyReport], crossed: list[float]) -> list[Number]:
    numbers = [
        Number(f"{name}: verdict", report.verdict, printed)
        for (name, report), printed in zip(found.items(), EXPECTED, strict=True)
    ]
    for m, beta in zip(SIZES[1:], crossed, strict=True):
        numbers.append(Number(f"worst moves: m = {m} is worse than m = {m // 2} from beta", beta))
    numbers += [Number(f"m = {m}: error per |change of c|, closed form", price(m)) for m in SIZES]
    for told, slowness in (("e^{-t/k}", 1), ("e^{-t/k²}", 2)):
        for steps in STEPS.values():
            total = float(target(slowness, steps).sum())
            numbers.append(Number(f"sum of rho over {steps} steps, {told}", total))
    return numbers


def _figure(found: dict[str, FamilyReport], worst: FamilyReport) -> Figure:
    figure, axes = panels(*found, "rescaled, e^{-t/k}, worst moves")
    for at, report in zip(axes, (*found.values(), worst), strict=True):
        curves = {
            f"m = {m.size}": (report.betas.tolist(), m.errors.tolist()) for m in report.members
        }
        lines(at, _below(curves, 1e6), x="beta", y="E_m(beta)", logs="xy")
    return figure


def _below(
    curves: dict[str, tuple[list[float], list[float]]], top: float
) -> dict[str, tuple[list[float], list[float]]]:
    """The part of every curve that is worth drawing: some reach 1e100."""
    kept = {name: [p for p in zip(*c, strict=True) if p[1] < top] for name, c in curves.items()}
    return {name: ([x for x, _ in points], [y for _, y in points]) for name, points in kept.items()}


ROW = Row(
    id="I-AppC",
    title="Rescaled weights",
    claim="rescaling makes sum k^-2 e^{-t/k} stable, and fails on sum k^-2 e^{-t/k²}",
    run=run,
)
