"""The contracts of every plugin, on one page; the laws stand here, not on the implementations.

A plugin may state the number of the contracts that it was written for as a class attribute
`contract`; one that is newer than `memaudit.catalog.CONTRACT` is refused with a sentence.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import torch

    from memaudit.loading.source import Source
    from memaudit.results import Finding, Identity, Report


class AbstractSubject(ABC):
    """A model made audible: it answers batches of input sequences.

    Laws: `respond` is a pure function of its input (state is reset between calls, dropout is
    off); row b of the answer depends on row b of the input only; the weights never move. Where a
    model breaks a law the assumptions probe finds it.
    """

    identity: Identity
    #: Width D of the input space; None for a host of several layers, which has only `parts`.
    input_size: int | None
    #: True when the model answers (B, M), once per sequence.
    pooled: bool
    device: torch.device
    dtype: torch.dtype

    @abstractmethod
    def respond(self, inputs: torch.Tensor) -> torch.Tensor:
        """Answer (B,T,D) floats, or (B,T) token ids, by (B,T,M), or by (B,M) when pooled."""

    def natural_inputs(self, count: int, generator: torch.Generator) -> torch.Tensor | None:
        """Up to `count` vectors (n,D) that real data put in, such as token embeddings."""
        del count, generator
        return None

    def parts(self) -> Mapping[str, AbstractSubject]:
        """The layers to audit one by one, when the model as a whole cannot be run."""
        return {}

    def weights(self) -> Mapping[str, torch.Tensor]:
        """The live tensors behind `respond`, by name; a probe that moves them is found out."""
        return {}


@dataclass(frozen=True, slots=True)
class Request:
    """How a source should be opened; `dtype` None leaves the choice to the adapter."""

    device: torch.device
    dtype: torch.dtype | None
    revision: str | None
    options: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Claim:
    """An adapter's word that it can open a source; the stronger claim wins, a tie is an error."""

    family: str
    strength: int


class AbstractAdapter(ABC):
    """Makes the models of one zoo audible.

    Law: what the source does not say is taken from an option, and every value that was taken by
    default stands in the subject's `identity.assumed` with its reason.
    """

    name: ClassVar[str]
    #: option → one sentence; other options are refused before anything is loaded.
    options: ClassVar[Mapping[str, str]]

    @abstractmethod
    def claim(self, source: Source) -> Claim | None:
        """Whether this adapter can open the source, from its structure alone."""

    @abstractmethod
    def load(self, source: Source, request: Request) -> AbstractSubject:
        """The subject, with the weights of the source and no others."""


class AbstractQuery(ABC):
    """A memory function: which sequences are fed, and what is read at each lag.

    With a(x) = respond(inputs(x)) - respond(reference(x)), the signed reading at lag t is
    a[later(t)] - a[earlier(t)], or a[later(t)] when there is no earlier moment.

    Law: for a linear functional with kernel rho the reading is plus or minus rho(t + shift)·x.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    #: First lag that is memory: where lag 0 reads the present input, it is 1.
    first_lag: ClassVar[int] = 0

    @abstractmethod
    def inputs(self, x: torch.Tensor, horizon: int) -> torch.Tensor:
        """The sequences (P,L,D) for the probe vectors x (P,D)."""

    @abstractmethod
    def moments(self, lags: torch.Tensor, horizon: int) -> tuple[torch.Tensor, torch.Tensor | None]:
        """The times (later, earlier) whose answers are subtracted, for every lag."""

    def reference(self, x: torch.Tensor, horizon: int) -> torch.Tensor | None:
        """What is subtracted as H(0): None for zeros, or sequences shaped like `inputs`."""
        del x, horizon
        return None

    def on_linear(self) -> Self:
        """The form for a model that is known to be linear, where superposition gives more."""
        return self

    def prefix(self, horizon: int) -> int:
        """Steps that pass before lag 0."""
        del horizon
        return 0

    def lengthened(self, horizon: int) -> Self | None:
        """The same query with a longer prefix, or None when it has no prefix to lengthen."""
        del horizon
        return None


@dataclass(frozen=True, slots=True)
class Setting:
    """What every measurement of one audit shares; `amplitudes` None leaves them to the level."""

    horizon: int = 512
    seed: int = 0
    level: str = "standard"
    normalization: str = "iatn"
    amplitudes: tuple[float, ...] | None = None
    epsilon: float = 1e-3


class AbstractProbe(ABC):
    """A measurement that fills one field of the report.

    Law: the subject is bit-identical afterwards, and the same setting gives the same numbers.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    #: The field of Report that the result goes into.
    fills: ClassVar[str]

    @abstractmethod
    def measure(self, subject: AbstractSubject, setting: Setting) -> Any:
        """The record, or tuple of records, for that field."""


class AbstractRule(ABC):
    """One finding: a permanent code, the evidence it needs, the sentence and the advice."""

    code: ClassVar[str]
    name: ClassVar[str]
    severity: ClassVar[str]
    #: What `memaudit explain` prints: why it matters and what to do, in a few sentences.
    explanation: ClassVar[str]

    @abstractmethod
    def check(self, report: Report) -> Iterable[Finding]:
        """The findings that the report gives rise to."""

    def finding(self, message: str, advice: str, *, where: str = "") -> Finding:
        """A finding of this rule."""
        from memaudit.results import Finding

        return Finding(self.code, self.name, self.severity, message, advice, where)


class AbstractReportFormat(ABC):
    """A way to show a report. Law: `render` is pure, and never loses the verdict."""

    name: ClassVar[str]
    summary: ClassVar[str]
    suffix: ClassVar[str]

    @abstractmethod
    def render(self, report: Report) -> str:
        """The whole report as text."""
