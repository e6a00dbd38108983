"""The gates of `--fail-on`: a severity and everything above it, one finding, or a number.

A gate on a number compares a metric with a limit: `horizon<1024`, `impulse.half_life <= 10`; one on
a change compares two reports: `horizon<-20%`, `new-warning`. What could not be measured is a third
outcome beside hit and passed: it counts as hit and says why.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from memaudit import registry
from memaudit.errors import ArgumentError, MachineError, clean, listed, nearest
from memaudit.options import OPTIONS
from memaudit.report import OWN, SEVERITIES, GateResult, Metric, spelled
from memaudit.rules import FAMILY, Rule, all_rules, unmet

if TYPE_CHECKING:
    from memaudit.report import Finding, Report

NEW = "new-"
EXAMPLE = '--fail-on "horizon<100"'
INCOMPLETE = "as far as was measured, for the audit is incomplete"
#: What a report that was cut short knows, too.
CERTAIN = ("complete", "coverage", "parameters")
_COMPARED = re.compile(r"(?P<name>.*?)\s*(?P<sign><=|>=|==|!=|=<|=>|<|>|=)\s*(?P<number>.*)", re.S)
#: What a report puts behind the name of a layer that another one has, too.
_SECOND = re.compile(r" \(\d+\)$")
#: Digits of ASCII: those of other scripts look like others to many readers.
_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?", re.I | re.A)


@dataclass(frozen=True, slots=True)
class FindingGate:
    """Hit by a finding of these severities or of that rule; of diffs only by a `new` one."""

    word: str
    severities: frozenset[str] = frozenset()
    rule: Rule | None = None
    new: bool = False

    def judge(self, report: Any, before: Report | None = None) -> GateResult:
        """Whether a finding closes the gate; a rule whose probe did not run cannot tell."""
        found = [f for f in report.findings if self._hit_by(f)]
        if self.new and before is not None:
            known = {(f.code, f.where) for f in before.findings if self._hit_by(f)}
            found = [f for f in found if (f.code, f.where) not in known]
        if found:
            first, rest = found[0], len(found) - 1
            where = f" at {clean(first.where)}" if first.where else ""
            more = f" and {rest} more" if rest else ""
            kind = "new " if self.new else ""
            reason = f"{kind}{first.code} {clean(first.name)}{where}{more}"
            if self.new and before is not None and not before.complete:
                reason += ", if it is new: BEFORE is incomplete"
            return GateResult(self.word, hit=True, reason=reason)
        reports = [report] if before is None else [before, report]
        for one in reports if self.rule is not None and hasattr(report, "results") else ():
            if why := unmet(self.rule, one):  # type: ignore[arg-type]
                return GateResult(self.word, hit=True, reason=f"{self.rule.code}, for {why}")  # type: ignore[union-attr]
        return GateResult(self.word, hit=False)

    def _hit_by(self, finding: Finding) -> bool:
        code = None if self.rule is None else self.rule.code
        return finding.severity in self.severities or finding.code == code


@dataclass(frozen=True, slots=True)
class NumberGate:
    """A number of the report beside a limit; hit when the comparison holds, or may hold."""

    word: str
    name: str
    sign: str
    limit: float

    def judge(self, report: Report, before: Report | None = None) -> GateResult:
        """Whether the report's number is beyond the limit."""
        del before
        found = named(report, self.name)
        hits, gaps = [], []
        for metric in found:
            low, high = metric.bounds()
            holds = compared(self.sign, low, high, self.limit)
            name = clean(metric.key.replace("/", "."))
            if holds:
                hits.append(f"{name} = {metric.text()}")
            elif holds is None:
                gaps.append(f"{name}, which {self._gap(report, metric)}")
        if not found:
            gaps = [f"{clean(_dotted(self.name))}, which was not measured"]
        if not hits and not gaps:
            return GateResult(self.word, hit=False)
        first, *others = hits or gaps
        more = f" and {len(others)} more" if others else ""
        return GateResult(self.word, hit=True, reason=first + more)

    def _gap(self, report: Report, metric: Metric) -> str:
        """Why nobody knows whether the comparison holds."""
        if metric.value is None:
            return "was not measured"
        if metric.unknown:
            return f"was not measured for {listed(metric.unknown, most=1, limit=80)}"
        reason = f"is {metric.text()}, not measured far enough to tell"
        looked = report.settings.get(metric.within)
        if isinstance(looked, int) and looked < self.needed:
            reason += f"; measure with --{metric.within} {self.needed} or more"
        return reason

    @property
    def needed(self) -> int:
        """How far must be looked for a count, 0 to N - 1 of N, to tell."""
        if self.sign in ("<", ">="):
            return math.ceil(self.limit)
        return math.floor(self.limit) + 1


@dataclass(frozen=True, slots=True)
class ChangeGate:
    """The change of a number from one report to another, in percent of what it was."""

    word: str
    name: str
    sign: str
    limit: float

    def judge(self, report: Report, before: Report | None = None) -> GateResult:
        """Whether the number changed beyond the limit, or may have."""
        assert before is not None
        old = {metric.key: metric for metric in named(before, self.name)}
        new = {metric.key: metric for metric in named(report, self.name)}
        if not old and not new:
            return self._hit(f"{clean(_dotted(self.name))}, which was not measured")
        results = [
            self._judged(key, old.get(key), new.get(key), before, report)
            for key in dict.fromkeys((*old, *new))
        ]
        return next((r for r in results if r.hit), results[0])

    def _judged(
        self, key: str, old: Metric | None, new: Metric | None, before: Report, after: Report
    ) -> GateResult:
        name = clean(key.replace("/", "."))
        for side, metric in (("BEFORE", old), ("AFTER", new)):
            if metric is None or metric.value is None:
                return self._hit(f"{name}, which {side} has not measured")
        assert old is not None
        assert new is not None
        words = f"{old.text()} -> {new.text()}"
        if other := other_settings(old, new, before, after):
            return self._hit(f"{name} ({words}), {other}")
        if gone := _other_queries(old, before, after):
            return self._hit(f"{name} ({words}), {gone}")
        further = math.isinf(old.value or 0.0) and (old.beyond or math.inf) < _seen(new)
        if further and self.sign in ("<", "<=") and self.limit <= 0:
            # It ended, or was looked at, behind the place where it had no end yet.
            return GateResult(self.word, hit=False, reason=f"{name} ({words}) is no fall")
        (old_low, old_high), (new_low, new_high) = old.bounds(), new.bounds()
        low, high = percent(old_high, new_low), percent(old_low, new_high)
        if old_low == old_high and new_low == new_high:
            low = high = percent(old_low, new_low)
        endless = math.isinf(old.value or 0.0) and math.isinf(new.value or 0.0)
        if endless and old.beyond is not None and new.beyond is not None:
            low = high = percent(old.beyond, new.beyond)  # no end was seen: how far was looked?
        holds = compared(self.sign, min(low, high), max(low, high), self.limit)
        if holds is False:
            return GateResult(self.word, hit=False)
        if holds and endless and old.beyond != new.beyond:
            holds = None
        if holds:
            shown = f"{low:+.4g} %" if low == high else "beyond what was looked at"
            return self._hit(f"{name} {shown} ({words})")
        return self._hit(f"{name} ({words}), not measured far enough to tell")

    def _hit(self, reason: str) -> GateResult:
        return GateResult(self.word, hit=True, reason=reason)


Gate = FindingGate | NumberGate | ChangeGate


def parse_gates(
    words: Iterable[str], *, probes: Sequence[str], queries: Sequence[str], horizon: int
) -> tuple[Gate, ...]:
    """The gates of a scan, or what is wrong with one of them, before any work starts."""
    gates: list[Gate] = []
    for word in words:
        if not _is_comparison(word):
            gate = _of_one_model(parse_finding(word))
            rule = gate.rule
            if rule is not None and (missing := rule.lacks({*probes, *queries, "memory"})):
                raise _not_requested(missing, rule.code, probes, queries)
            gates.append(gate)
            continue
        name, sign, number = _split(word)
        if number.endswith("%"):
            fact = f"--fail-on {clean(word)!r} compares with a percentage, and nothing is before it"
            raise ArgumentError(fact, hint="changes are for memaudit diff BEFORE.json AFTER.json")
        made = NumberGate(word.strip(), name, sign, _number(number, word))
        metric = _declared(name, probes, queries)
        if made.limit < 0 and not metric.signed:
            fact = f"--fail-on {clean(word)!r} cannot tell: {spelled(name)} is never negative"
            raise ArgumentError(fact, hint="give a limit of 0 or more")
        if metric.whole and metric.within == "horizon" and made.needed > horizon:
            fact = f"--fail-on {clean(word)!r} looks beyond the {horizon} lags that are measured"
            raise ArgumentError(fact, hint=f"measure with --horizon {made.needed} or more")
        gates.append(made)
    return tuple(gates)


def _of_one_model(gate: FindingGate) -> FindingGate:
    """The gate, unless its finding is made of families only."""
    if gate.rule is not None and gate.rule.needs == (FAMILY,):
        fact = f"{gate.rule.code} is found on a family of models, not on one"
        raise ArgumentError(fact, hint="give it to memaudit family")
    return gate


def parse_family_gates(words: Iterable[str]) -> tuple[FindingGate, ...]:
    """The gates of a family: levels, and findings that are made of families."""
    gates = tuple(parse_finding(word) for word in words)
    for gate in gates:
        if gate.rule is not None and gate.rule.needs != (FAMILY,):
            fact = f"{gate.rule.code} is found on one model, not on a family"
            raise ArgumentError(fact, hint="give it to memaudit scan")
    return gates


def parse_changes(words: Iterable[str]) -> tuple[Gate, ...]:
    """The gates of a comparison: changes in percent, new findings, and those of a scan on AFTER."""
    gates: list[Gate] = []
    everything = tuple(registry.available("probes"))
    queries = tuple(registry.available("queries"))
    for word in words:
        if _is_comparison(word):
            name, sign, number = _split(word)
            metric = _declared(name, everything, queries)
            kind = ChangeGate if number.endswith("%") else NumberGate
            limit = _number(number.removesuffix("%").strip(), word)
            if limit < 0 and kind is NumberGate and not metric.signed:
                fact = f"--fail-on {clean(word)!r} cannot tell: {spelled(name)} is never negative"
                raise ArgumentError(fact, hint=f"did you mean {clean(word.strip())}%?")
            gates.append(kind(word.strip(), name, sign, limit))
        elif word.strip().lower().startswith(NEW):
            what = word.strip()[len(NEW) :]
            if not what.strip():
                hint = "give a level or a finding: new-warning, new-MA201"
                raise ArgumentError(f"--fail-on {clean(word)} does not say what is new", hint=hint)
            gate = _of_one_model(parse_finding(what, option=word.strip()))
            gates.append(replace(gate, new=True))
        else:
            gates.append(_of_one_model(parse_finding(word)))
    return tuple(gates)


def judged(
    gates: Iterable[Gate], report: Any, before: Report | None = None
) -> tuple[GateResult, ...]:
    """What every gate says, in the order in which they were given.

    An incomplete audit never passes: the exit code of a scan says so, and in files of reports,
    which have none, its open gates do. A comparison has no such exit code: there what was not
    measured hits.
    """
    results = []
    for gate in gates:
        result = gate.judge(report, before)
        certain = spelled(getattr(gate, "name", "")) in CERTAIN
        if not result.hit and before is None and not report.complete:
            result = replace(result, reason=result.reason or INCOMPLETE)
        elif not result.hit and before is not None and not certain:
            both = isinstance(gate, ChangeGate)
            compared_reports = (
                (("BEFORE", before), ("AFTER", report)) if both else (("AFTER", report),)
            )
            partial = " and ".join(side for side, one in compared_reports if not one.complete)
            if partial:
                reason = f"what {partial} did not measure, being incomplete"
                result = replace(result, hit=True, reason=reason)
        results.append(result)
    return tuple(results)


def parse_finding(word: str, *, option: str = "") -> FindingGate:
    """A level, or a finding by code or name; `option` is the word as the user gave it."""
    lowered, given = word.strip().lower(), option or word.strip()
    if lowered in SEVERITIES:
        levels = frozenset(SEVERITIES[SEVERITIES.index(lowered) :])
        return FindingGate(given, severities=levels)
    known = {key.lower(): one for one in all_rules().values() for key in (one.code, one.name)}
    if lowered in known:
        return FindingGate(given, rule=known[lowered])
    numbers = [spelled(metric.name) for metric in declared_metrics().values()]
    if spelled(word) in numbers:
        hint = f'compare it, as in "{lowered}<100" (without blanks in MEMAUDIT_FAIL_ON)'
        raise ArgumentError(f"--fail-on {lowered} is a number, not a finding", hint=hint)
    hint = f"give {', '.join(SEVERITIES)} or a code such as MA102; repeat it for several"
    close = nearest(lowered, [*known, *SEVERITIES, *numbers])
    if close.startswith("did you mean"):
        hint = re.sub(r"\bma(?=\d)", "MA", close)
    if lowered.startswith(NEW) and not option:
        hint = "what is new is for memaudit diff BEFORE.json AFTER.json"
    raise ArgumentError(f"--fail-on knows no level or finding {clean(word)!r}", hint=hint)


def declared_metrics(probes: Iterable[str] | None = None) -> dict[tuple[str, str], Metric]:
    """Every metric that these probes, or all of them, may measure, by probe and name."""
    found = {("", metric.name): metric for metric in OWN}
    for probe in registry.available("probes") if probes is None else probes:
        try:
            result = registry.load(registry.find("probes", probe)).result
        except MachineError:
            continue
        found |= {(probe, metric.name): metric for metric in result.declared}
    return found


def named(report: Report, name: str) -> list[Metric]:
    """The numbers that a name means: the exact one, else all that are spelled alike."""
    plain = name.strip().removeprefix("memaudit/").removeprefix("memaudit.")
    readings: tuple[Callable[[Metric], bool], ...] = (
        lambda m: m.key == plain,
        lambda m: ".".join(filter(None, (_dotted(m.name), clean(m.layer)))) == plain,
        lambda m: _dotted(m.key) == _dotted(plain),
        lambda m: spelled(m.key) == spelled(plain),
    )
    for alike in readings:
        found = [metric for metric in report.numbers() if alike(metric)]
        if found:
            keys = {metric.key for metric in found}
            return [m for m in report.numbers() if {m.key, _SECOND.sub("", m.key)} & keys]
    return []


def compared(sign: str, low: float, high: float, limit: float) -> bool | None:
    """Whether `x sign limit` holds for every x from low to high; None where it depends."""
    if sign in (">", ">=", "!="):
        holds = compared({">": "<=", ">=": "<", "!=": "=="}[sign], low, high, limit)
        return None if holds is None else not holds
    if sign == "==":
        return True if low == high == limit else None if low <= limit <= high else False
    if high < limit or (sign == "<=" and high == limit):
        return True
    return False if low > limit or (sign == "<" and low == limit) else None


def percent(old: float, new: float) -> float:
    """The change in hundredths of what it was; whole numbers that meet a limit meet it exactly."""
    if old == new:
        return 0.0
    if math.isinf(old):
        return -100.0 if math.isfinite(new) else math.copysign(math.inf, new - old)
    if old == 0.0 or math.isinf(new):
        return math.copysign(math.inf, new - old)
    return 100.0 * (new - old) / abs(old)


def _declared(name: str, probes: Sequence[str], queries: Sequence[str]) -> Metric:
    """The declared metric behind a name; one that nothing measures is refused."""
    first = spelled(name).split(".")[0]
    not_run = [q for q in registry.available("queries") if spelled(q) == first and q not in queries]
    wanted = {"memory", *probes} if queries else {*probes}
    requested, every = declared_metrics(wanted), declared_metrics()
    known = {spelled(query) for query in registry.available("queries")}

    def meant(probe: str, metric: Metric) -> bool:
        stars = probe == "memory" and metric.name.startswith("*")
        level = probe or not metric.name.startswith("findings") or first_two in levels
        return bool(metric.matches(name) and level and (not stars or first in known))

    levels = {f"findings.{level}" for level in SEVERITIES}
    first_two = spelled(name)
    for (probe, _), metric in requested.items():
        if meant(probe, metric) and not not_run:
            return metric
    for (probe, _), metric in every.items():
        if meant(probe, metric):
            raise _not_requested(not_run[0] if not_run else probe, spelled(name), probes, queries)
    shown = [
        spelled(metric.name).replace("*", word, 1)
        for metric in every.values()
        for word in (
            (queries or ("NAME",))
            if metric.name.startswith("*")
            else (*SEVERITIES,)
            if metric.name.startswith("findings")
            else ("NAME",)
        )
    ]
    hint = nearest(spelled(name), shown)
    raise ArgumentError(f"--fail-on knows no number {clean(name)!r}", hint=hint)


def _not_requested(
    missing: str, wanted: str, probes: Sequence[str], queries: Sequence[str]
) -> ArgumentError:
    """The error for a gate on what nobody measures; naming one replaces the default ones."""
    if missing in registry.available("queries"):
        asked = f"the query {clean(missing)}"
        names, option = (*queries, missing), "--query"
    else:
        asked = clean(missing)
        names, option = (*probes, missing), "--probe"
    fact = f"{asked} is not asked for, and without it there is no {clean(wanted)}"
    words = " ".join(f"{option} {clean(name)}" for name in names)
    return ArgumentError(fact, hint=f"{option} replaces the default ones, so give {words}")


def other_settings(old: Metric, new: Metric, before: Report, after: Report) -> str:
    """Why two numbers are not comparable: the settings that shape them, or the inputs, differ."""
    if old.fed != new.fed:
        fed = (clean(one.fed) or "inputs of memaudit" for one in (old, new))
        return f"measured on other inputs: {' -> '.join(fed)}"
    names: tuple[str, ...] = ()
    if old.within or old.holder:
        names = ("normalization", "baseline")
        names += ("epsilon",) if old.name.endswith("horizon") else ()
    if old.fed:  # a text that was given and not fed shapes nothing
        names += ("data", "pad", "text") if "text" in old.fed else ("data", "pad")
    for name in names:
        usual = OPTIONS[name].default
        settings = (one.settings.get(name, usual) for one in (before, after))
        first, second = settings
        if first != second:
            return f"measured with other settings: {name} {clean(first)} -> {clean(second)}"
    return ""


def _other_queries(metric: Metric, before: Report, after: Report) -> str:
    """Why two numbers of a model are not comparable: one comes from queries the other lacks."""
    if metric.layer or not metric.holder:
        return ""
    old, new = (
        {m.key.removesuffix(f"/{metric.name}") for m in one.numbers() if _is_of(m, metric.name)}
        for one in (before, after)
    )
    for side, lacking in (("AFTER", old - new), ("BEFORE", new - old)):
        if lacking:
            return f"not measured in {side}: {listed(sorted(lacking), most=1)}"
    return ""


def _is_of(metric: Metric, name: str) -> bool:
    return not metric.layer and metric.name.endswith(f"/{name}")


def _seen(metric: Metric) -> float:
    """The number, or how far was looked where it lies beyond that."""
    value = metric.value or 0.0
    return value if metric.beyond is None or math.isfinite(value) else metric.beyond


def _is_comparison(word: str) -> bool:
    return any(sign in word for sign in "<>=")


def _split(word: str) -> tuple[str, str, str]:
    """Name, operator and number, the last as it was written."""
    match = _COMPARED.fullmatch(word.strip())
    name, sign, number = match.group("name", "sign", "number") if match else ("", "", "")
    if not name or not number:
        raise ArgumentError(f"--fail-on {clean(word)!r} wants NAME<NUMBER", hint=f"as in {EXAMPLE}")
    if sign in ("=", "=<", "=>"):
        wanted = {"=": "==", "=<": "<=", "=>": ">="}[sign]
        raise ArgumentError(f"--fail-on {clean(word)!r} has no operator", hint=f"write {wanted}")
    return name, sign, number


def _number(text: str, word: str) -> float:
    """The limit; a number without end is no limit."""
    value = float(text) if _NUMBER.fullmatch(text) else math.nan
    if not math.isfinite(value):
        fact = f"--fail-on {clean(word)!r} compares with {clean(text)!r}, which is no number"
        raise ArgumentError(fact, hint="write it as 1024 or 1e-4")
    return value


def _dotted(name: str) -> str:
    return name.strip().removeprefix("memaudit/").replace("/", ".")
