"""What is to become of one stored weight: a form that holds its modes, or the reason why not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from memaudit import registry
from memaudit.errors import ArgumentError, clean
from memaudit.interfaces import AbstractReparam, DenseDecay, DiagonalDecay
from memaudit.reparams import Stepped
from memaudit.retrofitting.result import RefusedLayer
from memaudit.retrofitting.weights import (
    WORST_CONDITION,
    EigenForm,
    eigen_form,
    numbers_of,
    reached,
    with_numbers,
)

if TYPE_CHECKING:
    from memaudit.interfaces import StoredDecay


_SHOWN = 3


@dataclass(frozen=True, slots=True, eq=False)
class Order:
    """What was asked for: a form by name or as it is, its constants, and whether modes may move."""

    reparam: str | AbstractReparam
    constants: Mapping[str, Any]
    project: bool

    def form(self, lam: Tensor, time: str) -> AbstractReparam | str:
        """The form in that time, fitted to the eigenvalues; or why there is none."""
        if isinstance(self.reparam, AbstractReparam):
            given = self.reparam
            if given.time == time:
                return given
            return _stepped(given, time) or f"{given.name} was given in {given.time} time"
        kind = registry.load(registry.find("reparams", self.reparam))
        times = getattr(kind, "times", ())
        own = time if time in times else next(iter(times))
        made = registry.build("reparams", self.reparam, time=own, **self.constants)
        if own != time:
            stepped = _stepped(made, time)
            if stepped is None:
                return f"{clean(made.name)} has no form in {time} time, in which its modes are"
            made = stepped
        if self.constants:
            return made
        stable = decays(lam, time)
        inside = lam[stable]
        if self.project and not bool(stable.all()):  # those that are moved must have room
            edge = -MARGIN if time == "continuous" else 1.0 - MARGIN
            inside = torch.cat([inside, inside.new_full((1,), edge)])
        return made.fitted(inside)


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """A weight, the form for it, and the stored weight with its modes inside, if some moved."""

    decay: DiagonalDecay | DenseDecay
    form: AbstractReparam
    modes: int
    old: str
    moved: int = 0
    farthest: float = 0.0
    inside: Tensor | None = None
    condition: float = 1.0


def make_plan(decay: StoredDecay, order: Order) -> Plan | RefusedLayer:
    """The plan for one weight."""
    if isinstance(decay, DiagonalDecay):
        return _diagonal(decay, order)
    if isinstance(decay, DenseDecay):
        return _dense(decay, order)
    return RefusedLayer(decay.layer, decay.cell, decay.reason)


def _diagonal(decay: DiagonalDecay, order: Order) -> Plan | RefusedLayer:
    stored = decay.owner.get_parameter(decay.name).detach()
    wide = stored.to(torch.complex128 if stored.is_complex() else torch.float64)
    lam = decay.law.forward(numbers_of(wide, decay.part))
    form = order.form(lam.flatten(), decay.law.time)
    if isinstance(form, str):
        return RefusedLayer(decay.layer, decay.cell, form)
    if form == decay.law:
        fact = f"it is stored in the form {form.name} already"
        return RefusedLayer(decay.layer, decay.cell, fact)
    out = ~reached(form, lam)
    plan = Plan(decay, form, lam.numel(), decay.law.name)
    if not bool(out.any()):
        return plan
    if not order.project:
        why = _outside(form, lam[out], lam.numel())
        return RefusedLayer(decay.layer, decay.cell, why, reachable=True)
    new = lam.masked_scatter(out, nearest_reached(form, lam[out]))
    inside = with_numbers(wide, decay.law.inverse(new), decay.part).to(stored.dtype)
    far = float((new - lam).abs().amax())
    return Plan(decay, form, lam.numel(), decay.law.name, int(out.sum()), far, inside)


def _dense(decay: DenseDecay, order: Order) -> Plan | RefusedLayer:
    stored = decay.owner.get_parameter(decay.name).detach()
    matrix = decay.matrix(decay.owner, stored.double()).detach()
    found = eigen_form(matrix)
    worst = found.condition
    if not worst <= WORST_CONDITION:
        fact = f"its eigenvectors are ill-conditioned ({worst:.2g}, at most {WORST_CONDITION:.0e})"
        return RefusedLayer(decay.layer, decay.cell, fact)
    form = order.form(found.sizes, "discrete")
    if isinstance(form, str):
        return RefusedLayer(decay.layer, decay.cell, form)
    if form.name == "direct":
        fact = "it is stored in the form direct already"
        return RefusedLayer(decay.layer, decay.cell, fact)
    out = ~reached(form, found.sizes)
    if not bool(out.any()):
        return Plan(decay, form, len(matrix), "direct", condition=worst)
    if not order.project:
        why = _outside(form, found.sizes[out], len(matrix))
        if decay.note:
            why += f", of {decay.note}; a scan shows those of the state that the model settles in"
        return RefusedLayer(decay.layer, decay.cell, why, reachable=True)
    sizes = found.sizes.masked_scatter(out, nearest_reached(form, found.sizes[out]))
    far, inside = float((sizes - found.sizes).abs().amax()), _rebuilt(decay, stored, found, sizes)
    count = int(out.sum() + out[len(found.signs) :].sum())  # of a pair both move
    return Plan(decay, form, len(matrix), "direct", count, far, inside, worst)


def _rebuilt(decay: DenseDecay, stored: Tensor, found: EigenForm, sizes: Tensor) -> Tensor:
    """The stored weight with other sizes of its modes."""
    matrix = found.basis @ found.modes(sizes) @ torch.linalg.inv(found.basis)
    rest = decay.rest(stored.double())
    return decay.joined(decay.owner, matrix, rest).detach().to(stored.dtype)


def _stepped(form: AbstractReparam, time: str) -> AbstractReparam | None:
    if time != "discrete" or form.time != "continuous":
        return None
    return Stepped(inner=form)


def _outside(form: AbstractReparam, lam: Tensor, of: int) -> str:
    """Names the modes that the form does not reach."""
    unstable = int((~decays(lam, form.time)).sum())
    shown = ", ".join(f"{value:.4g}" for value in lam.flatten()[:_SHOWN].tolist())
    more = " …" if lam.numel() > _SHOWN else ""
    why = f", {unstable} of them not stable" if unstable else ""
    return (
        f"{lam.numel()} of {of} modes are out of reach of {form.name}{why}: {shown}{more} in "
        f"{form.time} time"
    )


def check_order(order: Order) -> None:
    """Refuse a name that is none, and constants that the form does not have."""
    if isinstance(order.reparam, AbstractReparam):
        if order.constants:
            raise ArgumentError(
                f"{clean(next(iter(order.constants)))} cannot be given to a form that is made "
                "already",
                hint="give its name, or make it with other constants",
            )
        return
    kind = registry.load(registry.find("reparams", order.reparam))
    known = set(getattr(kind, "__dataclass_fields__", ())) - {"time"}
    unknown = [name for name in order.constants if name not in known]
    if unknown:
        fact = f"neither retrofit nor the form {clean(order.reparam)} has {clean(unknown[0])!r}"
        raise ArgumentError(fact, hint=f"the form has: {', '.join(sorted(known)) or 'nothing'}")
    registry.build("reparams", order.reparam, time=next(iter(kind.times)), **order.constants)


#: What is moved inside ends this far from the boundary: the distance at which scan warns.
MARGIN = 1e-4
#: Candidates among which the nearest is chosen, and the fastest of them.
_COUNT, _FASTEST = 20001, 1e4


def decays(lam: Tensor, time: str) -> Tensor:
    """Which modes are stable."""
    return lam < 0.0 if time == "continuous" else lam.abs() < 1.0


def nearest_reached(form: AbstractReparam, lam: Tensor) -> Tensor:
    """For every eigenvalue the nearest that the form reaches, clear of the boundary."""
    if form.time == "continuous":
        low, high = torch.log10(torch.tensor([MARGIN, _FASTEST], dtype=torch.float64)).tolist()
        known = -torch.logspace(high, low, _COUNT, dtype=torch.float64)
    else:
        known = torch.linspace(MARGIN - 1.0, 1.0 - MARGIN, _COUNT, dtype=torch.float64)
    known = known[form.contains(known)]
    asked = lam.cpu().double().contiguous()
    place = torch.searchsorted(known, asked).clamp(1, len(known) - 1)
    below, above = known[place - 1], known[place]
    return torch.where(asked - below <= above - asked, below, above).to(lam)
