"""The memory functions: which sequences a query feeds, and what is read at each lag."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

from memaudit.errors import ArgumentError, clean
from memaudit.interfaces import AbstractQuery, AbstractTokenQuery, Status, TrialReadings

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import torch

    from memaudit.interfaces import AbstractSubject, Circumstances, Setting

#: Models with more parameters are fed little, unless the level is thorough.
LARGE_MODEL = 2**19


def is_large(subject: AbstractSubject, setting: Setting) -> bool:
    """Whether every step of a model costs so much that few are fed."""
    return subject.identity.parameters > LARGE_MODEL and setting.level != "thorough"


# On vectors

#: A prefix of one window that did not settle is tried once more with this many. A state that
#: still moves then is on a cycle or worse, and more steps would only cost.
LONG_PREFIX = 4
#: Steps before lag 0 on a linear model, which need not settle.
SHORT_PREFIX = 8


@dataclass(frozen=True, slots=True)
class Heaviside(AbstractQuery):
    """How fast does the model forget that a step happened?

    Feeds u_t = x for t >= 0 and reads rho(t) = y_{t+1} - y_t.
    """

    name = "heaviside"
    summary = "step input; change of the answer from one lag to the next"

    def inputs(self, x: torch.Tensor, horizon: int) -> torch.Tensor:
        return x[:, None].expand(-1, horizon + 1, -1)

    def moments(self, lags: torch.Tensor, horizon: int) -> tuple[torch.Tensor, torch.Tensor | None]:
        return lags + 1, lags


@dataclass(frozen=True, slots=True)
class Impulse(AbstractQuery):
    """What is left of a single input after t steps?

    Feeds u_0 = x and zeros afterwards and reads rho(t) = y_t. Lag 0 is the present, not memory.
    """

    name = "impulse"
    summary = "one input, then zeros; the answer itself"
    first_lag = 1

    def inputs(self, x: torch.Tensor, horizon: int) -> torch.Tensor:
        from memaudit.numerics.signals import pulse

        return pulse(x, on=1, length=horizon)

    def moments(self, lags: torch.Tensor, horizon: int) -> tuple[torch.Tensor, torch.Tensor | None]:
        return lags, None


@dataclass(frozen=True, slots=True)
class ReversedInput(AbstractQuery):
    """How fast does a settled answer fall apart once its input is gone?

    Feeds u_t = x for -K <= t < 0 and zeros for t >= 0, and reads rho(t) = y_{t+1} - y_t. One run
    gives every lag, so the cost is linear in the horizon. A linear model need not settle in the
    K steps: subtracting the step that goes on removes what is still on its way, exactly.
    """

    name = "reversed"
    summary = "a long step that ends; change of the answer from one lag to the next"

    windows: int = 1
    linear: bool = False

    def prefix(self, horizon: int) -> int:
        return SHORT_PREFIX if self.linear else self.windows * (horizon + 1)

    def inputs(self, x: torch.Tensor, horizon: int) -> torch.Tensor:
        from memaudit.numerics.signals import pulse

        before = self.prefix(horizon)
        return pulse(x, on=before, length=before + horizon + 1)

    def reference(self, x: torch.Tensor, horizon: int) -> torch.Tensor | None:
        if not self.linear:
            return None
        return x[:, None].expand(-1, self.prefix(horizon) + horizon + 1, -1)

    def on_linear(self) -> Self:
        return replace(self, linear=True)

    def moments(self, lags: torch.Tensor, horizon: int) -> tuple[torch.Tensor, torch.Tensor | None]:
        start = self.prefix(horizon)
        return lags + start + 1, lags + start

    def lengthened(self, horizon: int) -> Self | None:
        if self.linear or self.windows >= LONG_PREFIX:
            return None
        return replace(self, windows=LONG_PREFIX)


# On tokens

#: Words that are repeated unless they are given, by level.
WORDS = {"quick": 3, "standard": 8, "thorough": 16}
#: Words of one length go into one pass, up to so many tokens.
PASS_TOKENS = 1 << 15
#: Below this many lags there is no curve to speak of.
FEWEST_LAGS = 4


@dataclass(frozen=True, slots=True)
class Repeat(AbstractTokenQuery):
    """How much does one more repetition of a token still change?

    Feeds a word n times and reads rho(n) = |s(n+1) - s(n)|, s being the pooled score, or the last
    hidden state. Works where a model looks ahead or answers once, and has no zero input to compare
    with (IATN App. B).
    """

    name = "repeat"
    summary = "a token repeated n times; change of the score by one more repetition"
    joined = "supremum"

    def read(
        self,
        subject: AbstractSubject,
        setting: Setting,
        known: Circumstances,
        tick: Callable[[int, int], None],
    ) -> TrialReadings:
        if subject.vocabulary is None:
            return nothing(Status.NO_TOKENS)
        words = _chosen_words(subject, setting, known.text)
        if words is None:
            return nothing(Status.NO_TOKENIZER)
        trial = _Repetition(subject, words, one_pass=known.causal and not subject.pooled)
        lags = trial.lags(setting.horizon)
        if not len(lags):
            return nothing(Status.TOO_SHORT)
        return trial.readings(lags, known.rounding, tick)


def _chosen_words(
    subject: AbstractSubject, setting: Setting, text: str
) -> list[torch.Tensor] | None:
    """The ids of every word: those requested, the commonest of the text, or random tokens.

    None when words were requested and there is no tokenizer to find them with.
    """
    import torch

    from memaudit.numerics.signals import seeded

    if setting.words is not None:
        return _given_words(subject, setting.words)
    count, tokens = WORDS[setting.level], subject.tokens_of(text)
    if tokens is None or not len(tokens):
        size = subject.vocabulary or 1
        tokens = torch.randperm(size, generator=seeded(setting.seed))[:count]
    known = [token for token in tokens.tolist() if token != subject.unknown]
    common = [token for token, _ in Counter(known).most_common(count)]
    return [torch.tensor([token]) for token in common]


def _given_words(subject: AbstractSubject, words: tuple[str, ...]) -> list[torch.Tensor] | None:
    """The ids of the words that the user names; one that the tokenizer does not know is refused."""
    found: list[torch.Tensor] = []
    for word in words:
        ids = subject.tokens_of(word)
        if ids is None:
            return None
        if not len(ids) or (subject.unknown is not None and bool((ids == subject.unknown).any())):
            raise ArgumentError(
                f"the tokenizer does not know the word {clean(word, limit=60)!r}",
                hint="give others with --set words=",
            )
        found.append(ids)
    return found


@dataclass(frozen=True, slots=True)
class _Repetition:
    """Words of a subject, repeated; `one_pass` when the score of every n is in one answer."""

    subject: AbstractSubject
    words: Sequence[torch.Tensor]
    one_pass: bool

    def lags(self, horizon: int) -> torch.Tensor:
        """The numbers of repetitions that are compared with one more, as far as positions go."""
        import torch

        from memaudit.numerics.signals import lag_grid

        most = horizon
        if self.subject.longest is not None:
            longest_word = max(len(word) for word in self.words)
            room = self.subject.longest - frame_of(self.subject)[0]
            most = min(horizon, room // longest_word)
        if most < 2:
            return torch.zeros(0, dtype=torch.long)
        lags = torch.arange(most) if self.one_pass else lag_grid(most)
        return lags[lags > 0]

    def readings(
        self, lags: torch.Tensor, rounding: float, tick: Callable[[int, int], None]
    ) -> TrialReadings:
        """The differences at every lag, one row a word; rows are in the order of their length."""
        import torch

        values, floors, noise = [], [], 0.0
        names: list[str] = []
        groups = self._groups(int(lags[-1]) + 1)
        for done, group in enumerate(groups):
            tick(done, len(groups))
            wanted = torch.cat([lags, lags + 1]).unique()
            # The first word twice: identical runs that differ show the machine's own noise.
            units = torch.stack([*group, group[0]])
            scores = self._scores(units, wanted)
            noise = max(noise, float((scores[-1] - scores[0]).abs().amax()))
            place = {int(n): k for k, n in enumerate(wanted)}
            here = [place[int(n)] for n in lags]
            next_one = [place[int(n) + 1] for n in lags]
            change = (scores[:-1, next_one] - scores[:-1, here]).abs().amax(-1)
            values.append(change)
            names += ["".join(self.subject.word_of(int(i)) for i in word) for word in group]
            floors.append(noise + rounding * scores[:-1].abs().flatten(1).amax(1))
        tick(len(groups), len(groups))
        joined, floor = torch.cat(values), torch.cat(floors)
        return TrialReadings(lags, joined, floor, noise, Status.OK, tuple(names))

    def _groups(self, repeats: int) -> list[list[torch.Tensor]]:
        """Words of one length together, few enough for one pass."""
        by_length: dict[int, list[torch.Tensor]] = {}
        for word in self.words:
            by_length.setdefault(len(word), []).append(word)
        groups = []
        for length, words in sorted(by_length.items()):
            size = max(1, PASS_TOKENS // (repeats * length))
            groups += [words[k : k + size] for k in range(0, len(words), size)]
        return groups

    def _scores(self, units: torch.Tensor, repeats: torch.Tensor) -> torch.Tensor:
        """s(n) in float64 for every word (rows) and every n, (B,n,M)."""
        import torch

        length, (_, before) = units.shape[1], frame_of(self.subject)
        if self.one_pass:
            sequences = self._framed(units.repeat(1, int(repeats[-1])))
            answers = self.subject.respond(sequences)
            return answers[:, before + repeats * length - 1].double().cpu()
        scores = []
        for n in repeats.tolist():
            answer = self.subject.respond(self._framed(units.repeat(1, n)))
            last = answer if self.subject.pooled else answer[:, before + n * length - 1]
            scores.append(last.double().cpu())
        return torch.stack(scores, dim=1)

    def _framed(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.subject.framed(tokens).to(self.subject.device)


def nothing(status: Status) -> TrialReadings:
    """No readings, and why."""
    import torch

    empty = torch.zeros(0, dtype=torch.float64)
    return TrialReadings(empty.long(), empty[None, :0], empty, 0.0, status)


def frame_of(subject: AbstractSubject) -> tuple[int, int]:
    """How many tokens the tokenizer puts around a text, and how many of them in front.

    Two texts of one token each differ, inside the same frame, at the place of the text.
    """
    import torch

    one, other = subject.framed(torch.tensor([[0], [1]]))
    return len(one) - 1, int((one != other).nonzero()[0])
