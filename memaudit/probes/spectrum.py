"""The spectrum of every recurrent layer, at rest and over real inputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from memaudit.contracts import AbstractProbe

if TYPE_CHECKING:
    import torch

    from memaudit.contracts import AbstractSubject, Setting
    from memaudit.results import Spectrum as Record

#: Tokens of text over which the quantiles of data-dependent eigenvalues are taken.
STEPS = 512


@dataclass(frozen=True, slots=True)
class Spectrum(AbstractProbe):
    """How fast does every mode of the recurrent layers decay?

    Reads the eigenvalues lambda of one step from the weights. Where the step depends on the data,
    they are given at rest and at quantiles over the tokens of a text.
    """

    name = "spectrum"
    summary = "eigenvalues of every recurrent layer, their margin and time scale"
    fills = "spectrum"

    def measure(self, subject: AbstractSubject, setting: Setting) -> tuple[Record, ...]:
        return subject.spectra(self._inputs(subject, setting))

    def _inputs(self, subject: AbstractSubject, setting: Setting) -> torch.Tensor | None:
        """The beginning of the text; without a tokenizer random tokens; None without tokens."""
        from memaudit.numerics.signals import seeded
        from memaudit.texts import read_text

        if subject.vocabulary is None:
            return None
        most = STEPS if subject.longest is None else min(STEPS, subject.longest)
        tokens = subject.tokens_of(read_text(setting.text))
        if tokens is None or not len(tokens):
            import torch

            generator = seeded(setting.seed)
            tokens = torch.randint(subject.vocabulary, (most,), generator=generator)
        return tokens[None, :most]
