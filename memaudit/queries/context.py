"""The context query: how far one changed word of a real text reaches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from memaudit.contracts import AbstractTokenQuery, TokenReadings
from memaudit.memory.result import Status
from memaudit.queries.framing import frame_of, nothing

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from memaudit.contracts import AbstractSubject, Circumstances, Setting

#: Passages of the text, and other tokens tried in each, by level.
TRIALS = {"quick": (2, 1), "standard": (6, 2), "thorough": (16, 4)}
#: Tokens that stand before the one that is changed, so that it is read in a sentence.
LEAD = 8
#: A text of which more than this share is unknown to the tokenizer is none that it can read.
MOST_UNKNOWN = 0.5
#: Below this many lags there is no curve to speak of.
FEWEST = 4


@dataclass(frozen=True, slots=True)
class Context(AbstractTokenQuery):
    """How far does one changed token of a real text reach?

    Replaces an early token by another one of the same text and reads |y'(t) - y(t)| at the t-th
    token after it, averaged over passages and replacements.
    """

    name = "context"
    summary = "one early token of a real text changed; change of the later answers"
    joined = "mean"

    def read(
        self,
        subject: AbstractSubject,
        setting: Setting,
        known: Circumstances,
        tick: Callable[[int, int], None],
    ) -> TokenReadings:
        if subject.vocabulary is None:
            return nothing(Status.NO_TOKENS)
        tokens = subject.tokens_of(known.text)
        if tokens is None or not len(tokens):
            return nothing(Status.NO_TOKENIZER)
        if (
            subject.unknown is not None
            and (tokens == subject.unknown).float().mean() > MOST_UNKNOWN
        ):
            return nothing(Status.UNKNOWN_TEXT)
        passages = passages_of(subject, setting, tokens)
        if passages is None:
            return nothing(Status.TOO_SHORT)
        return compared(subject, passages, changed_passages(setting, passages, tokens), known, tick)


def passages_of(
    subject: AbstractSubject, setting: Setting, tokens: torch.Tensor
) -> torch.Tensor | None:
    """Passages (K,L) at even distances in the text; None when it, or the model, is too short."""
    import torch

    if len(tokens.unique()) < 2:  # there is nothing that a token could be replaced by
        return None
    most = len(tokens)
    if subject.longest is not None:
        most = min(most, subject.longest - frame_of(subject)[0])
    length = min(most, LEAD + setting.horizon)
    if length < LEAD + FEWEST:
        return None
    count = min(TRIALS[setting.level][0], len(tokens) - length + 1)
    starts = torch.linspace(0, len(tokens) - length, count).long().unique()
    return torch.stack([tokens[start : start + length] for start in starts.tolist()])


def changed_passages(
    setting: Setting, passages: torch.Tensor, tokens: torch.Tensor
) -> torch.Tensor:
    """Every passage with other tokens in the place behind the lead, (R,K,L)."""
    import torch

    from memaudit.numerics.signals import seeded

    generator, vocabulary = seeded(setting.seed), tokens.unique()
    changed = passages.repeat(TRIALS[setting.level][1], 1, 1)
    for trial in changed:
        for row in trial:
            others = vocabulary[vocabulary != row[LEAD]]
            row[LEAD] = others[torch.randint(len(others), (1,), generator=generator)]
    return changed


def compared(
    subject: AbstractSubject,
    passages: torch.Tensor,
    changed: torch.Tensor,
    known: Circumstances,
    tick: Callable[[int, int], None],
) -> TokenReadings:
    """The size of the difference at every lag, one row for every changed passage."""
    import torch

    from memaudit.numerics.signals import lag_grid

    reach = passages.shape[1] - LEAD
    lags = lag_grid(reach) if subject.pooled else torch.arange(reach)
    values, floors, noise = [], [], 0.0
    for k in range(len(passages)):
        tick(k, len(passages))
        # The passage twice: identical runs that differ show the machine's own noise.
        rows = torch.stack([passages[k], passages[k], *changed[:, k]])
        answers = _answers(subject, rows, lags)
        noise = max(noise, float((answers[1] - answers[0]).abs().amax()))
        values.append((answers[2:] - answers[0]).abs().amax(-1))
        floors.append(noise + known.rounding * answers.abs().flatten(1).amax(1)[2:])
    tick(len(passages), len(passages))
    return TokenReadings(lags, torch.cat(values), torch.cat(floors), noise, Status.OK)


def _answers(subject: AbstractSubject, rows: torch.Tensor, lags: torch.Tensor) -> torch.Tensor:
    """Answers (B,n,M) in float64 at the lags behind the changed token."""
    import torch

    if not subject.pooled:
        answers = subject.respond(subject.framed(rows).to(subject.device))
        return answers[:, frame_of(subject)[1] + LEAD + lags].double().cpu()
    heard = []
    for lag in lags.tolist():
        framed = subject.framed(rows[:, : LEAD + lag + 1])
        heard.append(subject.respond(framed.to(subject.device)).double().cpu())
    return torch.stack(heard, dim=1)
