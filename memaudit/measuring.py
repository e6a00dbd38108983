"""Running probes and queries over a subject, or over every part of a host."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch

from memaudit import registry
from memaudit.bench import Facts
from memaudit.contracts import AbstractQuery, AbstractTokenQuery, Circumstances, Tools
from memaudit.devices import shortage
from memaudit.errors import MachineError, MemauditError
from memaudit.numerics import signals
from memaudit.probes.assumptions import Assumptions
from memaudit.query_run import QueryRun
from memaudit.results import Assumption
from memaudit.rig import Rig
from memaudit.strangers import check_query, check_result, measured_by
from memaudit.texts import read_text
from memaudit.token_curve import token_curve

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from memaudit.contracts import AbstractProbe, AbstractSubject, Setting
    from memaudit.results import Curve

    AnyQuery = AbstractQuery | AbstractTokenQuery

    Progress = Callable[[str, int, int], None]

TRIAL_STEPS = 32
#: Different answers to noise from which on their digits can be told.
DIFFERENT = 32


@dataclass(slots=True)
class Measurement:
    """What has been measured: curves by part and query, the other fields of the report.

    `hidden` holds the curves of the hidden states by layer and query. `shortage` is a sentence
    when memory ran short and smaller batches were fed.
    """

    curves: dict[str, dict[str, Curve]] = field(default_factory=dict)
    hidden: dict[str, dict[str, Curve]] = field(default_factory=dict)
    fields: dict[str, Any] = field(default_factory=dict)
    errors: list[dict[str, str]] = field(default_factory=list)
    shortage: str = ""
    interrupted: bool = False

    def failed(self, error: MemauditError, *, where: str) -> None:
        """Note what went wrong; the rest is measured all the same."""
        self.errors.append({**error.to_dict(), "where": where})


def measure(
    subject: AbstractSubject,
    queries: Sequence[AnyQuery],
    probes: Sequence[AbstractProbe],
    setting: Setting,
    progress: Progress,
    *,
    patience: float | None = None,
) -> Measurement:
    """Everything that was asked for; what is there is kept when a step fails or Ctrl-C ends it.

    `patience` is how long, in seconds, one probe from outside may take.
    """
    found = Measurement()
    parts = dict(subject.parts()) or {"": subject}
    for number, (name, part) in enumerate(parts.items()):
        rig = Rig(part)
        try:
            place = f"{name} ({number + 1} of {len(parts)})" if len(parts) > 1 else name
            run = PartRun(name, place, rig, setting, progress, patience, found)
            with _enough_memory():
                run.measure(queries, probes)
        except KeyboardInterrupt:
            found.interrupted = True
            break
        except MemauditError as error:
            if len(parts) == 1 and not any(found.curves.values()):
                raise
            found.failed(error, where=name)
        finally:
            found.shortage = found.shortage or rig.shortage_told()
    return found


@dataclass(frozen=True, slots=True)
class PartRun:
    """All that is asked of one part."""

    name: str
    #: How the progress calls it.
    place: str
    rig: Rig
    setting: Setting
    progress: Progress
    patience: float | None
    found: Measurement

    def measure(self, queries: Sequence[AnyQuery], probes: Sequence[AbstractProbe]) -> None:
        """Assumptions first, for they decide how the queries run; strangers come last."""
        label = f"{self.place}: " if self.place else ""
        outputs, precision = try_out(self.rig)
        self.progress(f"{label}assumptions", 0, 1)
        assumed = Assumptions().measure(self.rig, self.setting)
        if self.rig.split:
            assumed = tuple(map(_side_by_side, assumed))
        self.progress(f"{label}assumptions", 1, 1)
        ours = [p for p in probes if registry.stranger("probes", p.name) is None]
        facts = Facts(
            causal=self.rig.pooled or _holds(assumed, "causal"),
            linear=_holds(assumed, "linear"),
            outputs=outputs,
            rounding=max(precision, _hidden_rounding(assumed)),
        )
        for probe in (p for p in ours if not p.late):
            alike = isinstance(probe, Assumptions)
            self._keep(probe, assumed if alike else self._probe(probe, queries, facts, label))
        if queries:
            self._ask(queries, facts, label)
        for probe in (p for p in ours if p.late):
            try:
                self._keep(probe, self._probe(probe, queries, facts, label))
            except MemauditError as error:
                self.found.failed(error, where=self.name)
        for probe in (p for p in probes if p not in ours):
            self._try_stranger(probe)

    def _probe(
        self, probe: AbstractProbe, queries: Sequence[AnyQuery], facts: Facts, label: str
    ) -> Any:
        """The result of one of our probes, which shows its progress and may ask the queries."""
        stage = f"{label}{probe.name}"
        vectors = [
            q
            for q in queries
            if isinstance(q, AbstractQuery) and registry.stranger("queries", q.name) is None
        ]

        def remember(subject: AbstractSubject) -> dict[str, Curve]:
            curves: dict[str, Curve] = {}
            if vectors:
                rig = subject if isinstance(subject, Rig) else Rig(subject)
                quick = replace(self.setting, level="quick")
                run = QueryRun(rig, quick, facts, stage, lambda *_: None)
                run.measure_within(vectors, curves)
            return curves

        tools = Tools(lambda done, of: self.progress(stage, done, of), remember)
        self.progress(stage, 0, 1)
        result = probe.measure_with(self.rig, self.setting, tools)
        self.progress(stage, 1, 1)
        return result

    def _ask(self, queries: Sequence[AnyQuery], facts: Facts, label: str) -> None:
        """Our queries share their passes; those about tokens and strangers' have their own."""
        curves = self.found.curves.setdefault(self.name, {})
        run = QueryRun(self.rig, self.setting, facts, label, self.progress, self.found.hidden)
        ours = [q for q in queries if registry.stranger("queries", q.name) is None]
        vectors = [q for q in ours if isinstance(q, AbstractQuery)]
        if vectors:
            run.measure_within(vectors, curves)
        for query in (q for q in ours if isinstance(q, AbstractTokenQuery)):
            curves[query.name] = self._ask_in_tokens(query, facts, label)
        for query in (q for q in queries if q not in ours):
            try:
                self._ask_stranger(query, run, curves)
            except MemauditError as error:
                self.found.failed(error, where=self.name)

    def _ask_stranger(self, query: AnyQuery, run: QueryRun, curves: dict[str, Curve]) -> None:
        if isinstance(query, AbstractTokenQuery):
            with registry.calling("queries", query.name, "failed"):
                curves[query.name] = self._ask_in_tokens(query, run.facts, run.label)
            return
        quick = registry.PATIENCE if self.patience is None else self.patience
        with registry.calling("queries", query.name, "failed", seconds=quick):
            check_query(query, self.rig, self.setting)
        with registry.calling("queries", query.name, "failed"):
            run.measure_within([query], curves)

    def _ask_in_tokens(self, query: AbstractTokenQuery, facts: Facts, label: str) -> Curve:
        known = Circumstances(facts.causal, facts.rounding, read_text(self.setting.text))
        stage = f"{label}{query.name}"
        self.progress(stage, 0, 1)
        readings = query.read(
            self.rig, self.setting, known, lambda done, of: self.progress(stage, done, of)
        )
        return token_curve(query, readings, self.setting, facts.rounding)

    def _try_stranger(self, probe: AbstractProbe) -> None:
        self.progress(probe.name, 0, 1)
        try:
            result = measured_by(probe, self.rig, self.setting, seconds=self.patience)
            check_result(probe, result)
            self._keep(probe, result)
        except MemauditError as error:
            self.found.failed(error, where=self.name)
        self.progress(probe.name, 1, 1)

    def _keep(self, probe: AbstractProbe, result: Any) -> None:
        """Store a result; tuples of records from several parts stand behind each other."""
        fields, name = self.found.fields, probe.fills
        if isinstance(result, tuple):
            if self.name:
                result = tuple(
                    replace(r, where=self.name) if hasattr(r, "where") else r for r in result
                )
            fields[name] = fields.get(name, ()) + result
        else:
            if self.name and hasattr(result, "where"):
                result = replace(result, where=self.name)
            before: Any = fields.get(name)
            fields[name] = before.joined(result) if hasattr(before, "joined") else result


@contextmanager
def _enough_memory() -> Iterator[None]:
    """A shortage that nobody could help becomes an error that leaves the other parts alone."""
    try:
        with shortage():
            yield
    except MemoryError:
        raise MachineError(
            "E_MEMORY",
            "the machine has too little memory for this",
            hint="try --quick or a smaller --horizon",
            stage="measure",
        ) from None


def _side_by_side(assumption: Assumption) -> Assumption:
    """Rows that were answered one by one say nothing about rows in a batch."""
    if assumption.name != "rows-independent":
        return assumption
    note = "memory ran short: the rows could not be answered side by side"
    return replace(assumption, holds=None, residual=None, note=note)


def try_out(subject: Rig) -> tuple[int, float]:
    """The width M of the answer and its rounding, from a trial that shows a wrong shape early."""
    width, steps = subject.input_size or 1, min(TRIAL_STEPS, subject.longest or TRIAL_STEPS)
    trial = torch.randn(2, steps, width, generator=signals.seeded(0), dtype=torch.float64)
    answer = subject.respond(trial.to(subject.device, subject.dtype))
    stated = max(torch.finfo(dtype).eps for dtype in (subject.dtype, answer.dtype))
    return int(answer.shape[-1]), max(stated, hidden_rounding(answer))


def hidden_rounding(answers: torch.Tensor) -> float:
    """The rounding of the coarsest dtype that holds every answer exactly, 0 if none does.

    A model may compute in fewer digits than it answers in. A few different numbers, such as those
    of a switch, fit into any dtype and tell nothing.
    """
    values = answers.detach().flatten().cpu()
    if len(values.unique()) < DIFFERENT:
        return 0.0
    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        if torch.equal(values.to(dtype).to(values.dtype), values):
            return torch.finfo(dtype).eps
    return 0.0


def _hidden_rounding(assumptions: Sequence[Assumption]) -> float:
    """Rounding inside the model, seen where a row alone and in a batch differ by a little."""
    found = [a.residual for a in assumptions if a.name == "rows-independent" and a.holds]
    return max((residual for residual in found if residual is not None), default=0.0)


def _holds(assumptions: Sequence[Assumption], name: str) -> bool:
    return any(a.name == name and a.holds for a in assumptions)
