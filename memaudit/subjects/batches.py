"""A subject whose answers are checked, in batches that are halved when memory runs short."""

from __future__ import annotations

import logging
import math
import time
from typing import TYPE_CHECKING, Any

import torch

from memaudit import registry
from memaudit.devices import release_memory, shortage
from memaudit.errors import MachineError, OutOfBudget, SourceError
from memaudit.faults import step
from memaudit.interfaces import AbstractSubject, Budget

if TYPE_CHECKING:
    from collections.abc import Callable

_LOG = logging.getLogger("memaudit")
#: What is the subject's own, whatever the size of a batch.
FORWARDED = (
    *("identity", "input_size", "pooled", "device", "dtype", "longest", "advertised"),
    *("vocabulary", "unknown", "tokens_of", "framed", "word_of", "natural_inputs", "weights"),
    *("layers", "spectra", "linear_parts", "dynamics", "perturbable", "parts", "live_modules"),
)


class Meter:
    """What an audit has fed to its models, and what is left of its budget.

    A budget of tokens is kept to the token. One of seconds becomes tokens by the pace of the
    largest pass so far: small passes cost by calls, not by tokens.
    """

    def __init__(self, budget: Budget | None = None) -> None:
        self.budget = budget or Budget()
        #: Steps of all sequences that were fed so far.
        self.fed = 0
        #: What was measured with less than was wanted, for want of budget.
        self.shortened: list[str] = []
        self._started = time.perf_counter()
        self._largest, self._pace = 0, math.inf
        self.end = self.budget

    def used(self) -> Budget:
        """What the audit has cost so far."""
        return Budget(time.perf_counter() - self._started, self.fed)

    def allow(self, share: float, end: Budget | None = None) -> Budget:
        """Where the next stage ends that may use a share of what is left until `end`."""
        used, end = self.used(), end or self.budget
        self.end = Budget(
            used.seconds + share * (end.seconds - used.seconds),
            used.tokens + share * (end.tokens - used.tokens),
        )
        return self.end

    @property
    def left(self) -> float:
        """Tokens that this stage may still feed."""
        used = self.used()
        seconds = self.end.seconds - used.seconds
        by_time = seconds if math.isinf(seconds) else max(seconds, 0.0) * self._pace
        return min(self.end.tokens - used.tokens, by_time)

    def seconds(self, tokens: float) -> float:
        """How long it takes to feed so many tokens; 0 before anything was fed."""
        return tokens / self._pace

    def check(self) -> None:
        """Raise when the time of this stage is over."""
        if self.used().seconds > self.end.seconds:
            raise OutOfBudget

    def count(self, tokens: int, seconds: float) -> None:
        """Note a pass."""
        self.fed += tokens
        if tokens >= self._largest:
            self._largest, self._pace = tokens, tokens / max(seconds, 1e-9)


class BatchedSubject(AbstractSubject):
    """Another subject, whose batches are halved when memory runs short.

    Rows do not depend on each other, so an answer in pieces differs from one in a batch by
    rounding. The size that worked is kept: the same failure is not paid for twice. `part` is the
    name of the subject in its host, "" for a whole model.
    """

    def __init__(
        self, subject: AbstractSubject, meter: Meter | None = None, part: str = ""
    ) -> None:
        self.subject = subject
        self.part = part
        self.meter = meter or Meter()
        for name in FORWARDED:
            setattr(self, name, getattr(subject, name))
        #: Rows times steps of the largest pass that fits; None while memory suffices.
        self.room: int | None = None
        #: Whether a batch was ever answered in pieces: then rows were not seen side by side.
        self.split = False

    def __getattr__(self, name: str) -> Any:
        """What else the subject has, for probes that know its kind."""
        if name == "subject" or name.startswith("__"):  # a copy in the making has no subject yet
            raise AttributeError(name)
        return getattr(self.subject, name)

    def respond_with_hook(
        self, inputs: torch.Tensor, hook: Callable[[str, torch.Tensor], None]
    ) -> torch.Tensor:
        """The subject's answer in one piece; a MemoryError goes up to whoever chose the rows."""
        with shortage():
            return self._answer(inputs, hook)

    def respond(self, inputs: torch.Tensor) -> torch.Tensor:
        """The subject's answer, in pieces where it does not fit as a whole."""
        rows = len(inputs)
        if self.room is not None:
            rows = max(1, min(rows, self.room // inputs.shape[1]))
        while (answer := self._in_pieces(inputs, rows)) is None:
            rows = self.shrink(rows, inputs.shape[1])
        return answer

    def _in_pieces(self, inputs: torch.Tensor, rows: int) -> torch.Tensor | None:
        """The answer, or None when so many rows at a time do not fit.

        A MemoryError goes up where the answers together are too much: fewer rows in a piece would
        not help, fewer sequences in a pass may.
        """
        pieces: list[torch.Tensor] = []
        for piece in inputs.split(rows):
            try:
                with shortage():
                    pieces.append(self._answer(piece))
            except MemoryError:
                if rows > 1:
                    return None
                if pieces:
                    raise
                raise too_little_memory(inputs.shape[1]) from None
        self.split = self.split or len(pieces) > 1
        with shortage():
            return pieces[0] if len(pieces) == 1 else torch.cat(pieces)

    def shrink(self, rows: int, steps: int) -> int:
        """Half of the rows; what fits is remembered for every later pass."""
        release_memory(self.device)
        half = max(1, rows // 2)
        self.room = half * steps
        _LOG.warning("memory ran short: going on with %d sequences of %d steps", half, steps)
        return half

    @property
    def shortage_text(self) -> str:
        """A sentence when memory ran short, else nothing."""
        if self.room is None:
            return ""
        return f"memory ran short: at most {self.room} steps of all sequences went into one pass"

    def _answer(
        self, inputs: torch.Tensor, hook: Callable[[str, torch.Tensor], None] | None = None
    ) -> torch.Tensor:
        step("measure.pass")
        tokens = inputs.shape[0] * inputs.shape[1]
        if tokens > self.meter.left:
            raise OutOfBudget
        adapter, inner, started = self.identity.adapter, self.subject, time.perf_counter()
        with registry.calling("adapters", adapter, "failed to answer"), shortage():
            answer = (
                inner.respond(inputs) if hook is None else inner.respond_with_hook(inputs, hook)
            )
        self.meter.count(tokens, time.perf_counter() - started)
        check_answer(answer, inputs, pooled=self.pooled)
        return answer


def batched(subject: AbstractSubject) -> BatchedSubject:
    """The subject with batches that are halved when memory runs short."""
    return subject if isinstance(subject, BatchedSubject) else BatchedSubject(subject)


def check_answer(answer: Any, inputs: torch.Tensor, *, pooled: bool) -> None:
    """Refuse an answer that is no tensor of floats, or has another shape than it must."""
    lead = tuple(inputs.shape[:1] if pooled else inputs.shape[:2])
    good = isinstance(answer, torch.Tensor) and answer.is_floating_point() and answer.numel()
    if good and answer.ndim == len(lead) + 1 and tuple(answer.shape[:-1]) == lead:
        return
    got = tuple(answer.shape) if isinstance(answer, torch.Tensor) else type(answer).__name__
    raise SourceError(
        "E_UNSUPPORTED",
        f"the model answered an input of {tuple(inputs.shape)} by {got}",
        hint="a subject answers by floats (B, T, M), or (B, M) when pooled",
        stage="respond",
    )


def too_little_memory(steps: int) -> MachineError:
    """The error when not even the sequences of one probe fit."""
    return MachineError(
        "E_MEMORY",
        f"the answers to one probe, sequences of {steps} steps, do not fit into memory",
        hint="try a smaller --horizon, or a machine with more memory",
        stage="measure",
    )
