"""One direction of a selective scan made audible."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from memaudit.contracts import AbstractPerturbable, AbstractSubject, Role
from memaudit.numerics.inputs import checked_inputs
from memaudit.perturbable import plain_name
from memaudit.spectrum.result import point, spectrum
from memaudit.subjects.copies import Copies as ModuleEnsemble
from memaudit.subjects.copies import ModeSource
from memaudit_ssm.hosts.scans import CELL
from memaudit_ssm.layers.stored import told_form

if TYPE_CHECKING:
    from memaudit.report import Identity
    from memaudit.spectrum.result import LayerSpectrum as Spectrum
    from memaudit_ssm.hosts.network import SelectiveScan

#: Shares of the inputs at which the data-dependent step size is taken.
QUANTILES = (0.05, 0.5, 0.95)
#: What the weights of a scan do, and how.
_ROLES: Mapping[str, tuple[str, str]] = {
    "A_log": ("recurrent", "diagonal"),
    "dt_bias": ("recurrent", "diagonal"),
    "dt_weight": ("input", "matrix"),
    "x_weight": ("input", "matrix"),
    "x_bias": ("input", "vector"),
    "D": ("readout", "diagonal"),
}


class ScanSubject(AbstractSubject):
    """A selective scan that answers batches (B,T,d) of what its host feeds it."""

    def __init__(self, name: str, network: SelectiveScan, identity: Identity) -> None:
        self.name = name
        self.network = network
        self.identity = identity
        self.input_size = network.A_log.shape[0]
        self.pooled = False
        self.device = network.A_log.device
        self.dtype = network.A_log.dtype

    def respond(self, inputs: Tensor) -> Tensor:
        """Answer (B,T,d) floats by (B,T,d)."""
        checked = self._checked(inputs)
        with torch.no_grad():
            return self.network(checked)

    def weights(self) -> Mapping[str, Tensor]:
        """The weights of the scan and its projections."""
        return self.network.state_dict()

    def live_modules(self) -> Mapping[str, nn.Module]:
        """The scan itself."""
        return {"": self.network}

    def perturbable(self) -> AbstractPerturbable:
        """The scan with its weights as an argument; its eigenvalues are those at rest."""
        roles = {
            name: Role(*_ROLES[plain_name(name)], self.name)
            for name, _ in self.network.named_parameters()
        }

        def call(network: Any, inputs: Tensor) -> Tensor:
            return network.stepped(self._checked(inputs))

        def modes(network: Any) -> Tensor:
            silence = self._silence().to(network.A_log.dtype)
            return torch.exp(network.steps(silence)[0, 0].unsqueeze(-1) * network.rates())

        sources = {self.name: ModeSource(self.network, modes)}
        return ModuleEnsemble(self.network, roles, call=call, modes=sources)

    def spectra(self, inputs: Tensor | None = None) -> tuple[Spectrum, ...]:
        """The eigenvalues exp(dt·A) at rest, and at quantiles of dt over the inputs (B,T,d)."""
        checked = None if inputs is None else self._checked(inputs)
        with torch.no_grad():
            rates = _numbers(self.network.rates())
            rest = _numbers(self.network.steps(self._silence())[0, 0])
            dt = None if checked is None else _numbers(self.network.steps(checked).flatten(0, 1))
        points = ()
        if dt is not None:
            taken = zip(QUANTILES, np.quantile(dt, QUANTILES, axis=0), strict=True)
            points = tuple(
                point(f"dt {100 * share:.0f} %", _modes(steps, rates)) for share, steps in taken
            )
        found = spectrum(
            layer=self.name,
            cell=CELL,
            parameterization=told_form(self.network, "A_log") or "exp",
            at="dt at its bias",
            eigenvalues=_modes(rest, rates),
            points=points,
        )
        return (found,)

    def _silence(self) -> Tensor:
        """One step of what is fed when nothing happens."""
        shape = (1, 1, len(self.network.A_log))
        return torch.zeros(shape, device=self.device, dtype=self.dtype)

    def _checked(self, inputs: Any) -> Tensor:
        return checked_inputs(
            inputs,
            width=len(self.network.A_log),
            vocabulary=self.vocabulary,
            device=self.device,
            dtype=self.dtype,
        )


def _modes(steps: np.ndarray, rates: np.ndarray) -> np.ndarray:
    """Eigenvalues exp(dt_c·A_cn) of every channel and state."""
    return np.exp(steps[:, None] * rates)


def _numbers(tensor: Tensor) -> np.ndarray:
    return tensor.detach().cpu().double().numpy()
