"""The contracts of every plugin, on one page; the laws stand here, not on the implementations.

A plugin may state the number of the contracts that it was written for as a class attribute
`contract`; one that is newer than `memaudit.catalog.CONTRACT` is refused with a sentence.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Self

from memaudit.dynamics import AbstractDynamics as AbstractDynamics
from memaudit.dynamics import StateBlock as StateBlock
from memaudit.linear_part import AbstractLinearPart as AbstractLinearPart
from memaudit.perturbable import AbstractPerturbable as AbstractPerturbable
from memaudit.perturbable import Role as Role
from memaudit.reparam import AbstractReparam as AbstractReparam
from memaudit.stored_decay import DenseDecay as DenseDecay
from memaudit.stored_decay import DiagonalDecay as DiagonalDecay
from memaudit.stored_decay import NoDecay as NoDecay
from memaudit.stored_decay import StoredDecay as StoredDecay
from memaudit.target import AbstractTarget as AbstractTarget

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    import torch
    from torch import nn

    from memaudit.loading.source import Source
    from memaudit.memory.curve import Status
    from memaudit.modes import LayerSpectrum as Spectrum
    from memaudit.report import Identity, Report, Result


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
    #: Steps beyond which the model cannot be run, where a table of positions ends; None: no limit.
    longest: int | None = None
    #: Steps that the model is said to be made for; None when nothing says so.
    advertised: int | None = None
    #: How many token ids there are; None for a model that takes no tokens.
    vocabulary: int | None = None
    #: The id that the tokenizer gives to what it does not know; None when it knows everything.
    unknown: int | None = None

    @abstractmethod
    def respond(self, inputs: torch.Tensor) -> torch.Tensor:
        """Answer (B,T,D) floats, or (B,T) token ids, by (B,T,M), or by (B,M) when pooled."""

    def natural_inputs(self, count: int, generator: torch.Generator) -> torch.Tensor | None:
        """Up to `count` vectors (n,D) that real data put in, such as token embeddings."""
        del count, generator
        return None

    def layers(self) -> tuple[str, ...]:
        """The names of the hidden states that `listen` tells, in the order of the layers."""
        return ()

    def listen(
        self, inputs: torch.Tensor, hear: Callable[[str, torch.Tensor], None]
    ) -> torch.Tensor:
        """Like `respond`; `hear` is told the hidden state (B,T,H) after every layer at once."""
        del hear
        return self.respond(inputs)

    def tokens_of(self, text: str) -> torch.Tensor | None:
        """The token ids (T,) of a text, nothing around it; None without a tokenizer."""
        del text
        return None

    def framed(self, tokens: torch.Tensor) -> torch.Tensor:
        """Token ids (B,T) with what the tokenizer puts around a text, such as [CLS] and [SEP]."""
        return tokens

    def word_of(self, token: int) -> str:
        """How the tokenizer writes one id."""
        return f"token {token}"

    def spectra(self, inputs: torch.Tensor | None = None) -> tuple[Spectrum, ...]:
        """The eigenvalues of every recurrent layer at rest; more at `inputs`, if they matter."""
        del inputs
        return ()

    def linear_parts(self) -> Mapping[str, AbstractLinearPart]:
        """The linear time-invariant layers by name; one of two directions is two causal parts."""
        return {}

    def dynamics(self) -> Mapping[str, AbstractDynamics]:
        """The nonlinear recurrences by name; a stack of layers is one, from input to last layer."""
        return {}

    def perturbable(self) -> AbstractPerturbable | None:
        """The model with its weights as an argument; None when that is not possible."""
        return None

    def parts(self) -> Mapping[str, AbstractSubject]:
        """The layers to audit one by one, when the model as a whole cannot be run."""
        return {}

    def weights(self) -> Mapping[str, torch.Tensor]:
        """The live tensors behind `respond`, by name; a probe that moves them is found out."""
        return {}

    def live_modules(self) -> Mapping[str, nn.Module]:
        """The modules behind `respond` themselves, by the part that they answer for ("": all)."""
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

    def stored_decays(self, module: nn.Module) -> Iterable[StoredDecay]:
        """The recurrent layers of the zoo inside a module, by what makes their modes.

        Law: nothing is changed, and of a module without such layers nothing is told. Layers are
        called by their path in the module.
        """
        del module
        return ()


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
class Circumstances:
    """What is known about a model when it is asked about tokens: facts, and the text to read."""

    causal: bool
    #: Relative rounding of its answers.
    rounding: float
    text: str


@dataclass(frozen=True, slots=True)
class TokenReadings:
    """Readings in token space: values (K,n) for K trials at the lags (n,), and their floors (K,).

    `status` says why there are none. `noise` is by how much two identical runs differed.
    """

    lags: torch.Tensor
    values: torch.Tensor
    floors: torch.Tensor
    noise: float
    status: Status
    #: What tells the trials apart, where they have names.
    names: tuple[str, ...] = ()


class AbstractTokenQuery(ABC):
    """A memory function in token space: token ids are fed, and answers to them compared.

    Laws: readings are sizes of differences of answers, not negative; the same setting gives the
    same numbers; what the model cannot be asked is a status, not an error.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    #: First lag that is memory.
    first_lag: ClassVar[int] = 1
    #: How the trials become one curve: "supremum" or "mean".
    joined: ClassVar[str]

    @abstractmethod
    def read(
        self,
        subject: AbstractSubject,
        setting: Setting,
        known: Circumstances,
        tick: Callable[[int, int], None],
    ) -> TokenReadings:
        """Feed the tokens; `tick` is told how much is done, and of how much."""


@dataclass(frozen=True, slots=True)
class Setting:
    """What every measurement of one audit shares.

    `amplitudes` None leaves them to the level. `baseline` is what silence is: "zero", "natural"
    for a real input such as the embedding of a token, or a number that stands in every entry.
    `text` is what queries in token space read: the text itself, or a file that holds it; None is
    the one in the package. `words` are those that are repeated, None leaves it to the text.
    """

    horizon: int = 512
    seed: int = 0
    level: str = "standard"
    normalization: str = "iatn"
    amplitudes: tuple[float, ...] | None = None
    epsilon: float = 1e-3
    baseline: str | float = "zero"
    text: str | Path | None = None
    words: tuple[str, ...] | None = None


def _ignored(*_: Any) -> None:
    """What nobody listens to."""


@dataclass(frozen=True, slots=True)
class Tools:
    """What an audit lends to a probe.

    `tick` is called with how much is done, and of how much. `results` has what was measured on the
    same subject before. `keep` takes a partial result, which counts when the probe is cut short.
    """

    tick: Callable[[int, int], None] = _ignored
    results: Mapping[str, Any] = field(default_factory=dict)
    keep: Callable[[Result], None] = _ignored


#: For a probe that is called by itself.
NO_TOOLS = Tools()


class AbstractProbe(ABC):
    """Measures one thing on any subject; its dataclass fields are its options.

    Law: the subject is bit-identical afterwards, and the same setting gives the same numbers.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    #: The class of what `measure` gives.
    result: ClassVar[type[Result]]
    #: "cheap" runs by default; "long" on request, after the others, whose results are kept.
    cost: ClassVar[str] = "long"

    @abstractmethod
    def measure(
        self, subject: AbstractSubject, setting: Setting, tools: Tools = NO_TOOLS
    ) -> Result:
        """What was found; a subject that has nothing to find gives an empty result."""


class AbstractReportFormat(ABC):
    """A way to show a report. Law: `render` is pure, and never loses the verdict."""

    name: ClassVar[str]
    summary: ClassVar[str]
    suffix: ClassVar[str]

    @abstractmethod
    def render(self, report: Report) -> str:
        """The whole report as text."""
