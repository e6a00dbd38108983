"""Findings: a rule is a function beside the result that it judges, with a permanent code.

    @rule("MA201", "near-boundary", "warning", needs=("spectrum",))
    def near_boundary(report):
        '''A mode stands within 1e-4 of the boundary ... (what `memaudit explain` prints)'''
        for layer in report.spectrum:
            ...
            yield near_boundary.finding(message, advice, where=layer.where)

A result lists its rules in `Result.rules`; a plugin may register further ones, by their codes, in
the entry-point group `memaudit.findings`.
"""

from __future__ import annotations

import inspect
import shlex
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from memaudit import registry
from memaudit.errors import MachineError, clean
from memaudit.report import SEVERITIES, Finding

if TYPE_CHECKING:
    from collections.abc import Collection

    from memaudit.report import Report

#: What a rule needs that is said of several models together, never of one.
FAMILY = "family"
#: The probes and queries without which a rule cannot tell, or a function of what is measured that
#: names the one that is missing, "" when none is.
Needs = tuple[str, ...] | Callable[["Collection[str]"], str]


@dataclass(frozen=True, slots=True)
class Rule:
    """One finding: code, name, severity, what must be measured, and the function that judges.

    `milder` is the severity of its milder cases, "" where there are none. Law: without what it
    `needs` a rule finds nothing, and a gate on it is refused.
    """

    code: str
    name: str
    severity: str
    check: Callable[[Any], Iterable[Finding]]
    needs: Needs = ()
    milder: str = ""

    @property
    def explanation(self) -> str:
        """What `memaudit explain` prints: the docstring of the function, as one paragraph."""
        return " ".join(inspect.cleandoc(self.check.__doc__ or "").split())

    @property
    def summary(self) -> str:
        """The first sentence of the explanation."""
        return inspect.cleandoc(self.check.__doc__ or "").partition("\n")[0]

    @property
    def severities(self) -> str:
        """How grave a finding may be, in words: "error or warning"."""
        return " or ".join(filter(None, (self.severity, self.milder)))

    def finding(self, message: str, advice: str, *, where: str = "", severity: str = "") -> Finding:
        """A finding of this rule."""
        return Finding(self.code, self.name, severity or self.severity, message, advice, where)

    def lacks(self, measured: Collection[str]) -> str:
        """The probe or query that is missing among those measured, "" when the rule can tell."""
        if callable(self.needs):
            return self.needs(measured)
        return next((name for name in self.needs if name not in measured), "")


def rule(
    code: str, name: str, severity: str, *, needs: Needs = (), milder: str = ""
) -> Callable[[Callable[[Any], Iterable[Finding]]], Rule]:
    """Make a rule of the function below; its docstring is the explanation."""
    return lambda check: Rule(code, name, severity, check, needs, milder)


def all_rules() -> dict[str, Rule]:
    """Every rule by its code: of the audit, of every probe's result, and of plugins alone."""
    found = {one.code: one for one in AUDIT_RULES}
    for kind in ("probes", "findings"):
        for name in registry.available(kind):
            try:
                loaded: Any = registry.load(registry.find(kind, name))
            except MachineError:  # a plugin that does not import is named by `memaudit list`
                continue
            for one in loaded.result.rules if kind == "probes" else [loaded]:
                found[one.code] = one
    return dict(sorted(found.items()))


def judge(report: Any, *, family: bool = False) -> tuple[Finding, ...]:
    """Every finding about a report, or a family of models: the gravest first, then by code.

    A rule that raises is named in a finding of its own; the others still judge.
    """
    found: list[Finding] = []
    for one in all_rules().values():
        if (one.needs == (FAMILY,)) == family:
            try:
                with registry.calling("findings", one.code, "failed to judge"):
                    found.extend(one.check(report))
            except MachineError as error:
                found.append(
                    Finding(error.code, "broken-rule", "warning", error.fact, error.hint, one.code)
                )
    return tuple(sorted(found, key=lambda f: (-SEVERITIES.index(f.severity), f.code, f.where)))


def unmet(one: Rule, report: Report) -> str:
    """Why a rule could not tell anything about a report, "" when it could."""
    if one.needs == (FAMILY,):
        return "this is found on a family of models, by memaudit family"
    requested = [
        str(name)
        for kind in ("queries", "probes")
        if isinstance(report.settings.get(kind), list | tuple)
        for name in report.settings[kind]
    ]
    measured = {*report.results, *(n for r in report.results.values() for n in r.measured())}
    missing = one.lacks(measured)
    if not missing:
        return ""
    return f"{missing} was {'not measured' if missing in requested else 'not asked for'}"


#: A verdict about decay of less confidence is a guess, on which no finding rests.
SURE = 0.5
#: How the note of a subject begins whose folder is that of a retrofit.
BEHIND_FORM = "recurrent weights behind the form"


def retrofit_command(report: Report, *, reparam: str = "best", project: bool = False) -> str:
    """The command that puts the recurrent weights of what was audited into a stable form.

    "" where a retrofit has done so. `project` is for modes that no stable form reaches.
    """
    if any(note.startswith(BEHIND_FORM) for note in report.subject.notes):
        return ""
    source = report.subject.source
    if not report.subject.sha256 or source.isidentifier():  # it lives in Python only
        return f"`memaudit.retrofit(module, reparam={reparam!r}{', project=True' * project})`"
    words = ["memaudit", "retrofit", clean(source), "--reparam", reparam]
    words += ["--project"] * project + ["--out", "DIR"]
    return f"`{shlex.join(words)}`"


#: Parameters that a forward pass skips by design (a spare embedding row) stay below this share.
COVERED = 0.999
#: Beyond this share the rest is a head or the like.
NEARLY = 0.9


@rule("MA001", "partial-audit", "warning")
def partial_audit(report: Report) -> Iterable[Finding]:
    """The audit stopped before everything that was asked for had been measured.

    It was interrupted, or a step failed. What had been measured by then is in the report and is
    right as far as it goes. Queries that are missing were not run; curves marked as interrupted
    rest on fewer probes, so their supremum is a weaker lower bound. Do not compare a partial report
    with a complete one: run the audit again, with --quick or a smaller --horizon when time is
    short.
    """
    if report.complete:
        return
    names = [n for r in report.results.values() for n in r.measured()]
    reasons = "; ".join(f"{e.get('code', '')} {e.get('message', '')}" for e in report.errors)
    advice = "run it again; with --quick or a smaller --horizon it takes less time"
    if report.errors and all(e.get("code") != "E_MEMORY" for e in report.errors):
        advice = "see to the reason (--debug shows more of it), and run it again"
    fact = f"the report is not complete; kept: {', '.join(names) or 'no curve'}"
    yield partial_audit.finding(fact + (f"; reason: {reasons}" if reasons else ""), advice)


@rule("MA002", "partly-covered", "warning", milder="note")
def partly_covered(report: Report) -> Iterable[Finding]:
    """The audited computation uses only a share of the parameters in the source.

    The rest was not run. That happens when a checkpoint holds layers whose wiring it does not state
    (embeddings, heads, attention between recurrent layers). The verdict is about the part that was
    run, and the whole model may remember for longer or for shorter. To audit all of it, use the
    options of the adapter (encoder=NAME, head=NAME, output=logits, layers=all), or build the model
    in Python and wrap it: memaudit.wrap(model, input_size=...).
    """
    if report.settings.get("weights_only"):
        return
    share = report.subject.coverage
    if share >= COVERED:
        return
    yield partly_covered.finding(
        f"the audit ran {100 * share:.1f} % of the {report.subject.parameters:,} parameters; "
        "the rest was not run",
        "read the verdict as one about that part; the options of the adapter (memaudit list "
        "adapters) may run more of it, memaudit.wrap in Python runs all of it",
        # A head that reads the states is no memory: a small share is worth a note only.
        severity="note" if share >= NEARLY else "",
    )


@rule("MA003", "assumed-settings", "note")
def assumed_settings(report: Report) -> Iterable[Finding]:
    """Some settings are not in the source and were taken by default.

    A checkpoint holds weights, and rarely everything that is needed to run them: the nonlinearity
    of a plain RNN or the order of the gates cannot be read from tensors. What the source does not
    state was taken by default, and each value stands in the report with its reason. A wrong default
    gives the memory of another model. Compare the values with the code that trained the model, and
    set the wrong ones with --set KEY=VALUE.
    """
    assumed = report.subject.assumed
    if assumed:
        values = "; ".join(f"{key}: {reason.split(' (')[0]}" for key, reason in assumed.items())
        count = "1 setting was" if len(assumed) == 1 else f"{len(assumed)} settings were"
        yield assumed_settings.finding(
            f"{count} assumed: {values}",
            "look at the assumed settings, and set what is wrong with --set KEY=VALUE",
        )


@rule("MA004", "memory-shortage", "note")
def memory_shortage(report: Report) -> Iterable[Finding]:
    """The machine ran out of memory, and the audit went on in smaller pieces.

    A batch of sequences did not fit into the memory of the machine or of its accelerator, so it was
    halved, as often as it took, and the audit went on. Nothing was left out: the same sequences
    were fed, in more passes. For a model that treats the rows of a batch independently, a row alone
    and in a batch differ by rounding only: the numbers agree with those of a larger machine to
    about the floor of the curves, which may be higher, and the audit takes longer. Where the rows
    depend on each other, or where that could not be tested because only one row fitted at a time,
    the curves are those of smaller batches. More memory, another --device, --quick or a smaller
    --horizon avoid it.
    """
    fact = report.environment.get("memory", "")
    if not fact:
        return
    rows = [a.holds for a in getattr(report, "assumptions", ()) if a.name == "rows-independent"]
    if rows and all(rows):
        advice = "the numbers are sound; more memory, --quick or a smaller --horizon is faster"
    else:
        fact += "; it is not known whether the rows of a batch are independent"
        advice = "give it more memory, --quick or a smaller --horizon: batch sizes may matter"
    yield memory_shortage.finding(fact, advice)


@rule("MA007", "budget-used-up", "note")
def budget_used_up(report: Report) -> Iterable[Finding]:
    """The budget ended before everything that was asked for had been measured.

    An audit with --budget measures what is worth most first: memory in use, then the supremum over
    larger and larger inputs, then the rest. What stands in the report is right, with fewer
    sequences and probes than without a budget: intervals are wider, a supremum is a weaker lower
    bound, and a curve may have fewer lags. What was left out is named. A budget in tokens gives the
    same numbers again; one in seconds depends on the machine.
    """
    cut = report.settings.get("left_out")
    if cut:
        measured = ", ".join(name for r in report.results.values() for name in r.measured())
        yield budget_used_up.finding(
            f"the budget of {clean(report.settings.get('budget'))} was used up; cut short or left "
            f"out: {', '.join(map(clean, cut))}; measured: {measured or 'no curve'}",
            "give a larger --budget to measure the rest",
        )


AUDIT_RULES = (partial_audit, partly_covered, assumed_settings, memory_shortage, budget_used_up)
