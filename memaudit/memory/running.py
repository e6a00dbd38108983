"""How the queries are run on a model."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from memaudit import registry
from memaudit.contracts import AbstractQuery, AbstractTokenQuery, Circumstances, Tools
from memaudit.memory.result import AssumptionsResult, Curve, Facts, MemoryResult
from memaudit.numerics import signals
from memaudit.query_run import QueryRun
from memaudit.rig import Rig
from memaudit.texts import read_text
from memaudit.token_curve import token_curve

if TYPE_CHECKING:
    from memaudit.contracts import AbstractSubject, Setting

TRIAL_STEPS = 32
#: Different answers to noise from which on their digits can be told.
DIFFERENT = 32


def remember(subject: AbstractSubject, setting: Setting, memory: MemoryResult) -> dict[str, Curve]:
    """The curves of a subject under the vector queries of a result, with few probes."""
    queries = [registry.build("queries", name) for name in memory.requested]
    vectors = [query for query in queries if isinstance(query, AbstractQuery)]
    curves: dict[str, Curve] = {}
    if vectors and memory.facts is not None:
        rig = subject if isinstance(subject, Rig) else Rig(subject)
        quick = replace(setting, level="quick")
        run = QueryRun(rig, quick, memory.facts, "", lambda *_: None)
        run.measure_within(vectors, curves)
    return curves


def facts_of(subject: Rig, assumed: AssumptionsResult) -> Facts:
    """What the assumptions and a first pass say about how the queries must be run."""
    outputs, precision = try_out(subject)
    alone = [a.residual for a in assumed.items if a.name == "rows-independent" and a.holds]
    inside = max((residual for residual in alone if residual is not None), default=0.0)
    return Facts(
        causal=subject.pooled or assumed.holds("causal"),
        linear=assumed.holds("linear"),
        outputs=outputs,
        rounding=max(precision, inside),
    )


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


def token_curve_of(
    subject: Rig, query: AbstractTokenQuery, setting: Setting, facts: Facts, tools: Tools
) -> Curve:
    known = Circumstances(facts.causal, facts.rounding, read_text(setting.text))
    readings = query.read(subject, setting, known, tools.tick)
    return token_curve(query, readings, setting, facts.rounding)
