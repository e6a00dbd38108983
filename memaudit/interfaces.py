"""The laws of every plugin, on one page: they stand here, not on the implementations.

A plugin may state the number of the interfaces that it was written for as a class attribute
`contract`; one that is newer than `memaudit.registry.CONTRACT` is refused with a sentence.
"""

from __future__ import annotations

import hashlib
import math
import re
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar, Self

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    import torch
    from torch import nn

    from memaudit.loading.source import Source
    from memaudit.loading.stored import StoredWeights
    from memaudit.modes import LayerSpectrum as Spectrum
    from memaudit.report import Identity, Report, Result


class Status(StrEnum):
    """Outcome of one measurement; the value is the sentence shown to the user."""

    OK = "measured"
    NOT_MEASURED = "not measured"
    BELOW_FLOOR = "no memory rises above the numerical floor"
    TOO_FEW_LAGS = "fewer than 20 lags rise above ten times the numerical floor, too few to tell"
    HIDDEN = "noise hides the curve: two runs that should agree differ by as much"
    UNSEEN = (
        "other inputs decide the answers, and no replaced one showed it: the memory is rare, "
        "longer than the window, or below the rounding of answers that grow"
    )
    NO_VARIATION = "the inputs do not vary, so that none could be replaced by another"
    CHAOTIC = "chaotic, or not deterministic: two runs that should agree drift apart, so no horizon"
    DIVERGED = "the response is not finite; the curve ends where it overflows"
    UNSETTLED = "the state had not settled before the input was switched off"
    NO_TOKENS = "the model takes no token ids"
    NO_TOKENIZER = "the model has no tokenizer that fits it, so no text can be fed"
    UNKNOWN_TEXT = "the tokenizer does not know most of the text"
    TOO_SHORT = "the model, or the text, takes too few steps for this query"
    NO_STATE = "the model shows no state after every step that could be read"
    INTERRUPTED = "interrupted; the curve rests on the probes that were finished"


class AbstractSubject(ABC):
    """A model that can be audited: it answers batches of input sequences.

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
        """The names of the hidden states that `respond_with_hook` gives, by depth."""
        return ()

    def respond_with_hook(
        self, inputs: torch.Tensor, hook: Callable[[str, torch.Tensor], None]
    ) -> torch.Tensor:
        """Like `respond`; `hook(layer, state)` gets the hidden state (B,T,H) after every layer."""
        del hook
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
class StateBlock:
    """The numbers of a state that belong to one recurrent layer, and what that layer is."""

    start: int
    stop: int
    cell: str
    #: How the recurrent weight is stored, by its name among the reparameterizations.
    parameterization: str = "direct"


class AbstractDynamics(ABC):
    """A recurrence as a map of its state, s_{t+1} = step(s_t, u_t), from s_0 = initial().

    Laws: `step` acts on every row by itself, can be differentiated, and gives the states that the
    model goes through. `blocks` cut the state without gaps, in an order in which the next state of
    a block depends on its own old state and on blocks before it: the Jacobian is block triangular.
    """

    #: Inputs D.
    width: int
    #: Recurrent layer → its part of the state.
    blocks: Mapping[str, StateBlock]
    #: False when a block reads time backwards: then only settled states mean something.
    causal: bool = True

    @abstractmethod
    def initial(self) -> torch.Tensor:
        """The state (n,) before the first input."""

    @abstractmethod
    def step(self, state: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
        """The states (B,n) after the inputs u (B,D)."""


class AbstractLinearPart(ABC):
    """A causal linear time-invariant layer inside a model, with its exact kernel.

    Laws: with u (B,T,D), respond(u)[:, t] is the sum over s of kernel(s) applied to u[:, t - s].
    A layer that shows its state has one A and one C, for all s, with reach(s + 1) = A reach(s) and,
    from s = 1 on, where the input itself is over, kernel(s) = Re(C reach(s)).
    """

    #: Inputs D.
    width: int
    #: True for a bank of single-input systems: input d reaches only its own C outputs.
    banked: bool

    @abstractmethod
    def kernel(self, start: int, stop: int) -> torch.Tensor:
        """The kernel at the lags start..stop-1 in closed form: (L,M,D), or (L,C,D) of a bank."""

    @abstractmethod
    def respond(self, u: torch.Tensor) -> torch.Tensor:
        """The layer run as the model runs it, on (B,T,D): (B,T,M), or (B,T,C,D) of a bank."""

    def reach(self, start: int, stop: int) -> torch.Tensor | None:
        """The states A^s B that are left s steps after a unit impulse, s = start..stop-1: (L,N,D).

        Real or complex, in float64. Of a bank, N are the entries of the state that input d alone
        feeds. None for a layer that keeps its state to itself.
        """
        del start, stop
        return None

    def transition(self) -> torch.Tensor | None:
        """The A that moves these states: its diagonal (N,) or all of it (N,N), in float64.

        Of a bank (D,N) or (D,N,N), one for every input. None where it is not known.
        """
        return None


#: What a weight does: it makes the eigenvalues, feeds the state, reads it out, or none of these.
GROUPS = ("recurrent", "input", "readout", "other")
#: How a weight acts: as a matrix (rows first), as a diagonal, as a diagonal of complex numbers
#: (real and imaginary part on the last axis), or as a vector that is added.
FORMS = ("matrix", "diagonal", "pairs", "vector")

#: What torch puts into the names of weights that stand behind a parametrization.
_BEHIND = re.compile(r"parametrizations\.([^.]+)\.original\d*")


def plain_name(name: str) -> str:
    """The name that a weight has, or would have without its parametrization."""
    return _BEHIND.sub(r"\1", name)


#: How the size of a move of weights is measured: by its operator norm, its Euclidean norm, its
#: largest entry.
BALLS = ("spectral", "frobenius", "max-abs")
#: How the errors of moved weights are measured: the norm of the papers, the same without the
#: derivative, the sum over time, the mean square.
NORMS = ("sobolev", "sup", "l1", "mse")


@dataclass(frozen=True, slots=True)
class Role:
    """What one weight does in the model, and how it acts; that decides its operator norm."""

    group: str
    form: str
    #: The recurrent layer that it belongs to; empty for a weight of the whole model.
    layer: str = ""


class AbstractPerturbable(ABC):
    """A model whose weights are an argument.

    Laws: with no weight moved, every copy answers as the subject does, up to rounding; copy k
    depends on entry k of the moved weights alone; nothing is written to the model; gradients flow
    from the answers to the moved weights, unless `differentiable` is False.
    """

    #: The weights that may be moved, as they are: the model's own tensors, without gradients.
    weights: Mapping[str, torch.Tensor]
    #: The role of each of them.
    roles: Mapping[str, Role]
    differentiable: bool = True

    @abstractmethod
    def respond(self, inputs: torch.Tensor, moved: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """The answers (K,B,T,M), or (K,B,M) of a pooled model, of K copies to (B,T,D) floats.

        `moved` holds (K,…) values for some of the weights; the others are as they are.
        """

    def respond_scaled(
        self,
        inputs: torch.Tensor,
        directions: Mapping[str, torch.Tensor],
        sizes: torch.Tensor,
    ) -> torch.Tensor:
        """The answers (S,K,B,T,M), or (S,K,B,M), of K directions (K,…) at S sizes; no gradients.

        Law: entry [s,k] is what `respond` answers with weights + sizes[s] * directions[k].
        """
        moved = {name: self._scaled_weight(name, way, sizes) for name, way in directions.items()}
        answers = self.respond(inputs, moved)
        if not moved:
            return answers.expand(len(sizes), *answers.shape)
        return answers.unflatten(0, (len(sizes), -1))

    def _scaled_weight(self, name: str, way: torch.Tensor, sizes: torch.Tensor) -> torch.Tensor:
        """The values (S·K,…) of a weight, the sizes outermost."""
        weight = self.weights[name].detach()
        lengths = sizes.to(way).reshape(-1, *[1] * way.ndim)
        return (weight + lengths * way).to(weight.dtype).flatten(0, 1)

    def modes(self, moved: Mapping[str, torch.Tensor]) -> Mapping[str, torch.Tensor]:
        """Layer → eigenvalues (K,n) of one step, complex, where the weights alone decide them."""
        del moved
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
    """Opens the models of one zoo as subjects.

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

    def from_weights(self, stored: StoredWeights) -> AbstractSubject | None:
        """A subject that has spectra and cannot be run, out of a few stored tensors.

        None where no layer is known by the names and shapes of its tensors.
        """
        del stored
        return None

    def stored_decays(self, module: nn.Module) -> Iterable[StoredDecay]:
        """The recurrent layers of the zoo inside a module, by what makes their modes.

        Law: nothing is changed, and of a module without such layers nothing is yielded. Layers are
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
    """What is known about a model when a query reads it itself: facts, and the text to read."""

    causal: bool
    #: Relative rounding of its answers.
    rounding: float
    #: Width of its answers.
    outputs: int
    text: str


@dataclass(frozen=True, slots=True)
class TrialReadings:
    """Readings of K trials: values (K,n) at the lags (n,), and their floors (K,).

    `status` says why there are none. `noise` is by how much two runs differed that should not.
    `scales` (K,) is what the mean of the values is divided by, `fed` says what stood in the
    sequences, `reach` how large its numbers were. `share` is the part of the natural variation of
    an answer that inputs other than the present one make. `limit` says what ended the lags before
    the horizon that was asked for, and what to do about it. `unfed` says why the text that was
    given was not fed.
    """

    lags: torch.Tensor
    values: torch.Tensor
    floors: torch.Tensor
    noise: float
    status: Status
    #: What tells the trials apart, where they have names.
    names: tuple[str, ...] = ()
    scales: torch.Tensor | None = None
    fed: str = ""
    reach: float | None = None
    share: float | None = None
    limit: str = ""
    unfed: Status = Status.OK


class AbstractTrialQuery(ABC):
    """A memory function that feeds the model sequences of its own choice and compares the answers.

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
    ) -> TrialReadings:
        """Feed the sequences; `tick` is called with how much is done, and of how much."""

    def tokens(self, subject: AbstractSubject, setting: Setting, known: Circumstances) -> float:
        """About how many steps `read` will feed; 0 where nobody knows."""
        del subject, setting, known
        return 0.0


class AbstractTokenQuery(AbstractTrialQuery):
    """One in token space. Law: a model that takes no tokens gives the status NO_TOKENS."""


@dataclass(frozen=True, slots=True)
class Setting:
    """What every measurement of one audit shares.

    `amplitudes` None leaves them to the level. `baseline` is what counts as zero input: "zero",
    "natural" for a real input such as the embedding of a token, or a number that stands in
    every entry. `text` is what queries in token space read: the text itself, or a file that
    holds it; None is the one in the package. `words` are those that are repeated, None leaves
    it to the text. `data` are sequences that the model works on, `pad` is what follows the
    changed input of the query driven, a token id or a number; None for the sequence itself.
    `sequences` is how many it feeds, None leaves it to the level and the size of the model.
    `budget` is what the audit may cost.
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
    data: Series | None = None
    pad: float | None = None
    sequences: int | None = None
    budget: Budget | None = None


@dataclass(frozen=True, slots=True)
class Budget:
    """What an audit may cost: seconds, or tokens fed to the model, which repeat to the digit."""

    seconds: float = math.inf
    tokens: float = math.inf

    def __str__(self) -> str:
        if math.isfinite(self.tokens):
            return f"{self.tokens:.0f}tokens"
        return f"{self.seconds:g}s"


@dataclass(frozen=True, slots=True, eq=False)
class Series:
    """Sequences (B,T,D) of numbers that a user gave, and what to call them.

    `given` is what they were made of: an array as it was, which the forward of a host may take, or
    several arrays by the names of its parts; then there are no `values`. With `optional` a model
    that they do not fit is run on what else is known.
    """

    name: str
    values: torch.Tensor | None
    given: torch.Tensor | Mapping[str, torch.Tensor] | None = None
    optional: bool = False

    @property
    def described(self) -> str:
        """The name, the shape, or every part's shape, and the digest of the numbers."""
        arrays: Any = self.given if isinstance(self.given, dict) else {"": self.given}
        if self.values is not None:
            arrays = {"": self.values}
        digest = hashlib.sha256()
        shapes: list[str] = []
        for part, array in arrays.items():
            shapes.append(f"{part} {tuple(array.shape)}".strip())
            digest.update(part.encode() + array.detach().cpu().double().numpy().tobytes())
        return ", ".join([self.name, *shapes, f"sha256 {digest.hexdigest()[:16]}"])


def _ignored(*_: Any) -> None:
    """A callback that does nothing."""


@dataclass(frozen=True, slots=True)
class Tools:
    """What an audit lends to a probe.

    `tick` is called with how much is done, and of how much. `results` has what was measured on the
    same subject before. `keep` takes a partial result, which counts when the probe is cut short.
    `say` shows a sentence to whoever waits.
    """

    tick: Callable[[int, int], None] = _ignored
    results: Mapping[str, Any] = field(default_factory=dict)
    keep: Callable[[Result], None] = _ignored
    say: Callable[[str], None] = _ignored


#: For a probe that is called by itself.
NO_TOOLS = Tools()


class AbstractProbe(ABC):
    """Measures one thing on any subject; its dataclass fields are its options.

    Law: the subject is bit-identical afterwards, and the same setting gives the same numbers.
    Options are checked in `__post_init__`, which raises ArgumentError before any model is opened; a
    mapping `options` has their words for `memaudit list probes`.
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


#: Which numbers of the stored tensor the law is about: all of them, the real part of complex
#: numbers, or the first of every pair (real, imaginary) on the last axis.
PARTS = ("all", "real", "pairs")


@dataclass(frozen=True, slots=True, eq=False)
class DiagonalDecay:
    """One number for every mode: lambda = law(stored), in the time of the law.

    Laws: `owner` has a parameter `name`; its numbers, and no others, decide through `law` alone
    how fast the modes of the layer decay, up to step sizes and gates, which keep a stable mode
    stable; the imaginary parts of complex numbers may be anything. `note` is a sentence for what
    the law does not promise.
    """

    owner: nn.Module
    name: str
    law: AbstractReparam
    part: str = "all"
    note: str = ""
    layer: str = ""
    cell: str = ""


def _whole_matrix(owner: nn.Module, stored: torch.Tensor) -> torch.Tensor:
    del owner
    return stored


def _no_rest(stored: torch.Tensor) -> torch.Tensor:
    return stored[:0]


def _matrix_alone(owner: nn.Module, matrix: torch.Tensor, rest: torch.Tensor) -> torch.Tensor:
    del owner, rest
    return matrix


@dataclass(frozen=True, slots=True, eq=False)
class DenseDecay:
    """A whole matrix whose eigenvalues are the modes of one step at rest, in discrete time.

    Laws: `matrix(owner, stored)` (n,n) has these modes as its eigenvalues, with the other weights
    that the owner has by then; `rest(stored)` are the numbers that the matrix does not use, perhaps
    none; `joined(owner, matrix, rest)` is the stored tensor with that matrix: the inverse of the
    two, and differentiable. Without these three the stored tensor is the matrix.
    """

    owner: nn.Module
    name: str
    matrix: Callable[[nn.Module, torch.Tensor], torch.Tensor] = _whole_matrix
    rest: Callable[[torch.Tensor], torch.Tensor] = _no_rest
    joined: Callable[[nn.Module, torch.Tensor, torch.Tensor], torch.Tensor] = _matrix_alone
    note: str = ""
    layer: str = ""
    cell: str = ""


@dataclass(frozen=True, slots=True)
class NoDecay:
    """A recurrent layer whose modes cannot be put into another form, with the reason."""

    reason: str
    layer: str = ""
    cell: str = ""


#: Which stored weight makes the modes of a layer, and how: the one record of it. Whoever knows the
#: weight makes it; whoever walks through a model fills in `layer` and `cell`.
StoredDecay = DiagonalDecay | DenseDecay | NoDecay


#: In continuous time a mode e^{lambda t} is stable for lambda < 0, in discrete time lambda^t is
#: for |lambda| < 1.
TIMES = ("continuous", "discrete")


@dataclass(frozen=True, slots=True)
class AbstractReparam(ABC):
    """lambda = f(w): the real eigenvalue of a mode from its raw weight, in one of two times.

    Laws: f(inverse(lambda)) = lambda for every lambda that `contains` holds, to rounding in
    float64; f is differentiable where it is used; of a `stable` one every finite w gives a stable
    mode, and the error of a mode under a moved w is at most `modulus` of the move.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    #: The times in which it has a form, out of TIMES.
    times: ClassVar[tuple[str, ...]]
    #: Whether it is stable in the sense of StableSSM, Definition 3.2.
    stable: ClassVar[bool]

    time: str = "continuous"

    @abstractmethod
    def forward(self, w: torch.Tensor) -> torch.Tensor:
        """The eigenvalues f(w)."""

    @abstractmethod
    def inverse(self, lam: torch.Tensor) -> torch.Tensor:
        """A raw weight with f(w) = lambda; meaningless where `contains` is False."""

    @abstractmethod
    def contains(self, lam: torch.Tensor) -> torch.Tensor:
        """Which eigenvalues it can reach with a finite raw weight, as booleans."""

    @abstractmethod
    def modulus(self, beta: float) -> float:
        """The smallest g(beta) of Definition 3.2, sup_w |f(w)| sup_v ∫ |e^{f(v)t} - e^{f(w)t}| dt.

        v is at most beta from w. In discrete time, which the definition leaves out, it is the
        change of the kernel, sum_t |f(v)^t - f(w)^t|, over its size. Infinite where the
        reparameterization is not stable.
        """

    @property
    def scale_formula(self) -> str:
        """The gradient scale as a formula in w, in the time that it was made in; "" for none."""
        return ""

    def gradient_scale(self, w: torch.Tensor) -> torch.Tensor:
        """|f'| / f² in continuous time, |f'| / (1 - f)² in discrete time, in float64.

        Infinite on the boundary, unless f' is zero there. Numeric where nobody knows a closed form.
        """
        from memaudit.numerics.reparameterization import gradient_scale

        return gradient_scale(self.forward, w, time=self.time)

    def fitted(self, lam: torch.Tensor) -> Self:
        """The same form with constants that suit these eigenvalues; itself where it has none.

        Law: what it contains of them, the fitted one contains too.
        """
        del lam
        return self


def _shortest(value: float) -> str:
    """A number in as few digits as give it back."""
    short = f"{value:g}"
    return short if float(short) == value else repr(value)


@dataclass(frozen=True, slots=True)
class AbstractTarget(ABC):
    """A sequence of functionals y_t = H_t(x), known exactly; its numbers are its fields.

    Laws: `answer` is causal, acts on every row by itself, and is the same every time; it works in
    float64 on the device of the inputs. Written as text it is its name and, behind a colon, its
    numbers in the order of the fields, as in poly:1.5,0.1; those that are left out are the
    defaults. Numbers that make no functional are refused with an ArgumentError.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    #: Inputs D and outputs M.
    inputs: ClassVar[int] = 1
    outputs: ClassVar[int] = 1
    #: Whether it is a convolution with a kernel.
    linear: ClassVar[bool] = False

    @abstractmethod
    def answer(self, inputs: torch.Tensor) -> torch.Tensor:
        """The answers (B,T,M) to (B,T,D), in float64."""

    def __str__(self) -> str:
        numbers = ",".join(_shortest(getattr(self, f.name)) for f in fields(self))
        return f"{self.name}:{numbers}" if numbers else self.name


@dataclass(frozen=True, slots=True)
class AbstractKernelTarget(AbstractTarget):
    """A linear target, y_t = sum_s rho(s) x_{t-s}, by its kernel."""

    linear: ClassVar[bool] = True

    @abstractmethod
    def kernel(self, steps: int) -> torch.Tensor:
        """The kernel rho at the lags 0 … steps - 1, in float64."""

    def answer(self, inputs: torch.Tensor) -> torch.Tensor:
        """The convolution of the inputs (B,T,1) with the kernel."""
        from memaudit.numerics.convolution import filtered

        return filtered(inputs, self.kernel(inputs.shape[1]).reshape(-1, 1, 1))
