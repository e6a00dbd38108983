"""The largest error within a ball of moves: by random draws, and by climbing along gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from memaudit.numerics.perturbation.climb import Climb
from memaudit.numerics.perturbation.problem import Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from memaudit.numerics.perturbation.problem import Moves

    Tick = Callable[[int, int], None]

__all__ = ["Problem", "ascent_errors", "random_errors"]

#: Directions that are drawn together, whatever the batch: so the batch changes no draw.
DRAWN_TOGETHER = 32
#: Numbers in directions that are held at a time; a climb holds some four times as many.
MOST_NUMBERS = 2**25
#: In the first third of the steps so many times as many climbs are under way; the best go on.
#: Which summit a climb ends on depends on its start more than on its length.
WIDER = 4
#: Random draws for every climb that starts from one: the best of all are taken.
SCREENED = 8
#: Distance from no move at all, as a share of beta, at which the first gradient is taken: the
#: error itself is zero there, and has no direction.
NEAR_ZERO = 0.01
#: Steps after which each beta takes over what its neighbours found, and shakes its own best.
EXCHANGE_EVERY = 4


def _silent(done: int, total: int) -> None:
    """Nobody is told."""


def random_errors(
    problem: Problem,
    betas: Sequence[float] | np.ndarray,
    draws: int,
    generator: torch.Generator,
    tick: Tick = _silent,
) -> np.ndarray:
    """The errors (betas, draws) of random moves that have the size beta in every weight.

    A draw is one direction for all betas, so the curves are smooth. `tick` is told how many of
    the copies are done.
    """
    sizes = torch.as_tensor(np.asarray(betas, float))
    found = np.empty((len(sizes), draws))
    start = 0
    for directions in _groups(problem, draws, len(sizes), generator):
        stop = start + len(next(iter(directions.values())))
        found[:, start:stop] = problem.fanned(directions, sizes)
        start = stop
        tick(start * len(sizes), draws * len(sizes))
    return found


def ascent_errors(
    problem: Problem,
    betas: Sequence[float] | np.ndarray,
    starts: int,
    steps: int,
    generator: torch.Generator,
    tick: Tick = _silent,
) -> np.ndarray:
    """The largest errors (betas,) that climbs found; empty where there are no gradients.

    Every beta has a team of climbs, one start at least: from the best of some random draws, from
    the steepest move and its opposite, and from what the neighbouring betas have found. All of
    them go up in one batch, as far as memory goes. What a smaller ball holds is in the larger one
    too, and nothing is below the draws that the climbs began with.
    """
    if not problem.differentiable:
        return np.empty(0)
    sizes, order = torch.as_tensor(np.asarray(betas, float)).sort()
    wide = min(WIDER * starts, max(starts, _room(problem)))
    teams = sizes.split(max(1, _room(problem) // (wide + 2)))
    best, summit = [], None
    for number, team in enumerate(teams):
        climb = _beginning(problem, team, wide, generator, summit)
        for step in range(1, steps + 1):
            if step % EXCHANGE_EVERY == 0:
                climb = climb.exchanged().shaken(problem.drawn(len(team), generator))
            climb = climb.stepped(problem)
            climb = climb.narrowed(starts + 2) if 3 * step >= steps else climb
            tick(number * steps + step, len(teams) * steps)
        best.append(climb.best)
        summit = climb.summit()
    found = np.empty(len(sizes))
    found[order.numpy()] = np.maximum.accumulate(torch.cat(best).numpy())
    return found


def _beginning(
    problem: Problem,
    sizes: torch.Tensor,
    starts: int,
    generator: torch.Generator,
    summit: Moves | None,
) -> Climb:
    """The best draws of every beta, both signs of the steepest move at rest, and a summit."""
    drawn = problem.drawn(min(SCREENED * starts, max(starts, _room(problem))), generator)
    chosen = problem.fanned(drawn, sizes).topk(starts, dim=1).indices
    near = {name: NEAR_ZERO * way[chosen[:, 0].to(way.device)] for name, way in drawn.items()}
    steepest = problem.uphill(problem.slopes(near, sizes)[1])
    teams = {}
    for name, way in drawn.items():
        up = steepest[name]
        team = [way[chosen.to(way.device)], torch.stack([up, -up], 1)]
        if summit is not None:
            team.append(summit[name].unsqueeze(1).expand(len(sizes), *[-1] * way.ndim))
        teams[name] = torch.cat(team, 1)
    return Climb.begun(problem, teams, sizes)


def _room(problem: Problem) -> int:
    """How many directions are held at a time; it depends on the weights alone."""
    numbers = sum(weight.numel() for weight in problem.weights.values())
    return max(1, MOST_NUMBERS // max(1, numbers))


def _groups(
    problem: Problem, draws: int, betas: int, generator: torch.Generator
) -> Iterator[Moves]:
    """All directions, in groups that fill a batch once every beta is applied to them."""
    together = min(DRAWN_TOGETHER, _room(problem))
    blocks = max(1, problem.batch // max(1, betas * together))
    counts = [min(together, draws - start) for start in range(0, draws, together)]
    for first in range(0, len(counts), blocks):
        group = [problem.drawn(count, generator) for count in counts[first : first + blocks]]
        yield {name: torch.cat([part[name] for part in group]) for name in problem.weights}
