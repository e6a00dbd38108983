"""The repeat query: what one more repetition of a token still changes."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from memaudit.contracts import AbstractTokenQuery, TokenReadings
from memaudit.errors import ArgumentError, clean
from memaudit.memory.result import Status
from memaudit.queries.framing import frame_of, nothing

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import torch

    from memaudit.contracts import AbstractSubject, Circumstances, Setting

#: Words that are repeated unless they are given, by level.
WORDS = {"quick": 3, "standard": 8, "thorough": 16}
#: Words of one length go into one pass, up to so many tokens.
PASS_TOKENS = 1 << 15


@dataclass(frozen=True, slots=True)
class Repeat(AbstractTokenQuery):
    """How much does one more repetition of a token still change?

    Feeds a word n times and reads rho(n) = |s(n+1) - s(n)|, s being the pooled score, or the last
    hidden state. Works where a model looks ahead or answers once, and has no silence to compare
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
    ) -> TokenReadings:
        if subject.vocabulary is None:
            return nothing(Status.NO_TOKENS)
        words = chosen_words(subject, setting, known.text)
        if words is None:
            return nothing(Status.NO_TOKENIZER)
        trial = Repetition(subject, words, one_pass=known.causal and not subject.pooled)
        lags = trial.lags(setting.horizon)
        if not len(lags):
            return nothing(Status.TOO_SHORT)
        return trial.readings(lags, known.rounding, tick)


def chosen_words(
    subject: AbstractSubject, setting: Setting, text: str
) -> list[torch.Tensor] | None:
    """The ids of every word: those asked for, the commonest of the text, or random tokens.

    None when words were asked for and there is no tokenizer to find them with.
    """
    import torch

    from memaudit.numerics.signals import seeded

    if setting.words is not None:
        return given_words(subject, setting.words)
    count, tokens = WORDS[setting.level], subject.tokens_of(text)
    if tokens is None or not len(tokens):
        size = subject.vocabulary or 1
        tokens = torch.randperm(size, generator=seeded(setting.seed))[:count]
    known = [token for token in tokens.tolist() if token != subject.unknown]
    common = [token for token, _ in Counter(known).most_common(count)]
    return [torch.tensor([token]) for token in common]


def given_words(subject: AbstractSubject, words: tuple[str, ...]) -> list[torch.Tensor] | None:
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
class Repetition:
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
    ) -> TokenReadings:
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
        heard, floor = torch.cat(values), torch.cat(floors)
        return TokenReadings(lags, heard, floor, noise, Status.OK, tuple(names))

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
