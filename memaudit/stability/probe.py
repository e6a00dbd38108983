"""How far the weights of a model may move before its answers go astray."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from memaudit.errors import ArgumentError, clean, nearest
from memaudit.interfaces import BALLS, NO_TOOLS, NORMS, AbstractProbe, Tools
from memaudit.stability.result import StabilityResult

if TYPE_CHECKING:
    from collections.abc import Mapping

    from memaudit.interfaces import AbstractSubject, Setting
    from memaudit.stability.radius import Effort, Trial

UNKNOWN = (
    "no weight is known to be recurrent: say which is, by memaudit_roles of the module, as in "
    'memaudit_roles = {"lam": "recurrent"}'
)
NO_ASCENT = (
    "gradient ascent was left out, since copies of this model run one after the other: "
    "stability.ascent=8 or --thorough asks for it"
)
GROUPS = ("recurrent", "input", "readout", "all")
#: The smallest and largest beta: those of StableSSM, Fig. 1.
SMALLEST, DOUBLINGS = 1e-3, 10
#: Level → betas, draws of each, restarts of the ascent for recurrent and other weights, its steps,
#: seeds.
LEVELS = {
    "quick": (11, 8, (1, 0), 3, 2),
    "standard": (21, 30, (1, 1), 8, 3),
    "thorough": (41, 100, (4, 4), 24, 5),
}


@dataclass(frozen=True, slots=True)
class Stability(AbstractProbe):
    """How large is E(beta), and up to which beta does the model stay what it is?

    E(beta) = sup over |theta' - theta| <= beta of ||H - H(.; theta')||, over random draws and
    gradient ascent. H is the model itself, or `target`, a function from (B,T,D) to its answers.
    `betas`, `draws` and `ascent` (steps, 0 for none) None leave them to the level. The tolerance
    radius is the largest beta with E(beta) <= (1 + tol) E(0) + atol times the size of the answers.
    """

    name = "stability"
    summary = "E(beta): error under moved weights by group, and the stability radius"
    result = StabilityResult

    options: ClassVar[Mapping[str, str]] = {
        "ball": "how moves are measured: spectral, frobenius, max-abs",
        "norm": "how errors are measured: sobolev, sup, l1, mse",
        "group": "weights that move: recurrent, input, readout, all",
        "betas": "sizes of the moves",
        "draws": "random moves of every size",
        "ascent": "steps of gradient ascent, 0 for none",
        "steps": "steps of the inputs",
        "tol": "growth of the error that is tolerated, as a share of it",
        "atol": "error that is tolerated, as a share of the answers",
        "target": "a function to hold the answers against, in Python only",
    }

    ball: str | tuple[str, ...] = "spectral"
    norm: str = "sobolev"
    group: str | tuple[str, ...] = GROUPS
    betas: tuple[float, ...] | None = None
    draws: int | None = None
    ascent: int | None = None
    steps: int = 100
    tol: float = 1.0
    atol: float = 0.1
    target: Callable[[Any], Any] | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot be measured, before a model is opened."""
        _known("ball", listed(self.ball), BALLS)
        _known("norm", (self.norm,), NORMS)
        _known("group", listed(self.group), GROUPS)
        _positive("betas", (1.0,) if self.betas is None else listed(self.betas))
        _whole("draws", 1 if self.draws is None else self.draws, low=1)
        _whole("ascent", 0 if self.ascent is None else self.ascent, low=0)
        _whole("steps", self.steps, low=2)
        if self.target is not None and not callable(self.target):
            raise ArgumentError("stability.target is no function", hint="give one in Python")
        _share("tol", self.tol)
        _share("atol", self.atol)

    def measure(
        self, subject: AbstractSubject, setting: Setting, tools: Tools = NO_TOOLS
    ) -> StabilityResult:
        from memaudit.stability.radius import GroupSearch, make_trial

        trial = make_trial(subject, setting, norm=self.norm, steps=self.steps, target=self.target)
        effort, note = self._effort(setting, together=trial.batches(trial.named("all")))
        groups = sorted((g for g in listed(self.group) if trial.named(g)), key=_before(trial))
        searches = [(group, ball) for ball in listed(self.ball) for group in groups]
        if not searches:
            raise ArgumentError(
                f"the model has no {' or '.join(listed(self.group))} weights that can be moved",
                hint="leave the option stability.group out",
            )
        curves = []
        for done, (group, ball) in enumerate(searches):
            tick = _share_of(tools.tick, done, len(searches))
            curves.append(GroupSearch(trial, group, trial.named(group), ball, effort, tick).curve())
        reference = "the model as it is" if self.target is None else "a target functional"
        return StabilityResult(
            curves=tuple(curves),
            reference=f"{reference}, on {len(trial.inputs)} inputs",
            scale=trial.scale,
            horizon=trial.inputs.shape[1],
            draws=effort.draws,
            seeds=len(effort.seeds),
            execution=getattr(trial.copies, "execution", ""),
            note="; ".join(filter(None, (note, "" if trial.named("recurrent") else UNKNOWN))),
        )

    def _effort(self, setting: Setting, *, together: bool) -> tuple[Effort, str]:
        """How hard to search, and what is to be said about it."""
        from memaudit.stability.radius import Effort

        count, draws, starts, steps, seeds = LEVELS[setting.level]
        skipped = not together and self.ascent is None and setting.level != "thorough"
        steps = 0 if skipped else steps
        spaced = (SMALLEST * 2.0 ** (DOUBLINGS * k / (count - 1)) for k in range(count))
        betas = tuple(spaced) if self.betas is None else tuple(sorted(listed(self.betas)))
        effort = Effort(
            betas=betas,
            draws=draws if self.draws is None else self.draws,
            starts=starts,
            steps=steps if self.ascent is None else self.ascent,
            seeds=tuple(setting.seed + 1000 * k for k in range(seeds)),
            tol=self.tol,
            atol=self.atol,
        )
        return effort, NO_ASCENT if skipped else ""


def _before(trial: Trial) -> Callable[[str], bool]:
    """Where no weight is known to be recurrent, the curve of all weights comes first."""
    known = bool(trial.named("recurrent"))
    return lambda group: not known and group != "all"


def _share_of(tick: Callable[[int, int], None], done: int, of: int) -> Callable[[int, int], None]:
    """The progress of one of several searches; each has many rounds, so only the first shows."""
    parts, reached = 100, 0.0

    def advance(now: int, total: int) -> None:
        nonlocal reached
        reached = max(reached, now / max(total, 1))
        tick(parts * done + int(parts * min(reached, 0.99)), parts * of)

    return advance


def listed(value: Any) -> tuple[Any, ...]:
    """One value or several, as a tuple."""
    return tuple(value) if isinstance(value, list | tuple) else (value,)


def _known(option: str, values: tuple[Any, ...], known: tuple[str, ...]) -> None:
    for value in values or ("",):
        if value not in known:
            fact = f"stability.{option} is {clean(value)!r}"
            raise ArgumentError(fact, hint=nearest(str(value), known))


def _share(option: str, value: Any) -> None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not 0.0 <= value < 1e6:
        raise ArgumentError(
            f"stability.{option} is {clean(value)!r}", hint="give a number from 0 on"
        )


def _positive(option: str, values: tuple[Any, ...]) -> None:
    for value in values or ("nothing",):
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e6:
            raise ArgumentError(
                f"stability.{option} holds {clean(value)!r}", hint="give positive numbers"
            )


def _whole(option: str, value: Any, *, low: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < low:
        raise ArgumentError(
            f"stability.{option} is {clean(value)!r}", hint=f"give a whole number from {low} on"
        )
