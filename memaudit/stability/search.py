"""The largest error within a ball of moves: random draws, and gradient ascent from many starts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import torch

from memaudit.subjects.moves import draw, steepest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import Self

    from memaudit.interfaces import Role

    Moves = dict[str, torch.Tensor]

    Tick = Callable[[int, int], None]


#: A pass with gradients keeps every step of the recurrence: it takes a share of the copies.
GRADIENT_SHARE = 4


@dataclass(frozen=True, slots=True)
class Problem:
    """The weights that move, the ball that they move in, and the error of the moved copies.

    Every weight moves within its own ball of the same beta. `error` takes the values (K,…) of the
    moved weights and gives the errors (K,), infinite where they are not finite; copy k depends on
    entry k alone. `batch` copies are evaluated at a time. `along`, where there is one, gives the
    errors (S,K) of K directions at S betas: the same numbers by a shorter way.
    """

    weights: Mapping[str, torch.Tensor]
    roles: Mapping[str, Role]
    ball: str
    error: Callable[[Mapping[str, torch.Tensor]], torch.Tensor]
    differentiable: bool = True
    batch: int = 64
    along: Callable[[Moves, torch.Tensor], torch.Tensor] | None = None

    def drawn(self, count: int, generator: torch.Generator) -> Moves:
        """Random directions (K,…) of every weight, each of size 1."""
        return {
            name: draw(
                weight.shape,
                self.roles[name].form,
                self.ball,
                count,
                generator,
                dtype=_wide(weight.dtype),
                device=weight.device,
            )
            for name, weight in self.weights.items()
        }

    def uphill(self, gradients: Moves) -> Moves:
        """The directions of size 1 along which the error rises most, to first order."""
        return {
            name: steepest(gradient, self.roles[name].form, self.ball)
            for name, gradient in gradients.items()
        }

    def moved(self, directions: Moves, betas: torch.Tensor) -> Moves:
        """The values (K,…) of the weights, `betas` (K,) along the directions."""
        return {name: self._moved(name, way, betas) for name, way in directions.items()}

    def errors(self, directions: Moves, betas: torch.Tensor) -> torch.Tensor:
        """The errors (K,) of K moves, on the CPU and in float64."""
        with torch.no_grad():
            parts = [
                self.error(self.moved(_rows(directions, rows), betas[rows])).double().cpu()
                for rows in torch.arange(len(betas)).split(max(self.batch, 1))
            ]
        return _bounded(torch.cat(parts))

    def errors_along(self, directions: Moves, betas: torch.Tensor) -> torch.Tensor:
        """The errors (S,K) of every direction at every beta, on the CPU and in float64."""
        count = len(next(iter(directions.values())))
        if self.along is None:
            rows = torch.arange(len(betas) * count)
            parts = [
                self.errors(_rows(directions, some % count), betas[some // count])
                for some in rows.split(max(self.batch, 1))
            ]
            return torch.cat(parts).reshape(len(betas), count)
        few = betas.split(max(self.batch, 1))
        which = torch.arange(count).split(max(self.batch // max(len(few[0]), 1), 1))
        with torch.no_grad():
            found = [
                torch.cat([self.along(_rows(directions, w), b).double().cpu() for b in few])
                for w in which
            ]
        return _bounded(torch.cat(found, 1))

    def slopes(self, directions: Moves, betas: torch.Tensor) -> tuple[torch.Tensor, Moves]:
        """The errors (K,) and their gradients by the directions, zero where they are not finite."""
        parts = [
            self._slopes(_rows(directions, rows), betas[rows])
            for rows in torch.arange(len(betas)).split(max(self.batch // GRADIENT_SHARE, 1))
        ]
        gradients = {name: torch.cat([part[1][name] for part in parts]) for name in directions}
        return _bounded(torch.cat([part[0] for part in parts])), gradients

    def _slopes(self, directions: Moves, betas: torch.Tensor) -> tuple[torch.Tensor, Moves]:
        with torch.enable_grad():
            leaves = {name: way.detach().requires_grad_() for name, way in directions.items()}
            errors = self.error(self.moved(leaves, betas))
            # Infinity has no slope. The zeros are for an error that depends on no weight at all.
            total = errors[torch.isfinite(errors)].sum()
            total = total + sum(0.0 * leaf.sum() for leaf in leaves.values())
            found = torch.autograd.grad(total, list(leaves.values()))
        finite = (gradient.nan_to_num(0.0, 0.0, 0.0) for gradient in found)
        return errors.detach().double().cpu(), dict(zip(leaves, finite, strict=True))

    def _moved(self, name: str, way: torch.Tensor, betas: torch.Tensor) -> torch.Tensor:
        weight = self.weights[name].detach()
        lengths = betas.to(way).reshape(-1, *[1] * weight.ndim)
        return (weight + lengths * way).to(weight.dtype)


def _rows(directions: Moves, rows: torch.Tensor) -> Moves:
    return {name: way[rows.to(way.device)] for name, way in directions.items()}


def _bounded(errors: torch.Tensor) -> torch.Tensor:
    return torch.where(torch.isfinite(errors), errors, torch.inf)


def _wide(dtype: torch.dtype) -> torch.dtype:
    """Directions are float32 at least: a step of half precision is a move of its own."""
    return torch.float64 if dtype == torch.float64 else torch.float32


#: Directions that are drawn together, whatever the batch: so the batch changes no draw.
DRAWN_TOGETHER = 32
#: Numbers in directions that are held at a time; an ascent holds some four times as many.
MOST_NUMBERS = 2**25
#: In the first third of the steps so many times as many ascents are under way; the best go on.
#: Which maximum an ascent ends on depends on its start more than on its length.
WIDER = 4
#: Random draws for every ascent that starts from one: the best of all are taken.
SCREENED = 8
#: Distance from no move at all, as a share of beta, at which the first gradient is taken: the
#: error itself is zero there, and has no direction.
NEAR_ZERO = 0.01
#: Steps after which each beta takes over what its neighbours found, and shakes its own best.
EXCHANGE_EVERY = 4
#: An ascent rests where the steepest move promises less than this share of its error: radii are
#: told to no more digits.
GAIN = 1e-3


def _ignored(done: int, total: int) -> None:
    """No progress is shown."""


def random_errors(
    problem: Problem,
    betas: Sequence[float] | np.ndarray,
    draws: int,
    generator: torch.Generator,
    tick: Tick = _ignored,
) -> np.ndarray:
    """The errors (betas, draws) of random moves that have the size beta in every weight.

    A draw is one direction for all betas, so the curves are smooth. `tick` gets how many of
    the copies are done.
    """
    sizes = torch.as_tensor(np.asarray(betas, float))
    found = np.empty((len(sizes), draws))
    start = 0
    for directions in _groups(problem, draws, len(sizes), generator):
        stop = start + len(next(iter(directions.values())))
        found[:, start:stop] = problem.errors_along(directions, sizes)
        start = stop
        tick(start * len(sizes), draws * len(sizes))
    return found


def first_draws(problem: Problem, draws: int, generator: torch.Generator) -> Moves:
    """The directions (K,…) that `random_errors` takes first, as many as are drawn together."""
    return problem.drawn(min(_together(problem), draws), generator)


def ascent_errors(
    problem: Problem,
    betas: Sequence[float] | np.ndarray,
    starts: int,
    steps: int,
    generator: torch.Generator,
    tick: Tick = _ignored,
) -> np.ndarray:
    """The largest errors (betas,) that ascents found; empty where there are no gradients.

    Every beta has a group of ascents, one start at least: from the best of some random draws, from
    the steepest move and its opposite, and from what the neighbouring betas have found. What a
    smaller ball holds is in the larger one too.
    """
    if not problem.differentiable:
        return np.empty(0)
    sizes, order = torch.as_tensor(np.asarray(betas, float)).sort()
    wide = _wide_beginning(problem, starts)
    drawn = problem.drawn(min(SCREENED * wide, max(wide, _room(problem))), generator)
    errors = problem.errors_along(drawn, sizes)
    risen, _ = ascended(problem, sizes, drawn, errors, starts, steps, generator, tick)
    found = np.empty(len(sizes))
    found[order.numpy()] = risen
    return found


def ascended(
    problem: Problem,
    sizes: torch.Tensor,
    drawn: Moves,
    errors: torch.Tensor,
    starts: int,
    steps: int,
    generator: torch.Generator,
    tick: Tick = _ignored,
) -> tuple[np.ndarray, Moves]:
    """The largest errors (n,) at rising betas, above those (n,K) of K draws, and their directions.

    Every second beta goes up from the best draws. In the last third of the steps all of them do,
    from the best that any of those has found: what is steepest changes little from beta to beta.
    All go up in one batch, as far as memory goes; directions (n,…) are kept if they fit too.
    """
    wide = _wide_beginning(problem, starts)
    groups = sizes.split(max(1, _room(problem) // (wide + 2)))
    found, moves, neighbour = [], [], None
    for number, (group, known) in enumerate(zip(groups, errors.split(len(groups[0])), strict=True)):
        coarse = torch.arange(len(group) - 1, -1, -2 if steps else -1).flip(0)
        ascent = _beginning(problem, group[coarse], drawn, known[coarse], wide, neighbour)
        for step in range(1, steps + 1):
            if 3 * step > 2 * steps and len(ascent.betas) < len(group):
                ascent = ascent.spread(problem, group, max(1, starts))
            if step % EXCHANGE_EVERY == 0:
                ascent = ascent.with_neighbours().perturbed(
                    problem.drawn(len(ascent.betas), generator)
                )
            ascent = ascent.stepped(problem, last=step == steps)
            ascent = ascent.narrowed(starts + 2) if 3 * step >= steps else ascent
            tick(number * steps + step, len(groups) * steps)
        found.append(torch.maximum(ascent.best, known.amax(1)))
        moves.append(ascent.best_moves())
        neighbour = {name: way[-1:] for name, way in moves[-1].items()}
        # Those of two betas are needed, however large they are.
        moves = moves if len(sizes) <= max(2, _room(problem)) else []
    joined = {name: torch.cat([part[name] for part in moves]) for name in drawn} if moves else {}
    return np.maximum.accumulate(torch.cat(found).numpy()), joined


def polished(problem: Problem, ways: Moves, betas: torch.Tensor, steps: int) -> Moves:
    """The best ends (n,…) of ascents that begin at some directions (n,R,…) of every beta."""
    ascent = Ascent.started(problem, ways, betas)
    for step in range(1, steps + 1):
        ascent = ascent.stepped(problem, last=step == steps)
    return ascent.best_moves()


def _wide_beginning(problem: Problem, starts: int) -> int:
    """How many of the draws are gone up from."""
    return min(WIDER * starts, max(starts, _room(problem)))


def _beginning(
    problem: Problem,
    sizes: torch.Tensor,
    drawn: Moves,
    errors: torch.Tensor,
    starts: int,
    neighbour: Moves | None,
) -> Ascent:
    """Some of the draws, the steepest move near rest of the first and its opposite, `neighbour`.

    The largest beta takes its best draw, the one below its second: where the error is a straight
    line of beta its maxima are the same at every beta, and so more of them are found.
    """
    ranks = torch.arange(len(sizes)).flip(0)[:, None] + len(sizes) * torch.arange(max(1, starts))
    chosen = errors.argsort(1, descending=True).gather(1, ranks % errors.shape[1])
    near = {name: NEAR_ZERO * way[chosen[:, 0].to(way.device)] for name, way in drawn.items()}
    steepest = problem.uphill(problem.slopes(near, sizes)[1])
    groups = {}
    for name, way in drawn.items():
        up = steepest[name]
        group = [way[chosen[:, :starts].to(way.device)], torch.stack([up, -up], 1)]
        if neighbour is not None:
            group.append(neighbour[name].unsqueeze(1).expand(len(sizes), *[-1] * way.ndim))
        groups[name] = torch.cat(group, 1)
    return Ascent.started(problem, groups, sizes)


def _room(problem: Problem) -> int:
    """How many directions are held at a time; it depends on the weights alone."""
    numbers = sum(weight.numel() for weight in problem.weights.values())
    return max(1, MOST_NUMBERS // max(1, numbers))


def _together(problem: Problem) -> int:
    return min(DRAWN_TOGETHER, _room(problem))


def _groups(
    problem: Problem, draws: int, betas: int, generator: torch.Generator
) -> Iterator[Moves]:
    """All directions, in groups that fill a batch once every beta is applied to them."""
    together = _together(problem)
    blocks = max(1, problem.batch // max(1, betas * together))
    counts = [min(together, draws - start) for start in range(0, draws, together)]
    for first in range(0, len(counts), blocks):
        group = [problem.drawn(count, generator) for count in counts[first : first + blocks]]
        yield {name: torch.cat([part[name] for part in group]) for name in problem.weights}


#: An ascent whose steps are taken back until they are this share of the way has ended.
SMALLEST_SHARE = 1e-3


@dataclass(frozen=True, slots=True, eq=False)
class Ascent:
    """Where the ascents stand: one group of R ascents for every one of n betas, in that order.

    Places are moves divided by beta, so the ball has radius 1 for all of them, and a step goes a
    share of the way to the steepest move: such a point is in the ball whatever its shape. A full
    step is the power iteration, which is what a convex error asks for; a step that does not raise
    the error is taken back, and the next one is half as long. An ascent rests, at the share 0,
    where the steepest move promises nothing more.
    """

    places: Moves
    gradients: Moves
    #: (n,R); a place that was not evaluated at its beta yet has minus infinity.
    values: torch.Tensor
    shares: torch.Tensor
    betas: torch.Tensor

    @classmethod
    def started(cls, problem: Problem, groups: Moves, betas: torch.Tensor) -> Self:
        """The ascents at their starts (n,R,…), evaluated."""
        places = {name: way.flatten(0, 1) for name, way in groups.items()}
        size = len(next(iter(places.values()))) // len(betas)
        values, gradients = problem.slopes(places, betas.repeat_interleave(size))
        values = values.reshape(len(betas), size)
        return cls(places, gradients, values, torch.ones_like(values), betas)

    @property
    def best(self) -> torch.Tensor:
        """The largest error (n,) of every beta so far."""
        return self.values.amax(1)

    def best_moves(self) -> Moves:
        """The best place (n,…) of every beta."""
        count, size = self.values.shape
        return _picked(self.places, torch.arange(count) * size + self.values.argmax(1))

    def spread(self, problem: Problem, betas: torch.Tensor, starts: int) -> Self:
        """The ascents of more betas: the new ones begin at the best places of those that are here.

        Of every beta `starts` go on, the last of them from elsewhere where that is higher.
        """
        own = self.narrowed(starts)
        size = own.values.shape[1]
        errors = problem.errors_along(self.best_moves(), betas)
        best = torch.arange(len(self.betas)) * size + own.values.argmax(1)
        ranked = errors.argsort(1, descending=True)
        source = best[ranked[:, torch.arange(size) % ranked.shape[1]]]
        values = errors.new_full(source.shape, -torch.inf)
        shares = torch.ones_like(values)
        at = torch.searchsorted(betas, self.betas)
        elsewhere = errors[at].amax(1) > own.best * (1.0 + GAIN)
        kept = torch.arange(len(self.betas) * size).reshape(-1, size)
        kept[:, -1] = torch.where(elsewhere, source[at, 0], kept[:, -1])
        values[at], shares[at] = own.values, own.shares
        values[at, -1] = torch.where(elsewhere, -torch.inf, values[at, -1])
        shares[at, -1] = torch.where(elsewhere, 1.0, shares[at, -1])
        source[at] = kept
        return replace(
            self,
            places=_picked(own.places, source.flatten()),
            gradients=_picked(own.gradients, source.flatten()),
            values=values,
            shares=shares,
            betas=betas,
        )

    def stepped(self, problem: Problem, *, last: bool = False) -> Self:
        """One step of every ascent that does not rest; no ascent gets lower.

        The last step needs no gradients, which are left as they were.
        """
        shares, values = self.shares.flatten(), self.values.flatten()
        rows = (shares > 0).nonzero()[:, 0]
        ways = problem.uphill(_picked(self.gradients, rows))
        going = self._rises(ways, rows) | (values[rows] == -torch.inf)
        shares = shares.index_fill(0, rows[~going], 0.0)
        ways, rows = _picked(ways, going.nonzero()[:, 0]), rows[going]
        if not len(rows):
            return replace(self, shares=shares.reshape(self.shares.shape))
        # A place that was not evaluated yet is tried as it is.
        lengths = torch.where(values[rows] == -torch.inf, 0.0, shares[rows])
        places = _picked(self.places, rows)
        tried = {n: torch.lerp(p, ways[n], _column(lengths, p)) for n, p in places.items()}
        sizes = self.betas[rows // self.values.shape[1]]
        if last:
            found, gradients = problem.errors(tried, sizes), _picked(self.gradients, rows)
        else:
            found, gradients = problem.slopes(tried, sizes)
        higher = found > values[rows]
        lengths = torch.where(higher, (2.0 * shares[rows]).clamp_max(1.0), shares[rows] / 2.0)
        lengths = torch.where(lengths < SMALLEST_SHARE, 0.0, lengths)
        better = higher.nonzero()[:, 0]
        return replace(
            self,
            places=_placed(self.places, rows[better], _picked(tried, better)),
            gradients=_placed(self.gradients, rows[better], _picked(gradients, better)),
            values=values.index_copy(0, rows[better], found[better]).reshape(self.values.shape),
            shares=shares.index_copy(0, rows, lengths).reshape(self.shares.shape),
        )

    def _rises(self, ways: Moves, rows: torch.Tensor) -> torch.Tensor:
        """Whether the error rises on the way to the steepest move, by more than rounding."""
        gain, rounding = torch.zeros(len(rows), dtype=torch.float64), 0.0
        for name, way in ways.items():
            chosen = rows.to(way.device)
            product = (way - self.places[name][chosen]) * self.gradients[name][chosen]
            gain = gain + product.double().flatten(1).sum(1).cpu()
            rounding = max(rounding, torch.finfo(way.dtype).eps)
        return gain > max(rounding**0.5, GAIN) * self.values.flatten()[rows]

    def narrowed(self, size: int) -> Self:
        """The best ascents of every beta, so many of each; the others are given up."""
        count, before = self.values.shape
        kept = self.values.topk(min(size, before), dim=1).indices
        source = (torch.arange(count)[:, None] * before + kept).flatten()
        return replace(
            self,
            places=_picked(self.places, source),
            gradients=_picked(self.gradients, source),
            values=self.values.gather(1, kept),
            shares=self.shares.gather(1, kept),
        )

    def with_neighbours(self) -> Self:
        """The two lowest ascents of every beta go to the best places of its neighbours."""
        count, size = self.values.shape
        if count < 2 or size < 3:
            return self
        ranks = self.values.argsort(1)
        groups = torch.arange(count)
        best = groups * size + ranks[:, -1]
        source = torch.arange(count * size)
        values, shares = self.values.flatten().clone(), self.shares.flatten().clone()
        for rank, neighbours in enumerate((groups[1:], groups[:-1])):
            # The lowest ascent goes to the place from below, the next one to that from above.
            others = neighbours - 1 if rank == 0 else neighbours + 1
            taken = neighbours * size + ranks[neighbours, rank]
            source[taken] = best[others]
            values[taken], shares[taken] = -torch.inf, 1.0
        return replace(
            self,
            places=_picked(self.places, source),
            gradients=_picked(self.gradients, source),
            values=values.reshape(count, size),
            shares=shares.reshape(count, size),
        )

    def perturbed(self, draws: Moves) -> Self:
        """The third lowest ascent of every beta goes halfway from its best place to a draw (n,…).

        A mode that was sent to the wrong side of zero is flat there, and no gradient brings it
        back.
        """
        count, size = self.values.shape
        if size < 4:
            return self
        ranks, groups = self.values.argsort(1), torch.arange(count) * size
        best = _picked(self.places, groups + ranks[:, -1])
        halfway = {name: (place + draws[name]) / 2.0 for name, place in best.items()}
        taken = groups + ranks[:, 2]
        values = self.values.flatten().index_fill(0, taken, -torch.inf)
        shares = self.shares.flatten().index_fill(0, taken, 1.0)
        return replace(
            self,
            places=_placed(self.places, taken, halfway),
            values=values.reshape(count, size),
            shares=shares.reshape(count, size),
        )


def _column(numbers: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """Numbers (K,) that multiply (K,…)."""
    return numbers.to(like).reshape(-1, *[1] * (like.ndim - 1))


def _picked(moves: Moves, source: torch.Tensor) -> Moves:
    return {name: way[source.to(way.device)] for name, way in moves.items()}


def _placed(moves: Moves, rows: torch.Tensor, some: Moves) -> Moves:
    return {name: way.index_copy(0, rows.to(way.device), some[name]) for name, way in moves.items()}
