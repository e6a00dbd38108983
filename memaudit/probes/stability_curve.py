"""E(beta) of one group of weights in one ball, and how far these weights may move."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from memaudit.numerics.perturbation.narrowing import narrowed
from memaudit.numerics.perturbation.passing import bracket, passing
from memaudit.numerics.perturbation.search import Problem, ascent_errors, random_errors
from memaudit.numerics.signals import seeded
from memaudit.probes.closed_radius import closed_radius
from memaudit.stability.result import PerturbationCurve, Radius

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from memaudit.probes.stability_trial import Trial

#: Moves beyond this count as out of reach.
REACH = 64.0
#: Up to here a mode of exactly one is on the boundary; a larger move takes an exponential so near
#: to it that only rounding makes it one. Beyond, a mode must be clearly outside.
EXACT_UP_TO, OUTSIDE = 4.0, 1.0 + 1e-6
#: A passing below the smallest beta is looked for down to this share of it.
BELOW = 1.0 / 16.0
#: Radii are found to this share of themselves.
CLOSE = 2e-3
#: Betas at which a passing is looked at more closely.
FINER, PER_DOUBLING = 6, 2
#: Restarts and steps of the search for a mode on the boundary: modes follow the gradient well.
MODE_STARTS, MODE_STEPS = 2, 8
BOUNDARY = "no mode reaches the boundary"
SIZE = "the error stays below the size of the answers"


@dataclass(frozen=True, slots=True)
class Effort:
    """How hard to search: betas, random draws of each, restarts and steps of the ascent, seeds."""

    betas: tuple[float, ...]
    draws: int
    starts: int
    steps: int
    seeds: tuple[int, ...]
    tol: float
    atol: float


@dataclass(frozen=True, slots=True)
class GroupSearch:
    """The search over one group of weights in one ball."""

    trial: Trial
    group: str
    ball: str
    effort: Effort
    tick: Callable[[int, int], None]

    def curve(self) -> PerturbationCurve:
        """The curve with both radii."""
        betas, seeds = np.asarray(self.effort.betas), self.seeds
        drawn = [self._random(betas, seed) for seed in seeds]
        risen = [self._ascent(betas, seed) for seed in seeds]
        found = [self._joined(*pair) for pair in zip(drawn, risen, strict=True)]
        errors = np.max(found, axis=0)
        return PerturbationCurve(
            group=self.group,
            ball=self.ball,
            norm=self.trial.norm,
            betas=betas,
            errors=errors,
            random=np.max(drawn, axis=0),
            ascent=np.max(risen, axis=0),
            radius=self._boundary(found),
            tolerance_radius=self._tolerance(found),
            weights=self.names,
        )

    @property
    def names(self) -> tuple[str, ...]:
        """The weights that are moved."""
        return self.trial.named(self.group)

    def _answers(self) -> Problem:
        """The error of the answers is to be large."""
        return self._problem(self.trial.error, fan=self.trial.fan_errors)

    @property
    def seeds(self) -> tuple[int, ...]:
        """All seeds for the weights that matter most, one for the others."""
        return self.effort.seeds if self.group in ("recurrent", "all") else self.effort.seeds[:1]

    def _problem(
        self,
        error: Callable[..., torch.Tensor],
        *,
        fan: Callable[..., torch.Tensor] | None = None,
    ) -> Problem:
        copies, names = self.trial.copies, self.names
        return Problem(
            weights={name: copies.weights[name] for name in names},
            roles={name: copies.roles[name] for name in names},
            ball=self.ball,
            error=error,
            differentiable=copies.differentiable,
            batch=self.trial.batch(names),
            fan=fan,
        )

    def _random(self, betas: np.ndarray, seed: int) -> np.ndarray:
        """The largest error of the random draws at every beta."""
        problem = self._answers()
        found = random_errors(problem, betas, self.effort.draws, seeded(seed), self.tick)
        return found.max(axis=1)

    def _ascent(self, betas: np.ndarray, seed: int) -> np.ndarray:
        """What gradient ascent finds at every beta; empty when there is none."""
        effort = self.effort
        if not effort.steps or not self.trial.copies.differentiable:
            return np.zeros(0)
        problem = self._answers()
        return ascent_errors(
            problem, betas, effort.starts, effort.steps, seeded(seed + 1), self.tick
        )

    def _joined(self, drawn: np.ndarray, risen: np.ndarray) -> np.ndarray:
        """The running maximum over smaller betas of all that was found."""
        found = drawn if not len(risen) else np.maximum(drawn, risen)
        return np.maximum.accumulate(np.maximum(found, self.trial.start))

    def _boundary(self, found: list[np.ndarray]) -> Radius:
        """How far until a mode reaches the boundary, or the error the size of the answers."""
        sizes = self.trial.copies.modes({})
        if not sizes or not self._moves_modes():
            return self._passed(found, self.trial.scale, SIZE)
        exact, formula = closed_radius(self.trial.copies, self.names, self.ball)
        # One search is enough to hold a formula against.
        seeds = self.seeds if exact is None else self.seeds[:1]
        reached = [self._reached(seed) for seed in seeds]
        return Radius(BOUNDARY, min(reached), (min(reached), max(reached)), exact, formula)

    def _moves_modes(self) -> bool:
        roles = self.trial.copies.roles
        return any(roles[name].group == "recurrent" for name in self.names)

    def _reached(self, seed: int) -> float:
        """The smallest move that was found to take a mode to the boundary."""
        if float(self.trial.largest_mode({})[0]) >= 1.0:
            return 0.0
        problem = self._problem(self.trial.way_gone())

        def beyond(betas: np.ndarray) -> np.ndarray:
            made = ascent_errors(problem, betas, MODE_STARTS, MODE_STEPS, seeded(seed), self.tick)
            return ~(made <= OUTSIDE) | (~(made < 1.0) & (betas <= EXACT_UP_TO))

        betas = self.effort.betas
        return narrowed(beyond, low=betas[0], high=max(REACH, betas[-1]), rtol=CLOSE)

    def _tolerance(self, found: list[np.ndarray]) -> Radius:
        effort, trial = self.effort, self.trial
        bound = (1.0 + effort.tol) * trial.start + effort.atol * trial.scale
        told = f"E(beta) <= {1 + effort.tol:g} E(0) + {effort.atol:g} of the size of the answers"
        return self._passed(found, bound, told)

    def _passed(self, found: list[np.ndarray], bound: float, criterion: str) -> Radius:
        """Where E(beta) of every seed passes a bound, looked for between the betas and beyond."""
        betas, radii = np.asarray(self.effort.betas), []
        for seed, errors in zip(self.seeds, found, strict=True):
            between = bracket(betas, errors, bound)
            if between is None:
                between = float(betas[-1]), max(REACH, float(betas[-1]))
            finer = self._finer(seed, errors, between)
            radii.append(passing(*finer, bound, start=self.trial.start))
        return Radius(criterion, min(radii), (min(radii), max(radii)))

    def _finer(
        self, seed: int, errors: np.ndarray, between: tuple[float, float]
    ) -> tuple[np.ndarray, np.ndarray]:
        """The curve of one seed with more betas between two of them."""
        low, high = between
        count = max(FINER, 1 + int(np.log2(high / (low or BELOW * high)) * PER_DOUBLING))
        more = np.geomspace(low or BELOW * high, high, count)[1 if low else 0 :]
        more = more[~np.isin(more, self.effort.betas)]
        added = self._joined(self._random(more, seed), self._ascent(more, seed))
        betas = np.concatenate([np.asarray(self.effort.betas), more])
        order = np.argsort(betas)
        joined = np.concatenate([errors, added])[order]
        return betas[order], np.maximum.accumulate(joined)
