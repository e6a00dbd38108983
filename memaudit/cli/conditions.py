"""Gates on numbers: `horizon<1024`, `impulse.half_life <= 10`, `margin < 1e-4`."""

from __future__ import annotations

import math
import operator
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from memaudit import registry
from memaudit.catalog import BUILT_IN, DEFAULT_PROBES, DEFAULT_QUERIES
from memaudit.cli.sought import called, places, shown, sought
from memaudit.errors import ArgumentError, clean, nearest
from memaudit.metrics import METRICS, described, spoken
from memaudit.options import LONGEST
from memaudit.report import GateResult

if TYPE_CHECKING:
    from collections.abc import Callable

    from memaudit.metrics import Number
    from memaudit.report import Report

OPERATORS: dict[str, Callable[[float, float], bool]] = {
    **{"<=": operator.le, ">=": operator.ge, "==": operator.eq, "!=": operator.ne},
    **{"<": operator.lt, ">": operator.gt},
}
_COMPARED = re.compile(r"(?P<name>.*?)\s*(?P<sign><=|>=|==|!=|=<|=>|<|>|=)\s*(?P<number>.*)", re.S)
#: Digits of ASCII: those of other scripts look like others to many readers.
_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?", re.I | re.A)
#: What a report that was cut short knows, too.
CERTAIN = ("complete", "coverage", "parameters")
#: What is counted in lags, and lies behind a window.
LAGS = ("horizon", "half_life")
EXAMPLE = '--fail-on "horizon<100"'


@dataclass(frozen=True, slots=True)
class Asked:
    """What a scan will measure: a gate on anything else could never tell."""

    queries: tuple[str, ...] = DEFAULT_QUERIES
    probes: tuple[str, ...] = DEFAULT_PROBES
    #: Lags that are measured.
    horizon: int = LONGEST

    @property
    def everything(self) -> tuple[str, ...]:
        """The queries that names may begin with."""
        return tuple(dict.fromkeys((*self.queries, *BUILT_IN["queries"])))


@dataclass(frozen=True, slots=True)
class Condition:
    """A number of the report beside a limit; hit when the comparison holds.

    A horizon beyond the window, like a radius beyond every move that was tried, counts as infinite
    as far as was looked. What was not measured is unknown, and a gate that does not know is hit.
    """

    word: str
    #: The name as reports have it, and as it was given.
    name: str
    sign: str
    limit: float
    given: str = ""

    def judge(self, report: Report) -> GateResult:
        """Whether the report's number is beyond the limit."""
        found = sought(report, self.given or self.name)
        called_so = called(self.given or self.name, found)
        hits, gaps = [], []
        for own, number in found:
            name = called_so if len(found) == 1 else own
            if self._holds(number):
                hits.append(f"{name} = {shown(number)}")
            elif gap := self._gap(report, number):
                gaps.append(f"{name}, which {gap}")
        if not found:
            gaps = [f"{called_so}, which was not measured"]
        if not hits and not gaps:
            return GateResult(self.word, hit=False)
        first, *others = hits or gaps
        more = f" and {len(others)} more" if others else ""
        return GateResult(self.word, hit=True, told=first + more)

    @property
    def window(self) -> int:
        """The lags that must be measured for a gate on a horizon to tell."""
        # Behind the last of N lags, 0 to N - 1, a horizon is N or more: not below N.
        more = 0 if self.sign in ("<", ">=") else 1
        return math.ceil(self.limit) if more == 0 else math.floor(self.limit) + 1

    def _holds(self, number: Number) -> bool:
        return number.value is not None and OPERATORS[self.sign](number.value, self.limit)

    def _gap(self, report: Report, number: Number) -> str:
        """Why nobody knows whether the comparison holds, "" where it does not."""
        if number.value is None:
            return "was not measured"
        unknown = number.unknown(self.sign, self.limit)
        if unknown:
            return f"was not measured {places(report, unknown)}"
        return self._beyond(report, number)

    def _beyond(self, report: Report, number: Number) -> str:
        """Whether the limit lies where nobody looked."""
        last, lags = number.beyond, number.metric in LAGS
        if last is None or self.limit <= last or (lags and self.window <= last + 1):
            return ""
        told = f"is {shown(number)}, where nobody looked"
        asked = report.settings.get("horizon")
        short = lags and isinstance(asked, int) and asked < self.window
        return told + (f"; measure with --horizon {self.window} or more" if short else "")


def is_condition(word: str) -> bool:
    """Whether a word compares something."""
    return any(sign in word for sign in "<>=")


def parse_condition(word: str, asked: Asked) -> Condition:
    """The comparison, or what is wrong with it."""
    name, sign, number = split(word)
    if number.endswith("%"):
        fact = f"--fail-on {clean(word)!r} compares with a percentage, and there is nothing before"
        raise ArgumentError(fact, hint="changes are for memaudit diff BEFORE.json AFTER.json")
    limit = parse_number(number, word)
    made = Condition(word.strip(), checked_name(name, asked), sign, limit, name)
    check_limit(made, asked, hint="give a limit of 0 or more")
    metric = described(made.name, asked.everything)
    if metric is not None and metric.name == "horizon" and made.window > asked.horizon:
        fact = f"--fail-on {clean(word)!r} looks beyond the {asked.horizon} lags that are measured"
        raise ArgumentError(fact, hint=f"measure with --horizon {made.window} or more")
    return made


def check_limit(condition: Condition, asked: Asked, *, hint: str) -> None:
    """Refuse a limit that no number can be beyond: most of them are never negative."""
    metric = described(condition.name, asked.everything)
    if metric is not None and condition.limit < 0 and not metric.signed:
        name = clean(condition.name)
        fact = f"--fail-on {clean(condition.word)!r} cannot tell: {name} is never negative"
        raise ArgumentError(fact, hint=hint)


def split(word: str) -> tuple[str, str, str]:
    """Name, operator and number, the last as it was written."""
    match = _COMPARED.fullmatch(word.strip())
    name, sign, number = match.group("name", "sign", "number") if match else ("", "", "")
    if not name or not number:
        raise ArgumentError(f"--fail-on {clean(word)!r} wants NAME<NUMBER", hint=f"as in {EXAMPLE}")
    if sign not in OPERATORS:
        wanted = {"=": "==", "=<": "<=", "=>": ">="}[sign]
        raise ArgumentError(f"--fail-on {clean(word)!r} has no operator", hint=f"write {wanted}")
    return name, sign, number


def parse_number(text: str, word: str) -> float:
    """The limit; a number without end is no limit."""
    value = float(text) if _NUMBER.fullmatch(text) else math.nan
    if not math.isfinite(value):
        fact = f"--fail-on {clean(word)!r} compares with {clean(text)!r}, which is no number"
        raise ArgumentError(fact, hint="write it as 1024 or 1e-4")
    return value


def checked_name(name: str, asked: Asked | None) -> str:
    """The name as reports have it; one that nothing measures is refused with its neighbours.

    Without `asked` everything may have been measured.
    """
    known = asked or Asked()
    metric, plain = described(name, known.everything), spoken(name)
    ours = asked is not None and all(probe in BUILT_IN["probes"] for probe in asked.probes)
    if metric is not None and metric.inner and ours and plain not in map(spoken, metric.spelled):
        metric = None
    if metric is None:
        hint = nearest(plain, known_names(known))
        if not hint.startswith("did you mean"):
            hint = nearest(plain, (metric.pattern for metric in METRICS))
        raise ArgumentError(f"--fail-on knows no number {clean(name)!r}", hint=hint)
    query = next((q for q in known.everything if plain.startswith(f"{spoken(q)}.")), "")
    if asked is None:
        return plain
    if metric.probe and metric.probe not in asked.probes:
        raise unasked(metric.probe, plain, asked)
    if query and query not in asked.queries:
        raise unasked(query, plain, asked)
    return plain


def unasked(missing: str, wanted: str, asked: Asked) -> ArgumentError:
    """The error for a gate on what nobody measures; naming one replaces the default ones."""
    if missing in registry.available("queries"):
        fact = f"the query {clean(missing)} is not asked for, so nothing tells {clean(wanted)}"
        names, option = (*asked.queries, missing), "--query"
    else:
        fact = f"{clean(missing)} is not asked for, and without it there is no {clean(wanted)}"
        names, option = (*asked.probes, missing), "--probe"
    words = " ".join(f"{option} {clean(name)}" for name in names)
    return ArgumentError(fact, hint=f"{option} replaces the default ones, so give {words}")


def known_names(asked: Asked) -> tuple[str, ...]:
    """Every name that can be compared, without those of layers."""
    plain = [spoken(name) for metric in METRICS for name in metric.spelled]
    curves = [f"{spoken(q)}.{m.name}" for q in asked.everything for m in METRICS if m.query]
    return (*dict.fromkeys((*plain, *curves)),)
