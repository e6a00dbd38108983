"""A whole state-space model made audible."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from memaudit.contracts import AbstractSubject
from memaudit.numerics.inputs import checked_inputs
from memaudit_ssm.opening import parts
from memaudit_ssm.opening.perturbing import perturbable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from memaudit.contracts import AbstractLinearPart, AbstractPerturbable
    from memaudit.report import Identity
    from memaudit.spectrum.result import LayerSpectrum as Spectrum
    from memaudit_ssm.models.net import SequenceNet


class NetSubject(AbstractSubject):
    """A model that was rebuilt from its checkpoint; `net` has the names of the original."""

    def __init__(
        self, net: SequenceNet, identity: Identity, *, device: torch.device, dtype: torch.dtype
    ) -> None:
        self.net = net.eval().requires_grad_(False)
        self.identity = identity
        self.input_size = net.width
        self.pooled = net.pooled
        self.vocabulary = None if net.table is None else net.table.num_embeddings
        self.device = device
        self.dtype = dtype

    def respond(self, inputs: Tensor) -> Tensor:
        """Answer (B,T,D) floats, or (B,T) token ids, by (B,T,M), or by (B,M) when pooled."""
        return self._answer(inputs, None)

    def layers(self) -> tuple[str, ...]:
        return self.net.blocks()

    def listen(self, inputs: Tensor, hear: Callable[[str, Tensor], None]) -> Tensor:
        return self._answer(inputs, hear)

    def natural_inputs(self, count: int, generator: torch.Generator) -> Tensor | None:
        """Embeddings of distinct tokens, for a model that takes tokens."""
        table = self.net.table
        if table is None:
            return None
        ids = torch.randperm(table.num_embeddings, generator=generator)[:count].to(self.device)
        with torch.no_grad():
            return table(ids)

    def weights(self) -> Mapping[str, Tensor]:
        return self.net.state_dict()

    def live_modules(self) -> Mapping[str, nn.Module]:
        return {"": self.net}

    def spectra(self, inputs: Tensor | None = None) -> tuple[Spectrum, ...]:
        """The eigenvalues of every recurrent layer: they do not depend on the data."""
        del inputs
        return parts.spectra(self.net.cores())

    def linear_parts(self) -> Mapping[str, AbstractLinearPart]:
        return parts.linear_parts(self.net.cores())

    def perturbable(self) -> AbstractPerturbable:
        def call(net: nn.Module, inputs: Tensor) -> Tensor:
            return net(self._checked(inputs))

        return perturbable(self.net, self.net.cores(), call)

    def _answer(self, inputs: Any, hear: Callable[[str, Tensor], None] | None) -> Tensor:
        checked = self._checked(inputs)
        with torch.no_grad():
            table = None if checked.is_floating_point() else self.net.table
            return self.net(checked if table is None else table(checked), hear)

    def _checked(self, inputs: Any) -> Tensor:
        return checked_inputs(
            inputs,
            width=self.net.width,
            vocabulary=self.vocabulary,
            device=self.device,
            dtype=self.dtype,
        )
