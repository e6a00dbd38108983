"""A subject on the test rig: its answers are checked, and a shortage of memory is survived."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import torch

from memaudit import registry
from memaudit.contracts import AbstractSubject
from memaudit.devices import release_memory, shortage
from memaudit.errors import MachineError, SourceError
from memaudit.faults import step

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from memaudit.contracts import AbstractDynamics, AbstractLinearPart, AbstractPerturbable
    from memaudit.spectrum.result import LayerSpectrum as Spectrum

_LOG = logging.getLogger("memaudit")


class Rig(AbstractSubject):
    """Another subject, whose batches are halved when memory runs short.

    Rows do not depend on each other, so an answer in pieces differs from one in a batch by
    rounding. The size that worked is kept: the same failure is not paid for twice.
    """

    def __init__(self, subject: AbstractSubject) -> None:
        self.subject = subject
        self.identity = subject.identity
        self.input_size = subject.input_size
        self.pooled = subject.pooled
        self.device = subject.device
        self.dtype = subject.dtype
        self.longest = subject.longest
        self.advertised = subject.advertised
        self.vocabulary = subject.vocabulary
        self.unknown = subject.unknown
        #: Rows times steps of the largest pass that fits; None while memory suffices.
        self.room: int | None = None
        #: Whether a batch was ever answered in pieces: then rows were not seen side by side.
        self.split = False

    def __getattr__(self, name: str) -> Any:
        """What else the subject has, for probes that know its kind."""
        if name == "subject" or name.startswith("__"):  # a copy in the making has no subject yet
            raise AttributeError(name)
        return getattr(self.subject, name)

    def natural_inputs(self, count: int, generator: torch.Generator) -> torch.Tensor | None:
        """Those of the subject."""
        return self.subject.natural_inputs(count, generator)

    def weights(self) -> Mapping[str, torch.Tensor]:
        """Those of the subject."""
        return self.subject.weights()

    def layers(self) -> tuple[str, ...]:
        """Those of the subject."""
        return self.subject.layers()

    def tokens_of(self, text: str) -> torch.Tensor | None:
        """Those of the subject's tokenizer."""
        return self.subject.tokens_of(text)

    def framed(self, tokens: torch.Tensor) -> torch.Tensor:
        """As the subject's tokenizer does it."""
        return self.subject.framed(tokens)

    def word_of(self, token: int) -> str:
        """That of the subject's tokenizer."""
        return self.subject.word_of(token)

    def spectra(self, inputs: torch.Tensor | None = None) -> tuple[Spectrum, ...]:
        """Those of the subject."""
        return self.subject.spectra(inputs)

    def linear_parts(self) -> Mapping[str, AbstractLinearPart]:
        """Those of the subject."""
        return self.subject.linear_parts()

    def dynamics(self) -> Mapping[str, AbstractDynamics]:
        """Those of the subject."""
        return self.subject.dynamics()

    def perturbable(self) -> AbstractPerturbable | None:
        """That of the subject."""
        return self.subject.perturbable()

    def listen(
        self, inputs: torch.Tensor, hear: Callable[[str, torch.Tensor], None]
    ) -> torch.Tensor:
        """The subject's answer in one piece; a MemoryError goes up to whoever chose the rows."""
        with shortage():
            return self._answer(inputs, hear)

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

    def shortage_told(self) -> str:
        """A sentence when memory ran short, else nothing."""
        if self.room is None:
            return ""
        return f"memory ran short: at most {self.room} steps of all sequences went into one pass"

    def _answer(
        self, inputs: torch.Tensor, hear: Callable[[str, torch.Tensor], None] | None = None
    ) -> torch.Tensor:
        step("measure.pass")
        adapter, asked = self.identity.adapter, self.subject
        with registry.calling("adapters", adapter, "failed to answer"), shortage():
            answer = asked.respond(inputs) if hear is None else asked.listen(inputs, hear)
        check_answer(answer, inputs, pooled=self.pooled)
        return answer


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
