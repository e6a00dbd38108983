"""E(beta) of the weights behind one layer's modes: how far they may move, before and after."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

from memaudit.contracts import AbstractPerturbable, Setting
from memaudit.errors import SourceError
from memaudit.perturbable import plain_name
from memaudit.stability.radius import Effort, GroupSearch, make_trial

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from memaudit.contracts import AbstractSubject
    from memaudit.stability.radius import Trial
    from memaudit.stability.result import Radius

#: Models of more numbers than these are not measured unless it is asked for.
SMALL = 2_000_000
#: From the smallest beta of StableSSM on, two to a decade.
EFFORT = Effort(
    betas=tuple(1e-3 * 10 ** (k / 2) for k in range(7)),
    draws=8,
    starts=1,
    steps=4,
    seeds=(0,),
    tol=1.0,
    atol=0.1,
)
STEPS = 64
#: Seconds that two copies may take; a search needs some hundred.
QUICK = 0.05


class TooSlowError(SourceError):
    """Copies of the model run one after the other, and nobody asked to wait for them."""


def tolerance_radius(
    subject: AbstractSubject, weight: str, *, patient: bool = True
) -> Radius | None:
    """How far the weights behind a name may move until the answers change by a tenth.

    `weight` is the plain name in the module. None where the model has no such weights to move.
    """
    copies = subject.perturbable()
    names = () if copies is None else _behind(copies, weight)
    if copies is None or not names:
        return None
    trial = make_trial(subject, Setting(), norm="sobolev", steps=STEPS, target=None)
    only = {name: trial.copies.weights[name] for name in names if name in trial.copies.weights}
    if not only:
        return None
    alone = _Only(trial.copies, tuple(only))
    together = _together(alone, trial)
    start = time.perf_counter()
    _together(alone, trial)  # the first time something may be made that the second time is there
    slow = time.perf_counter() - start > QUICK
    if (slow or not together) and not patient:
        raise TooSlowError(
            "E_UNSUPPORTED",
            f"copies of this model {'take long' if together else 'run one after the other'}",
            hint="radius=True, or --radius, waits for them",
            stage="retrofit",
        )
    effort = EFFORT if together else replace(EFFORT, steps=0)
    search = GroupSearch(replace(trial, copies=alone), "all", "max-abs", effort, lambda *_: None)
    return search.curve().tolerance_radius


def _together(alone: _Only, trial: Trial) -> bool:
    """Whether many copies are evaluated at once; told by a trial of two."""
    name = alone.names[0]
    weight = alone.weights[name]
    with torch.no_grad():
        trial.error({name: weight.expand(2, *weight.shape)})
    return getattr(alone.copies, "execution", "") != "one after the other"


def _behind(copies: AbstractPerturbable, weight: str) -> tuple[str, ...]:
    """The movable weights of that plain name; a subject may leave out the first parts of it."""
    names = {name: plain_name(name) for name in copies.weights}
    parts = weight.split(".")
    for cut in range(len(parts)):
        end = ".".join(parts[cut:])
        found = tuple(n for n, plain in names.items() if plain == end)
        # A subject may have the module of its source inside of one of its own.
        found = found or tuple(n for n, plain in names.items() if plain.endswith(f".{end}"))
        if found:
            return found
    return ()


@dataclass(frozen=True, slots=True, eq=False)
class _Only(AbstractPerturbable):
    """A model of which only some weights move."""

    copies: AbstractPerturbable
    names: Sequence[str]

    @property
    def weights(self) -> Mapping[str, torch.Tensor]:  # type: ignore[override]
        return {name: self.copies.weights[name] for name in self.names}

    @property
    def roles(self) -> Mapping[str, object]:  # type: ignore[override]
        return {name: self.copies.roles[name] for name in self.names}

    @property
    def differentiable(self) -> bool:  # type: ignore[override]
        return self.copies.differentiable

    def respond(self, inputs: torch.Tensor, moved: Mapping[str, torch.Tensor]) -> torch.Tensor:
        return self.copies.respond(inputs, moved)

    def respond_fan(
        self, inputs: torch.Tensor, directions: Mapping[str, torch.Tensor], sizes: torch.Tensor
    ) -> torch.Tensor:
        return self.copies.respond_fan(inputs, directions, sizes)
