"""Why one reparameterization is recommended, in sentences with the numbers behind them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from memaudit.errors import clean

if TYPE_CHECKING:
    from memaudit.probes.decay_weight import DecayWeight
    from memaudit.probes.reparam_trial import Outcome


#: By so much a rate has to be smaller than another to be worth a sentence.
APART = 0.99


def reasoning(
    weight: DecayWeight,
    found: tuple[Outcome, ...],
    chosen: Outcome | None,
    *,
    rest: float,
) -> str:
    """Which rate AdamW may have, what the layer has, what it should have and why.

    Last comes the rate of plain gradient descent: that of the decay weight, and, where `rest`, the
    largest |dLoss/dw| / |w| of the layer's recurrent weights, asks for a smaller one, that too.
    """
    modes = len(weight.w)
    current = next((one for one in found if one.name == weight.form), None)
    told = [*_adamw(weight, current, chosen), *([] if current is None else [_has(current)])]
    if chosen is None:
        missed = ", ".join(f"{one.name} {one.record.unreachable}" for one in found if _misses(one))
        told.append(
            f"No stable form with a gradient everywhere reaches all {modes} modes"
            + (f" (out of reach: {missed})." if missed else ".")
        )
    else:
        told += [
            _chosen(chosen, current, modes),
            *_passed_over(chosen, found),
            *_best(weight, found),
        ]
    safe = chosen or current
    if safe is not None:
        told += [_rate(weight, safe), *_rest(safe, rest)]
    return " ".join(told)


def _has(current: Outcome) -> str:
    record = current.record
    return (
        f"{clean(current.name)}, which the layer has, moves a raw weight by up to "
        f"{_number(record.largest)} of its size per unit of learning rate "
        f"(median {_number(record.median)})."
    )


def _chosen(chosen: Outcome, current: Outcome | None, modes: int) -> str:
    reach = f"among the stable forms that reach all {modes} modes"
    if current is not None and chosen.name == current.name:
        return f"That is the smallest largest ratio {reach}: keep {chosen.name}."
    return (
        f"{chosen.name} has the smallest largest ratio {reach}, "
        f"{_number(chosen.record.largest)} (median {_number(chosen.record.median)})."
    )


def _passed_over(chosen: Outcome, found: tuple[Outcome, ...]) -> list[str]:
    """Why a stable form with a smaller ratio is not the one."""
    smaller = [
        one
        for one in found
        if one.record.stable and one.record.largest < chosen.record.largest and not _misses(one)
    ]
    dead = " and ".join(clean(one.name) for one in smaller if not one.lively)
    zero = " and ".join(clean(one.name) for one in smaller if one.lively and one.zeros)
    told = [f"Less, but no gradient beyond a limit: {dead}."] if dead else []
    return told + ([f"Less, but a raw weight of zero: {zero}."] if zero else [])


def _best(weight: DecayWeight, found: tuple[Outcome, ...]) -> list[str]:
    """With which b the balanced form would reach what it misses."""
    best = next((one for one in found if one.name == "best"), None)
    if best is None or not _misses(best):
        return []
    away = -weight.lam if weight.time == "continuous" else 1.0 - weight.lam
    stable = away[away > 0.0]
    if not len(stable) or len(stable) < len(away):
        return []
    least = 1.0 / float(stable.amax())
    missed = f"{best.record.unreachable} of {len(away)} modes"
    return [f"best misses {missed}; with b below {least:.3g} it would not."]


def _adamw(weight: DecayWeight, current: Outcome | None, chosen: Outcome | None) -> list[str]:
    """The rate for most training runs, which plain gradient descent says nothing about."""
    sizes = {one.name: one.smallest for one in (current, chosen) if one is not None}
    known = {name: size for name, size in sizes.items() if size}
    if not known:
        return []
    told = ", ".join(f"{_number(size)} with {clean(name)}" for name, size in known.items())
    return [
        "AdamW moves every weight by about one learning rate a step, whatever the gradient: keep "
        f"it well below the smallest |w| of the modes ({told}; {clean(weight.name)}) and below "
        "the stability radius."
    ]


def _rate(weight: DecayWeight, safe: Outcome) -> str:
    rate = safe.record.learning_rate
    if not math.isinf(rate):
        return (
            f"Plain gradient descent on {clean(weight.name)} with {clean(safe.name)} stays safe up "
            f"to a learning rate of {_number(rate)}: beyond it a raw weight moves by more than its "
            "own size, or a mode leaves the stable set."
        )
    if safe.zeros:
        return "Every raw weight with a gradient is zero: no learning rate is small beside them."
    return "No mode has a gradient, so this loss says nothing about learning rates."


def _rest(safe: Outcome, rest: float) -> list[str]:
    """The rate of all weights of the layer, where it is the smaller one."""
    if rest <= 0.0 or 1.0 / rest >= APART * safe.record.learning_rate:
        return []
    return [
        "All recurrent weights of the layer together need less: from a rate of "
        f"{_number(1.0 / rest)} on one of them moves by more than its own size."
    ]


def _misses(one: Outcome) -> bool:
    return one.record.unreachable > 0


def _number(value: float) -> str:
    return "infinity" if math.isinf(value) else f"{value:.3g}"
