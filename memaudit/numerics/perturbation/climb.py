"""Climbs of the error within a ball, all betas and all starts in one batch."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from typing import Self

    from memaudit.numerics.perturbation.problem import Moves, Problem

#: A climb whose steps are taken back until they are this share of the way has ended.
SMALLEST_SHARE = 1e-3


@dataclass(frozen=True, slots=True, eq=False)
class Climb:
    """Where the climbs stand: one team of R climbs for every one of n betas, in that order.

    Places are moves divided by beta, so the ball has radius 1 for all of them, and a step goes a
    share of the way to the steepest move: such a point is in the ball whatever its shape. A full
    step is the power iteration, which is what a convex error asks for; a step that does not raise
    the error is taken back, and the next one is half as long. A climb rests, at the share 0, where
    the steepest move promises nothing more.
    """

    places: Moves
    gradients: Moves
    #: (n,R); a place that was not evaluated at its beta yet has minus infinity.
    values: torch.Tensor
    shares: torch.Tensor
    betas: torch.Tensor

    @classmethod
    def begun(cls, problem: Problem, teams: Moves, betas: torch.Tensor) -> Self:
        """The climbs at their starts (n,R,…), evaluated."""
        places = {name: way.flatten(0, 1) for name, way in teams.items()}
        size = len(next(iter(places.values()))) // len(betas)
        values, gradients = problem.slopes(places, betas.repeat_interleave(size))
        values = values.reshape(len(betas), size)
        return cls(places, gradients, values, torch.ones_like(values), betas)

    @property
    def best(self) -> torch.Tensor:
        """The largest error (n,) of every beta so far."""
        return self.values.amax(1)

    def summit(self) -> Moves:
        """The best place (1,…) of the last beta."""
        count, size = self.values.shape
        return _picked(self.places, (count - 1) * size + self.values[-1:].argmax(1))

    def stepped(self, problem: Problem) -> Self:
        """One step of every climb that does not rest; no climb gets lower."""
        shares, values = self.shares.flatten(), self.values.flatten()
        rows = (shares > 0).nonzero()[:, 0]
        ways = problem.uphill(_picked(self.gradients, rows))
        going = self._promise(ways, rows) | (values[rows] == -torch.inf)
        shares = shares.index_fill(0, rows[~going], 0.0)
        ways, rows = _picked(ways, going.nonzero()[:, 0]), rows[going]
        if not len(rows):
            return replace(self, shares=shares.reshape(self.shares.shape))
        # A place that was not evaluated yet is tried as it is.
        lengths = torch.where(values[rows] == -torch.inf, 0.0, shares[rows])
        places = _picked(self.places, rows)
        tried = {n: torch.lerp(p, ways[n], _column(lengths, p)) for n, p in places.items()}
        found, gradients = problem.slopes(tried, self.betas[rows // self.values.shape[1]])
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

    def _promise(self, ways: Moves, rows: torch.Tensor) -> torch.Tensor:
        """Whether the error rises on the way to the steepest move, by more than rounding."""
        gain, rounding = torch.zeros(len(rows), dtype=torch.float64), 0.0
        for name, way in ways.items():
            chosen = rows.to(way.device)
            product = (way - self.places[name][chosen]) * self.gradients[name][chosen]
            gain = gain + product.double().flatten(1).sum(1).cpu()
            rounding = max(rounding, torch.finfo(way.dtype).eps)
        return gain > rounding**0.5 * self.values.flatten()[rows]

    def narrowed(self, size: int) -> Self:
        """The best climbs of every beta, so many of each; the others are given up."""
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

    def exchanged(self) -> Self:
        """The two lowest climbs of every beta go to the best places of its neighbours."""
        count, size = self.values.shape
        if count < 2 or size < 3:
            return self
        ranks = self.values.argsort(1)
        teams = torch.arange(count)
        best = teams * size + ranks[:, -1]
        source = torch.arange(count * size)
        values, shares = self.values.flatten().clone(), self.shares.flatten().clone()
        for rank, neighbours in enumerate((teams[1:], teams[:-1])):
            # The lowest climb goes to the place from below, the next one to that from above.
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

    def shaken(self, draws: Moves) -> Self:
        """The third lowest climb of every beta goes halfway from its best place to a draw (n,…).

        A mode that was sent to the wrong side of zero is flat there, and no gradient brings it
        back.
        """
        count, size = self.values.shape
        if size < 4:
            return self
        ranks, teams = self.values.argsort(1), torch.arange(count) * size
        best = _picked(self.places, teams + ranks[:, -1])
        halfway = {name: (place + draws[name]) / 2.0 for name, place in best.items()}
        taken = teams + ranks[:, 2]
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
