"""What changed between two reports, as a record that knows nothing of how it is shown."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields, replace
from typing import Any

#: Reports show four digits: numbers that look alike there are not called different.
SAME = 1e-4
#: Settings that move no number: what was asked for, and what code might be run.
NEUTRAL = ("queries", "probes", "trust_remote_code")


@dataclass(frozen=True, slots=True)
class Apart:
    """The lag at which two curves lie farthest apart, beyond what their floors explain.

    A value below both floors counts as the larger floor, so that the ratio is a lower bound there.
    """

    lag: int
    before: float
    after: float

    @property
    def ratio(self) -> float:
        """How often the later value contains the earlier one."""
        return self.after / self.before

    def mirrored(self) -> Apart:
        """The same with the reports in the other order."""
        return Apart(self.lag, self.after, self.before)


@dataclass(frozen=True, slots=True)
class Change:
    """One thing that at least one of the reports tells of, by its facts before and after.

    `where` is the layer or part that it belongs to, "" for the model as a whole. Facts are plain
    values by name; None stands where a report does not tell of the thing at all.
    """

    name: str
    before: dict[str, Any] | None
    after: dict[str, Any] | None
    where: str = ""
    apart: Apart | None = None

    @property
    def came(self) -> bool:
        """Whether only the later report has it."""
        return self.before is None

    @property
    def went(self) -> bool:
        """Whether only the earlier report has it."""
        return self.after is None

    @property
    def differing(self) -> tuple[str, ...]:
        """The names of the facts that are not the same; of what came or went, all of them."""
        before, after = self.before or {}, self.after or {}
        names = dict.fromkeys((*before, *after))
        both = self.before is not None and self.after is not None
        return tuple(n for n in names if not (both and same(before.get(n), after.get(n))))

    @property
    def changed(self) -> bool:
        """Whether anything is not as it was."""
        return self.came or self.went or self.apart is not None or bool(self.differing)

    def mirrored(self) -> Change:
        """The same with the reports in the other order."""
        apart = None if self.apart is None else self.apart.mirrored()
        return replace(self, before=self.after, after=self.before, apart=apart)


@dataclass(frozen=True, slots=True)
class Difference:
    """Everything that two reports tell, side by side, each thing where it first stands in one.

    `memory` has a change per query, `layers` per query and layer, `spectrum` and `gradient` per
    recurrent layer, `stability` per group of weights and ball, `precision` per number format,
    `recall` per state, `findings` per code and place. `whole` has the few numbers of the model
    that all of this comes down to, the ones that gates judge; a bound is a word. `sections` tells
    which parts each of the reports has at all: what only one of them measured is in none of the
    others.

    Law: with the reports in the other order it is `mirrored`, to the last bit; of a report and
    itself nothing is `changed`.
    """

    subject: Change
    settings: Change
    environment: Change
    sections: Change
    memory: tuple[Change, ...] = ()
    layers: tuple[Change, ...] = ()
    spectrum: tuple[Change, ...] = ()
    stability: tuple[Change, ...] = ()
    precision: tuple[Change, ...] = ()
    gradient: tuple[Change, ...] = ()
    recall: tuple[Change, ...] = ()
    assumptions: tuple[Change, ...] = ()
    findings: tuple[Change, ...] = ()
    whole: Change = field(default_factory=lambda: Change("model", {}, {}))

    @property
    def changes(self) -> tuple[Change, ...]:
        """Everything that changed; how long it took and where it ran is no change of the model."""
        single = (self.subject, self.settings, self.sections)
        groups = (value for f in fields(self) if isinstance(value := getattr(self, f.name), tuple))
        everything = (*single, *(change for group in groups for change in group))
        return tuple(change for change in everything if change.changed)

    @property
    def changed(self) -> bool:
        """Whether the reports tell anything different of the model."""
        return bool(self.changes)

    @property
    def comparable(self) -> bool:
        """Whether both were measured alike; else a curve may differ by the way it was measured."""
        return set(self.settings.differing) <= set(NEUTRAL)

    @property
    def other_model(self) -> bool:
        """Whether the reports are of two models, and not of one before and after something.

        Another kind of model, or another shape with other parameters, out of another file.
        """
        facts = set(self.subject.differing)
        known = [(side or {}).get("sha256") for side in (self.subject.before, self.subject.after)]
        one_file = "sha256" not in facts and all(known)
        return not one_file and ("family" in facts or {"description", "parameters"} <= facts)

    def mirrored(self) -> Difference:
        """The same with the reports in the other order."""
        return Difference(**{f.name: _mirrored(getattr(self, f.name)) for f in fields(self)})


def same(before: Any, after: Any) -> bool:
    """Whether two facts are the same; numbers are, when four digits do not tell them apart."""
    if _listed(before) and _listed(after):
        pairs = zip(before, after, strict=False)
        return len(before) == len(after) and all(same(a, b) for a, b in pairs)
    if not _measured(before, after):
        return bool(before == after)
    if math.isinf(before) or math.isinf(after):
        return before == after
    return abs(after - before) <= SAME * max(abs(before), abs(after))


def _mirrored(value: Any) -> Any:
    return tuple(map(_mirrored, value)) if isinstance(value, tuple) else value.mirrored()


def _listed(value: Any) -> bool:
    return isinstance(value, list | tuple)


def _measured(*values: Any) -> bool:
    """Whether both are numbers, and not counts, such as horizons, which are compared exactly."""
    numbers = all(isinstance(v, int | float) and not isinstance(v, bool) for v in values)
    return numbers and any(isinstance(v, float) for v in values)
