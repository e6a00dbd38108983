"""E(beta) of one group of weights, and the radius: how far these weights may move."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import torch

from memaudit.errors import SourceError
from memaudit.numerics.signals import seeded
from memaudit.stability.result import BOUNDARY, SIZE, PerturbationCurve, Radius
from memaudit.stability.search import (
    Problem,
    ascended,
    ascent_errors,
    first_draws,
    polished,
    random_errors,
)
from memaudit.subjects.copies import APART
from memaudit.subjects.moves import error_norm, error_norms, perturbing_inputs

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from memaudit.interfaces import AbstractPerturbable, AbstractSubject, Role, Setting
    from memaudit.stability.search import Moves

    Target = Callable[[torch.Tensor], torch.Tensor]


#: Numbers (weights and answers) of all copies in one batch.
BATCH_NUMBERS = 2**24


@dataclass(frozen=True, slots=True, eq=False)
class Trial:
    """E of moved weights: the norm of the difference between their answers and the reference.

    `scale` is the norm of the reference itself, without its answer to zero input; `start` is E(0).
    Weights move in real numbers: complex ones have a last axis of real and imaginary part.
    """

    copies: AbstractPerturbable
    inputs: torch.Tensor
    reference: torch.Tensor
    norm: str
    pooled: bool
    scale: float
    start: float

    @property
    def weights(self) -> dict[str, torch.Tensor]:
        """The weights that may be moved."""
        own = self.copies.weights.items()
        return {n: torch.view_as_real(w.resolve_conj()) if w.is_complex() else w for n, w in own}

    @property
    def roles(self) -> dict[str, Role]:
        """A complex diagonal moves by the modulus of its numbers, other weights in both parts."""
        return {
            name: replace(role, form="pairs")
            if role.form == "diagonal" and self.copies.weights[name].is_complex()
            else role
            for name, role in self.copies.roles.items()
        }

    def _stored(self, moved: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        own = self.copies.weights
        return {
            name: torch.view_as_complex(value.contiguous()) if own[name].is_complex() else value
            for name, value in moved.items()
        }

    def error(self, moved: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """E (K,) of every copy."""
        answers = self.copies.respond(self.inputs, self._stored(moved))
        return error_norm(answers.double() - self.reference, self.norm, pooled=self.pooled)

    def errors_along(
        self, directions: Mapping[str, torch.Tensor], sizes: torch.Tensor
    ) -> torch.Tensor:
        """E (S,K) of every direction at every size."""
        answers = self.copies.respond_scaled(self.inputs, self._stored(directions), sizes)
        return error_norms(answers, self.reference, self.norm, pooled=self.pooled)

    def modes(self, moved: Mapping[str, torch.Tensor]) -> Mapping[str, torch.Tensor]:
        """Layer → eigenvalues (K,n), where the weights alone decide them."""
        return self.copies.modes(self._stored(moved))

    def largest_mode(self, moved: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """The largest |lambda| (K,) of every copy; weights that are not finite are beyond it."""
        wide = {name: value.double() for name, value in moved.items()}
        sizes = [modes.abs().amax(1) for modes in self.modes(wide).values()]
        return torch.stack(sizes).amax(0).nan_to_num(nan=torch.inf)

    def share_to_boundary(self) -> Callable[[Mapping[str, torch.Tensor]], torch.Tensor]:
        """How much of its way to the boundary a mode has gone, 1 on it: the most (K,) of all modes.

        (|lambda'| - |lambda|) / (1 - |lambda|): a mode that is near the boundary in its own scale
        is not hidden by one that is nearer in size. All modes must be inside as they are.
        """
        with torch.no_grad():
            rest = {layer: modes.abs() for layer, modes in self.modes({}).items()}

        def most(moved: Mapping[str, torch.Tensor]) -> torch.Tensor:
            wide = {name: value.double() for name, value in moved.items()}
            gone = [
                ((modes.abs() - rest[layer]) / (1.0 - rest[layer])).amax(1)
                for layer, modes in self.modes(wide).items()
            ]
            return torch.stack(gone).amax(0).nan_to_num(nan=torch.inf)

        return most

    def named(self, group: str) -> tuple[str, ...]:
        """The weights of a group; "all" is every one."""
        roles = self.copies.roles
        return tuple(n for n in self.copies.weights if group in ("all", roles[n].group))

    def batches(self, names: Sequence[str]) -> bool:
        """Whether many copies run at once; two are tried, with the first weight as it is."""
        pair = {name: torch.stack([self.weights[name]] * 2) for name in names[:1]}
        with torch.no_grad():
            self.error(pair)
        return getattr(self.copies, "execution", "") != APART

    def problem(
        self,
        names: Sequence[str],
        ball: str,
        error: Callable[[Mapping[str, torch.Tensor]], torch.Tensor] | None = None,
    ) -> Problem:
        """The search for a large error of some moved weights in a ball; E where none is given."""
        weights = {name: self.weights[name] for name in names}
        numbers = sum(weight.numel() for weight in weights.values()) + 2 * self.reference.numel()
        return Problem(
            weights=weights,
            roles={name: self.roles[name] for name in names},
            ball=ball,
            error=error or self.error,
            differentiable=self.copies.differentiable,
            batch=max(1, BATCH_NUMBERS // max(1, numbers)),
            along=self.errors_along if error is None else None,
        )


def make_trial(
    subject: AbstractSubject, setting: Setting, *, norm: str, steps: int, target: Target | None
) -> Trial:
    """The trial of a subject, against itself or against a target functional."""
    copies = subject.perturbable()
    if copies is None:
        raise SourceError(
            "E_UNSUPPORTED",
            "the weights of this model cannot be moved one by one",
            hint="leave the probe stability out",
            stage="stability",
        )
    inputs = perturbing_inputs(subject, setting, steps=steps)
    zero = torch.zeros_like(inputs[:1])
    with torch.no_grad():
        own = subject.respond(inputs).double()
        rest = subject.respond(zero).double()
        wanted = own if target is None else _answers(target, inputs, own)
        still = rest if target is None else _answers(target, zero, rest)
        size = error_norm((wanted - still)[None], norm, pooled=subject.pooled)
        start = error_norm((own - wanted)[None], norm, pooled=subject.pooled)
    return Trial(copies, inputs, wanted, norm, subject.pooled, float(size[0]), float(start[0]))


def _answers(target: Target, inputs: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    found = target(inputs)
    if not isinstance(found, torch.Tensor) or found.shape != like.shape:
        got = tuple(found.shape) if isinstance(found, torch.Tensor) else type(found).__name__
        raise SourceError(
            "E_UNSUPPORTED",
            f"the target answers {tuple(inputs.shape)} by {got}, the model by {tuple(like.shape)}",
            hint="give a target of the same shape",
            stage="stability",
        )
    if not bool(torch.isfinite(found).all()):
        raise SourceError(
            "E_UNSUPPORTED",
            "the target answers by numbers that are not finite",
            hint="give another target, or fewer steps",
            stage="stability",
        )
    return found.double()


# E(beta) and its radii, searched

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


@dataclass(frozen=True, slots=True)
class Effort:
    """How hard to search: betas, random draws of each, restarts and steps of the ascent, seeds.

    Restarts are those for recurrent weights and those for others.
    """

    betas: tuple[float, ...]
    draws: int
    starts: tuple[int, int]
    steps: int
    seeds: tuple[int, ...]
    tol: float
    atol: float


@dataclass(frozen=True, slots=True, eq=False)
class Searched:
    """What one seed found at rising betas, and the directions (n,…) of the largest errors.

    `errors` is the running maximum over smaller betas of what draws and ascent found.
    """

    seed: int
    betas: np.ndarray
    drawn: np.ndarray
    risen: np.ndarray
    errors: np.ndarray
    moves: Moves


@dataclass(frozen=True, slots=True, eq=False)
class Passing:
    """Where errors at rising betas pass a bound: `more` betas around it, and the worst `ways`."""

    betas: np.ndarray
    errors: np.ndarray
    bound: float
    start: float
    more: np.ndarray
    ways: Moves

    @property
    def radius(self) -> float:
        """The beta at which they pass it."""
        return passing(self.betas, self.errors, self.bound, start=self.start)

    def along(self, problem: Problem, ways: Moves, *others: float) -> Passing:
        """With the errors of some directions at `more` betas and others."""
        more = np.append(self.more, others)
        added = problem.errors_along(ways, torch.as_tensor(more)).amax(1).numpy()
        betas, at = np.unique(np.append(self.betas, more), return_inverse=True)
        joined = np.full(len(betas), self.start)
        np.maximum.at(joined, at, np.append(self.errors, added))
        return replace(self, betas=betas, errors=np.maximum.accumulate(joined))


@dataclass(frozen=True, slots=True)
class GroupSearch:
    """The search over some weights in one ball; `group` is what they are called."""

    trial: Trial
    group: str
    names: tuple[str, ...]
    ball: str
    effort: Effort
    tick: Callable[[int, int], None]

    def curve(self) -> PerturbationCurve:
        """The curve with both radii."""
        found = self._searched()
        boundary, bounds = self._boundary(), [self._tolerance()]
        passed = self._passed(found, bounds if boundary else [*bounds, (self.trial.scale, SIZE)])
        return PerturbationCurve(
            group=self.group,
            ball=self.ball,
            norm=self.trial.norm,
            betas=np.asarray(self.effort.betas),
            errors=np.max([one.errors for one in found], axis=0),
            random=np.max([one.drawn for one in found], axis=0),
            ascent=np.max([one.risen for one in found], axis=0),
            radius=boundary or passed[-1],
            tolerance_radius=passed[0],
            weights=self.names,
        )

    def tolerance_radius(self) -> Radius:
        """That radius alone."""
        return self._passed(self._searched(), [self._tolerance()])[0]

    def _searched(self) -> list[Searched]:
        """What every seed found."""
        return [self._search(np.asarray(self.effort.betas), seed) for seed in self.seeds]

    @property
    def seeds(self) -> tuple[int, ...]:
        """All seeds for the weights that matter most, one for the others."""
        return self.effort.seeds if self.group in ("recurrent", "all") else self.effort.seeds[:1]

    def _search(self, betas: np.ndarray, seed: int) -> Searched:
        """The largest errors at rising betas: of random draws, and of ascents from the best."""
        effort, problem = self.effort, self._problem
        errors = random_errors(problem, betas, effort.draws, seeded(seed), self.tick)
        drawn, risen = errors.max(axis=1), np.zeros(0)
        draws = first_draws(problem, effort.draws, seeded(seed))
        errors = errors[:, : len(next(iter(draws.values())))]
        if self._ascends():
            risen, moves = ascended(
                problem,
                torch.as_tensor(betas),
                draws,
                torch.as_tensor(errors),
                effort.starts[self.group != "recurrent"],
                effort.steps,
                seeded(seed + 1),
                self.tick,
            )
        else:
            best = torch.as_tensor(errors.argmax(axis=1))
            moves = {name: way[best.to(way.device)] for name, way in draws.items()}
        found = drawn if not len(risen) else np.maximum(drawn, risen)
        joined = np.maximum.accumulate(np.maximum(found, self.trial.start))
        return Searched(seed, betas, drawn, risen, joined, moves)

    @property
    def _problem(self) -> Problem:
        return self.trial.problem(self.names, self.ball)

    def _ascends(self) -> bool:
        return bool(self.effort.steps) and self.trial.copies.differentiable

    def _boundary(self) -> Radius | None:
        """How far until a mode reaches the boundary, where the weights decide the modes."""
        recurrent = any(self.trial.roles[name].group == "recurrent" for name in self.names)
        if not recurrent or not self.trial.modes({}):
            return None
        exact, formula = closed_radius(self.trial, self.names, self.ball)
        # One search is enough to hold a formula against.
        seeds = self.seeds if exact is None else self.seeds[:1]
        reached = [self._reached(seed) for seed in seeds]
        return Radius(BOUNDARY, min(reached), (min(reached), max(reached)), exact, formula)

    def _reached(self, seed: int) -> float:
        """The smallest move that was found to take a mode to the boundary."""
        if float(self.trial.largest_mode({})[0]) >= 1.0:
            return 0.0
        names = tuple(name for name in self.names if _Weight(self.trial, name).matters())
        if not names:
            return math.inf
        problem = self.trial.problem(names, self.ball, self.trial.share_to_boundary())

        def beyond(betas: np.ndarray) -> np.ndarray:
            made = ascent_errors(problem, betas, MODE_STARTS, MODE_STEPS, seeded(seed), self.tick)
            return ~(made <= OUTSIDE) | (~(made < 1.0) & (betas <= EXACT_UP_TO))

        betas = self.effort.betas
        return narrowed(beyond, low=betas[0], high=max(REACH, betas[-1]), rtol=CLOSE)

    def _tolerance(self) -> tuple[float, str]:
        """The tolerated error, and the criterion in words."""
        effort, trial = self.effort, self.trial
        bound = (1.0 + effort.tol) * trial.start + effort.atol * trial.scale
        return bound, (
            f"E(beta) <= {1 + effort.tol:g} E(0) + {effort.atol:g} of the size of the answers"
        )

    def _passed(self, found: list[Searched], bounds: list[tuple[float, str]]) -> list[Radius]:
        """Where E(beta) of every seed passes each bound, looked for between the betas and beyond.

        Where the errors along the worst directions pass, ascents go up from these, all in one
        batch, and what they find is gone along in turn.
        """
        passings = [self._passing(searched, bound) for bound, _ in bounds for searched in found]
        rising = [one for one in passings if one is not None and one.radius > 0.0]
        if self._ascends() and rising:
            ways = {n: torch.stack([one.ways[n] for one in rising]) for n in self.names}
            at = torch.tensor([one.radius for one in rising], dtype=torch.float64)
            tops = polished(self._problem, ways, at, self.effort.steps)
            for k, one in enumerate(rising):
                top = {name: way[k : k + 1] for name, way in tops.items()}
                passings[passings.index(one)] = one.along(self._problem, top, one.radius)
        radii = [math.inf if one is None else one.radius for one in passings]
        parts = [radii[k : k + len(found)] for k in range(0, len(radii), len(found))]
        return [
            Radius(criterion, min(part), (min(part), max(part)))
            for part, (_, criterion) in zip(parts, bounds, strict=True)
        ]

    def _passing(self, searched: Searched, bound: float) -> Passing | None:
        """Where the errors of one seed pass a bound; None when they never do."""
        betas, errors = searched.betas, searched.errors
        between = bracket(betas, errors, bound)
        if between is None and betas[-1] < REACH:
            count = 1 + math.ceil(math.log2(REACH / betas[-1]))
            searched = self._search(np.geomspace(betas[-1], REACH, count), searched.seed)
            betas, errors = searched.betas, np.maximum(searched.errors, errors[-1])
            between = bracket(betas, errors, bound)
        if between is None:
            return None
        low, high = between
        least = low or BELOW * high
        around = np.asarray([low or high, high])
        ends = searched if searched.moves else self._search(np.unique(around), searched.seed)
        at = torch.as_tensor(np.searchsorted(ends.betas, around))
        ways = {name: way[at.to(way.device)] for name, way in ends.moves.items()}
        count = max(FINER, 1 + int(np.log2(high / least) * PER_DOUBLING))
        more = np.geomspace(least, high, count)[1 if low else 0 : -1]
        found = Passing(betas, errors, bound, self.trial.start, more, ways)
        return found.along(self._problem, ways)


#: Betas that are tried together: a batch of them costs little more than one.
TOGETHER = 24
#: What fails at a beta so much smaller than `low` fails everywhere.
TINY = 2.0**-40


def narrowed(
    fails: Callable[[np.ndarray], np.ndarray], *, low: float, high: float, rtol: float
) -> float:
    """The largest beta below every one that fails, to a share of `rtol`.

    `fails` says of every beta of a rising row whether the criterion fails there. Infinite when it
    fails nowhere up to `high`, 0 when it fails everywhere.
    """
    first, holds = low, None
    while holds is None or high > holds * (1.0 + rtol):
        betas = np.geomspace(low, high, TOGETHER)
        beyond = np.flatnonzero(fails(betas if holds is None else betas[1:-1]))
        if holds is None and not len(beyond):
            return math.inf
        if holds is None and beyond[0] == 0:
            low, high = low * TINY**0.25, low
            if high <= first * TINY:
                return 0.0
            continue
        inner = betas if holds is None else betas[1:-1]
        at = int(beyond[0]) if len(beyond) else len(inner)
        below = inner[at - 1] if at else low
        high = inner[at] if at < len(inner) else high
        low = holds = float(below)
    return holds


def bracket(betas: np.ndarray, errors: np.ndarray, bound: float) -> tuple[float, float] | None:
    """The betas before and behind the passing; None when no error passes the bound.

    The first of them is 0 when the smallest beta is beyond already.
    """
    beyond = np.flatnonzero(~(errors <= bound))
    if not len(beyond):
        return None
    first = int(beyond[0])
    return (float(betas[first - 1]) if first else 0.0), float(betas[first])


def passing(betas: np.ndarray, errors: np.ndarray, bound: float, *, start: float = 0.0) -> float:
    """The beta at which E passes the bound, infinite when it never does.

    E is taken for a power of beta between two of them, and for straight between E(0) = `start`
    and the smallest one.
    """
    found = bracket(betas, errors, bound)
    if found is None:
        return math.inf
    low, high = found
    above = float(errors[np.flatnonzero(betas == high)[0]])
    if low == 0.0:
        return high * max(bound - start, 0.0) / (above - start)
    below = float(errors[np.flatnonzero(betas == low)[0]])
    if not math.isfinite(above) or below <= 0.0:
        return low
    share = math.log(bound / below) / math.log(above / below)
    return low * (high / low) ** share


# Radii in closed form

#: Moduli that agree so well are the same.
SAME = 1e-9
#: A weight whose moves of this size reach no boundary, such as a step size, never reaches it.
FAR = 16.0
#: More modes than these are not compared one by one; larger matrices take too long.
MOST, LARGEST_MATRIX = 4096, 16
#: Rates that an exact step keeps inside; one of Euler leaves the circle on the other side.
RATES = (0.1, 1.0, 8.0, 64.0)
Closed = tuple[float | None, str]


def closed_radius(trial: Trial, names: Sequence[str], ball: str) -> Closed:
    """The exact radius of a group of weights, and its formula; None where none is known.

    Every weight that can take a mode to the boundary needs a formula of its own, in which it makes
    its modes alone: as they are in discrete time, as their rates in continuous time, or as a
    matrix whose eigenvalues they are. The radius of all is the smallest.
    """
    movers = [weight for name in names if (weight := _Weight(trial, name)).moves()]
    dangerous = [weight for weight in movers if not weight.is_harmless()]
    found = [weight.radius(ball) for weight in dangerous]
    if not found or any(radius is None for radius, _ in found):
        return None, ""
    return min(found, key=lambda pair: pair[0] or 0.0)


@dataclass(frozen=True, slots=True)
class _Weight:
    """One weight by itself; all others are as they are."""

    trial: Trial
    name: str

    @property
    def value(self) -> torch.Tensor:
        return self.trial.weights[self.name].double()

    def sizes(self, value: torch.Tensor) -> torch.Tensor:
        """The moduli of all modes with that value."""
        found = self.trial.modes({self.name: value[None]})
        return torch.cat([modes[0].flatten().abs() for modes in found.values()])

    def moved_modes(self) -> torch.Tensor:
        """Which modes have another size with another value."""
        value = self.value
        with torch.no_grad():
            now = self.sizes(value)
            others = [self.sizes(value - step) for step in (0.5, 0.3)]
        return torch.stack([(now - other).abs() > SAME for other in others]).any(0)

    def matters(self) -> bool:
        """Whether any of some moves in one direction changes a mode, or makes it no number."""
        value = self.value
        with torch.no_grad():
            now = self.sizes(value)
            moved = [self.sizes(value + step) for step in (-FAR, -0.5, 0.5, FAR)]
        return not all(torch.equal(now, other) for other in moved)

    def moves(self) -> bool:
        """Whether there is such a mode."""
        return bool(self.moved_modes().any())

    def is_harmless(self) -> bool:
        """Whether not even a far move in one direction takes a mode to the boundary."""
        value = self.value
        with torch.no_grad():
            found = [self.sizes(value + far)[self.moved_modes()] for far in (-FAR, FAR)]
        return all(bool((sizes < 1.0).all()) for sizes in found)

    def radius(self, ball: str) -> Closed:
        """The distance of this weight alone."""
        form, value, moved = self.trial.roles[self.name].form, self.value, self.moved_modes()
        with torch.no_grad():
            sizes = self.sizes(value)[moved]
        if form in ("diagonal", "pairs") and self._holds_modes(moved):
            return max(0.0, float(1.0 - sizes.amax())), "min(1 - |lambda|)"
        if form in ("diagonal", "pairs") and self._holds_rates(moved):
            return max(0.0, float(-value[self._moving_entries()].amax())), "min(-Re lambda)"
        square = form == "matrix" and value.ndim == 2 and value.shape[0] == value.shape[1]
        small = square and len(value) <= LARGEST_MATRIX
        if ball == "spectral" and small and _alike(torch.linalg.eigvals(value).abs(), sizes):
            return real_radius(value.cpu().numpy()), "1 / sup mu_R((e^it - W)^-1)"
        return None, ""

    def _holds_modes(self, moved: torch.Tensor) -> bool:
        """Whether its numbers are the modes themselves, whatever they are."""
        pairs = self.trial.roles[self.name].form == "pairs"
        for value in (self.value, 0.7 * self.value):
            own = torch.linalg.vector_norm(value, dim=-1) if pairs else value.abs()
            with torch.no_grad():
                if not _alike(own.flatten(), self.sizes(value)[moved]):
                    return False
        return True

    def _holds_rates(self, moved: torch.Tensor) -> bool:
        """Whether zero puts every mode on the boundary, and anything less inside."""
        zero = torch.zeros_like(self.value)
        with torch.no_grad():
            on_edge = self.sizes(zero)[moved]
            inside = [self.sizes(zero - rate)[moved] for rate in RATES]
        held = all(bool((sizes < 1.0).all()) for sizes in inside)
        return held and bool(((on_edge - 1.0).abs() < SAME).all())

    def _moving_entries(self) -> torch.Tensor:
        """The numbers of the weight that change the size of a mode, such as real parts."""
        value = self.value.clone().requires_grad_()
        with torch.enable_grad():
            (slope,) = torch.autograd.grad(self.sizes(value).sum(), value)
        return slope.abs() > SAME * slope.abs().amax()


def _alike(first: torch.Tensor, second: torch.Tensor) -> bool:
    """Whether two sets of numbers are the same; conjugate pairs may be stored once."""
    if not 0 < max(len(first), len(second)) <= MOST:
        return False
    apart = (first[:, None] - second[None, :]).abs()
    return bool(apart.amin(0).amax() < SAME and apart.amin(1).amax() < SAME)


#: Angles of the first look at the half circle; the angles of the eigenvalues are added.
ANGLES = 128
#: Dips that are looked into, points in each, and how often: the width falls by 4 each time.
DIPS, POINTS, ROUNDS = 6, 9, 10
#: Smallest gamma of the real formula, and steps of its golden section: to 1e-7 of log gamma.
SMALLEST_GAMMA, GOLDEN_STEPS = 1e-6, 40


def real_radius(matrix: np.ndarray) -> float:
    """The smallest real move that puts an eigenvalue on the unit circle; 0 beyond it.

    1 / sup over theta of mu_R((e^{i theta} I - W)^-1), where mu_R(M) is the infimum over gamma in
    (0,1] of the second singular value of [[Re M, -gamma Im M], [Im M / gamma, Re M]].

    The formula is that of Qiu et al. (Automatica 1995) for the disc; of a normal matrix it is
    min(1 - |lam|). It costs some 20 000 decompositions of twice the size: it is meant for small
    matrices.
    """
    w = np.asarray(matrix, float)
    if np.abs(np.linalg.eigvals(w)).max() >= 1.0:
        return 0.0
    # A real move reaches 1 and -1 by a real vector: there mu_R is the largest singular value,
    # and jumps. The open half circle between is another matter.
    ends = _singular(_resolvent(w, np.array([0.0, np.pi])))[:, -1].min()
    if len(w) == 1:
        return float(ends)

    def needed(angles: np.ndarray) -> np.ndarray:
        return 1.0 / _mu(np.linalg.inv(_resolvent(w, angles)))

    return float(min(ends, _lowest(needed, _angles_of(w)[1:-1])))


def _resolvent(w: np.ndarray, angles: np.ndarray) -> np.ndarray:
    """The matrices e^{i theta} I - W, one for every angle."""
    return np.exp(1j * angles)[:, None, None] * np.eye(len(w)) - w


def _singular(matrices: np.ndarray) -> np.ndarray:
    return np.linalg.svd(matrices, compute_uv=False)


def _angles_of(w: np.ndarray) -> np.ndarray:
    """The half circle from 0 to pi; the other half mirrors it."""
    own = np.abs(np.angle(np.linalg.eigvals(w)))
    return np.unique(np.concatenate([np.linspace(0.0, np.pi, ANGLES + 1), own]))


def _lowest(function: Callable[[np.ndarray], np.ndarray], grid: np.ndarray) -> float:
    """The minimum over the grid, with its deepest dips looked into ever closer."""
    values = function(grid)
    padded = np.pad(values, 1, constant_values=np.inf)
    dips = np.flatnonzero((values <= padded[:-2]) & (values <= padded[2:]))
    best = float(values.min())
    for dip in dips[np.argsort(values[dips])][:DIPS]:
        low, high = grid[max(dip - 1, 0)], grid[min(dip + 1, len(grid) - 1)]
        for _ in range(ROUNDS):
            points = np.linspace(low, high, POINTS)
            found = function(points)
            at = int(found.argmin())
            best = min(best, float(found[at]))
            low, high = points[max(at - 1, 0)], points[min(at + 1, POINTS - 1)]
    return best


def _mu(m: np.ndarray) -> np.ndarray:
    """mu_R of matrices (K,n,n), by golden section: the second singular value has one valley."""
    golden = (np.sqrt(5.0) - 1.0) / 2.0
    low, high = np.full(len(m), np.log(SMALLEST_GAMMA)), np.zeros(len(m))
    left, right = high - golden * (high - low), low + golden * (high - low)
    at_left, at_right = _second(m, left), _second(m, right)
    best = np.minimum(_second(m, low), _second(m, high))
    for _ in range(GOLDEN_STEPS):
        best = np.minimum(best, np.minimum(at_left, at_right))
        down = at_left < at_right
        low, high = np.where(down, low, left), np.where(down, right, high)
        fresh = np.where(down, high - golden * (high - low), low + golden * (high - low))
        at_fresh = _second(m, fresh)
        left, right = np.where(down, fresh, right), np.where(down, left, fresh)
        at_left, at_right = np.where(down, at_fresh, at_right), np.where(down, at_left, at_fresh)
    return best


def _second(m: np.ndarray, log_gamma: np.ndarray) -> np.ndarray:
    gamma = np.exp(log_gamma)[:, None, None]
    return _singular(
        np.block([[np.real(m), -gamma * np.imag(m)], [np.imag(m) / gamma, np.real(m)]])
    )[:, 1]
