"""Gates on numbers: `horizon<1024`, `impulse.half_life <= 10`, `margin < 1e-4`."""

from __future__ import annotations

import math
import operator
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from memaudit import registry
from memaudit.catalog import BUILT_IN, DEFAULT_PROBES, DEFAULT_QUERIES
from memaudit.errors import ArgumentError, clean, nearest
from memaudit.metrics import METRICS, described, measured, spoken
from memaudit.results import GateResult
from memaudit.settings import LONGEST

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from memaudit.results import Report

OPERATORS: dict[str, Callable[[float, float], bool]] = {
    **{"<=": operator.le, ">=": operator.ge, "==": operator.eq, "!=": operator.ne},
    **{"<": operator.lt, ">": operator.gt},
}
_COMPARED = re.compile(r"(?P<name>.*?)\s*(?P<sign><=|>=|==|!=|=<|=>|<|>|=)\s*(?P<number>.*)", re.S)
_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?", re.I)
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

    A horizon beyond the window, like a radius beyond every move that was tried, counts as infinite.
    What was not measured is unknown, and a gate that does not know is hit.
    """

    word: str
    name: str
    sign: str
    limit: float

    def judge(self, report: Report) -> GateResult:
        """Whether the report's number is beyond the limit."""
        numbers = measured(report)
        key, value = found(numbers, self.name)
        if value is None:
            return GateResult(self.word, hit=True, told=f"{self.name}, which was not measured")
        if OPERATORS[self.sign](value, self.limit):
            told = f"{self.name} = {shown(numbers, key, value)}"
            return GateResult(self.word, hit=True, told=told)
        return GateResult(self.word, hit=False, told=self._doubt(report, numbers, key, value))

    @property
    def window(self) -> int:
        """The lags that must be measured for a gate on a horizon to tell."""
        # Behind the last of N lags, 0 to N - 1, a horizon is N or more: not below N.
        more = 0 if self.sign in ("<", ">=") else 1
        return math.ceil(self.limit) if more == 0 else math.floor(self.limit) + 1

    def _doubt(self, report: Report, numbers: Mapping[str, float], key: str, value: float) -> str:
        """What an open gate has to tell: the limit lies where nobody looked."""
        last = numbers.get(beside(key))
        if last is None or not math.isinf(value) or self.limit <= last:
            return ""
        lags = "horizon" in key
        if lags and self.window <= last + 1:
            return ""
        told = f"{self.name} is {shown(numbers, key, value)}, and nobody looked further"
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
    made = Condition(word.strip(), checked_name(name, asked), sign, limit)
    check_limit(made, asked, hint="give a limit of 0 or more")
    if "horizon" in made.name.split(".") and made.window > asked.horizon:
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
    if metric is None:
        fact = f"--fail-on knows no number {clean(name)!r}"
        raise ArgumentError(fact, hint=nearest(plain, known_names(known)))
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
    plain = [spoken(m.name) for m in METRICS if not m.inner]
    inner = [spoken(m.pattern) for m in METRICS if m.inner]
    curves = [f"{spoken(q)}.{m.name}" for q in asked.everything for m in METRICS if m.query]
    return (*dict.fromkeys((*plain, *inner, *curves)),)


def found(numbers: Mapping[str, float], name: str) -> tuple[str, float | None]:
    """The key of the report and its number, None when it was not measured."""
    return next(((k, v) for k, v in numbers.items() if spoken(k) == name), (name, None))


def beside(key: str) -> str:
    """The key under which a number stands that lies beyond what was looked at."""
    return re.sub(r"(^|/)(horizon|radius)(?=/|$)", r"\1\2_beyond", key, count=1)


def shown(numbers: Mapping[str, float], key: str, value: float) -> str:
    """The number in four digits, and the query or layer that it comes from."""
    last = numbers.get(beside(key))
    if math.isinf(value):
        return "infinite" if last is None else f"beyond {last:.4g}"
    holders = [
        k.removesuffix(f"/{key}").removeprefix(f"{key}/")
        for k, v in numbers.items()
        if v == value and k != key and (k.endswith(f"/{key}") or k.startswith(f"{key}/"))
    ]
    return f"{value:.4g}" + (f" at {holders[0]}" if holders else "")
