"""State-space layers whose surroundings are not known: each is audited by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from memaudit.contracts import AbstractSubject
from memaudit.numerics.inputs import checked_inputs
from memaudit.subjects.hosts import AbstractHost
from memaudit_ssm.opening import parts
from memaudit_ssm.opening.perturbing import perturbable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from memaudit.contracts import AbstractLinearPart, AbstractPerturbable
    from memaudit.report import Identity
    from memaudit.spectrum.result import LayerSpectrum as Spectrum
    from memaudit_ssm.layers.core import Core


class LayerSubject(AbstractSubject):
    """One recurrent layer, without what stands around it."""

    def __init__(
        self,
        name: str,
        core: Core,
        identity: Identity,
        *,
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        self.name = name
        self.core = core.eval().requires_grad_(False)
        self.identity = identity
        self.input_size = core.width
        self.pooled = False
        self.device = device
        self.dtype = dtype

    def respond(self, inputs: Tensor) -> Tensor:
        """Answer (B,T,D) floats by (B,T,M)."""
        with torch.no_grad():
            return self._answer(self.core, inputs)

    def perturbable(self) -> AbstractPerturbable:
        return perturbable(self.core, {self.name: self.core}, self._answer)

    def weights(self) -> Mapping[str, Tensor]:
        return self.core.state_dict()

    def live_modules(self) -> Mapping[str, nn.Module]:
        return {"": self.core}

    def spectra(self, inputs: Tensor | None = None) -> tuple[Spectrum, ...]:
        del inputs
        return parts.spectra({self.name: self.core})

    def linear_parts(self) -> Mapping[str, AbstractLinearPart]:
        return parts.linear_parts({self.name: self.core})

    def _answer(self, core: nn.Module, inputs: Tensor) -> Tensor:
        checked = checked_inputs(
            inputs, width=self.core.width, vocabulary=None, device=self.device, dtype=self.dtype
        )
        return core(checked)


class LayerHost(AbstractHost[LayerSubject]):
    """A host of recurrent layers."""

    called = "layers"

    def live_modules(self) -> Mapping[str, nn.Module]:
        return {name: part.core for name, part in self._parts.items()}

    def spectra(self, inputs: Tensor | None = None) -> tuple[Spectrum, ...]:
        return tuple(item for part in self._parts.values() for item in part.spectra(inputs))

    def linear_parts(self) -> Mapping[str, AbstractLinearPart]:
        return {k: v for part in self._parts.values() for k, v in part.linear_parts().items()}
