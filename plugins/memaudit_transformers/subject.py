"""A model of transformers made audible."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from memaudit.contracts import AbstractSubject
from memaudit.errors import ArgumentError
from memaudit.numerics.inputs import checked_inputs
from memaudit.numerics.wide_floats import as_asked
from memaudit_transformers.blocks import heard
from memaudit_transformers.living import live_weights
from memaudit_transformers.perturbing import perturbable
from memaudit_transformers.positions import proved_limit
from memaudit_transformers.recurrent import decays_of, spectra_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from torch import nn

    from memaudit.contracts import AbstractPerturbable
    from memaudit.report import Identity
    from memaudit.spectrum.result import LayerSpectrum as Spectrum
    from memaudit_transformers.examining import Examined
    from memaudit_transformers.tokenizer import Tokens


class TransformersSubject(AbstractSubject):
    """A model that answers embeddings or token ids; `model` is the library's own module."""

    def __init__(
        self, examined: Examined, identity: Identity, *, tokens: Tokens | None = None
    ) -> None:
        self.identity = identity
        self.model: Any = examined.machine.model
        self.core: Any = examined.machine.core
        self.input_size = examined.width
        self.vocabulary = examined.vocabulary
        self.advertised = examined.advertised
        self.pooled = examined.pooled
        self.dtype = examined.machine.dtype
        self.device = examined.device
        self._examined = examined
        self._tokens = tokens
        self.unknown = None if tokens is None else tokens.unknown

    @cached_property
    def longest(self) -> int | None:  # type: ignore[override]
        """Steps at which a learned table of positions ends, proved by running; None: no limit."""
        return proved_limit(self._examined.limits, self._runs)

    def respond(self, inputs: Tensor) -> Tensor:
        """Answer (B,T,D) floats, or (B,T) token ids, by (B,T,M), or by (B,M) when pooled."""
        return self._answer(self._checked(inputs))

    def layers(self) -> tuple[str, ...]:
        """The layers, such as `layers.3`; one that is called again is numbered."""
        return self._examined.blocks.names

    def listen(self, inputs: Tensor, hear: Callable[[str, Tensor], None]) -> Tensor:
        """Like `respond`; `hear` is told the hidden state (B,T,H) after every layer at once."""

        def tell(name: str, state: Tensor) -> None:
            with as_asked():
                hear(name, state)

        return self._answer(self._checked(inputs), heard(self.core, self._examined.blocks, tell))

    def natural_inputs(self, count: int, generator: torch.Generator) -> Tensor | None:
        """Embeddings of distinct tokens; a padding row of zeros is no input."""
        table = self._examined.table
        if table is None:
            return None
        rows = table.get_parameter("weight").detach()
        filled = torch.nonzero(rows.abs().amax(dim=1) > 0).flatten()
        order = torch.randperm(len(filled), generator=generator, device=generator.device)
        chosen = filled[order[:count].to(filled.device)]
        with torch.no_grad():  # some tables scale what they hold
            return table(chosen).detach().to(self.dtype)

    def tokens_of(self, text: str) -> Tensor | None:
        """The token ids (T,) of a text, nothing around it; None without a tokenizer."""
        return None if self._tokens is None else self._tokens.of(text)

    def framed(self, tokens: Tensor) -> Tensor:
        """Token ids (B,T) with what the tokenizer puts around a text, such as [CLS] and [SEP]."""
        return tokens if self._tokens is None else self._tokens.framed(tokens)

    def word_of(self, token: int) -> str:
        """How the tokenizer writes one id."""
        word = None if self._tokens is None else self._tokens.word(token)
        return super().word_of(token) if word is None else word

    def spectra(self, inputs: Tensor | None = None) -> tuple[Spectrum, ...]:
        """The eigenvalues of every recurrent layer at rest, and at quantiles over the inputs."""
        return spectra_of(self.core, self._examined.recurrents, self.respond, inputs)

    def perturbable(self) -> AbstractPerturbable:
        """The model with its weights as an argument, read as `respond` reads it."""
        seen = self._examined

        def call(inputs: Tensor) -> Tensor:
            checked = self._checked(inputs)
            return self._told(checked, lambda: seen.machine.speak(checked))

        return perturbable(seen.machine, seen.recurrents, seen.table, call)

    def decays(self, inputs: Tensor) -> dict[str, Tensor]:
        """Recurrent layer → its decays (B,T,…) at every token of the inputs."""
        return decays_of(self.core, self._examined.recurrents, self.respond, inputs)

    def weights(self) -> Mapping[str, Tensor]:
        """The parameters and saved buffers of the whole model, raw ones where some are made."""
        return live_weights(self.model)

    def live_modules(self) -> Mapping[str, nn.Module]:
        """The model itself."""
        return {"": self.model}

    def _answer(self, inputs: Tensor, *around: Any) -> Tensor:
        return self._told(inputs, lambda: self._examined.machine.run(inputs, *around))

    def _told(self, inputs: Tensor, run: Callable[[], Tensor | None]) -> Tensor:
        """What a run of the model tells, or an error that says why there is nothing."""
        self._require_length(inputs.shape[1])
        try:
            answer = run()
        except IndexError as error:
            fact = f"the model cannot be run on {inputs.shape[1]} steps: {error}"
            raise ArgumentError(fact, hint="give a shorter horizon") from error
        if answer is None:
            raise ArgumentError("the model gives no such output", hint="give output=hidden")
        return answer

    def _require_length(self, steps: int) -> None:
        """Refuse what the position table has no rows for: nothing is cut off silently."""
        limits = self._examined.limits
        if limits and steps > limits[-1] and self.longest is not None and steps > self.longest:
            raise ArgumentError(
                f"a sequence of {steps} steps is longer than the {self.longest} positions that "
                "the model has",
                hint=f"give a horizon that needs at most {self.longest} steps",
            )

    def _runs(self, steps: int) -> bool:
        silence = torch.zeros(1, steps, self._examined.width, dtype=self.dtype, device=self.device)
        try:
            return self._examined.machine.run(silence) is not None
        except (IndexError, RuntimeError, ValueError):
            return False

    def _checked(self, inputs: Any) -> Tensor:
        return checked_inputs(
            inputs,
            width=self._examined.width,
            vocabulary=self.vocabulary,
            device=self.device,
            dtype=self.dtype,
        )
