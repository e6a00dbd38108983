"""Diagonal linear systems under any reparameterization, with their weights as an argument."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from memaudit.interfaces import AbstractPerturbable, AbstractReparam, AbstractSubject, Role
from memaudit.modes import LayerSpectrum as Spectrum
from memaudit.modes import spectrum
from memaudit.report import Identity


class DiagonalCopies(AbstractPerturbable):
    """y_t = sum_i c_i sum_s lam_i^s u_{t-s}, lam_i = f(w_i), or e^{dt f(w_i)} and a phase."""

    def __init__(
        self,
        form: AbstractReparam,
        lam: Tensor,
        *,
        dt: float = 0.1,
        phase: float = 0.0,
        layer: str = "mixer",
    ) -> None:
        draw = torch.Generator().manual_seed(3)
        w = form.inverse(lam)
        readout = torch.randn(len(w), generator=draw, dtype=torch.float64)
        self.form, self.dt, self.phase, self.layer = form, dt, phase, layer
        self.weights: Mapping[str, Tensor] = {"w": w, "c": readout}
        self.roles: Mapping[str, Role] = {
            "w": Role("recurrent", "diagonal", layer),
            "c": Role("readout", "vector", layer),
        }

    def respond(self, inputs: Tensor, moved: Mapping[str, Tensor]) -> Tensor:
        lam, readout = self._modes(moved), moved.get("c", self.weights["c"][None])
        steps = inputs.shape[1]
        powers = lam[:, None] ** torch.arange(steps)[:, None]
        kernel = (powers * readout[:, None]).sum(-1).real
        later = torch.arange(steps)
        lag = later[:, None] - later
        matrix = torch.where(lag >= 0, kernel[:, lag.clamp(min=0)], 0.0)
        return torch.einsum("kts,bsd->kbtd", matrix.to(inputs), inputs)

    def modes(self, moved: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        return {self.layer: self._modes(moved)}

    def _modes(self, moved: Mapping[str, Tensor]) -> Tensor:
        rate = self.form.forward(moved.get("w", self.weights["w"][None]))
        size = (self.dt * rate).exp() if self.form.time == "continuous" else rate
        turn = torch.polar(torch.ones_like(size), torch.full_like(size, self.phase))
        return size * turn if self.phase else torch.complex(size, torch.zeros_like(size))


class DiagonalSubject(AbstractSubject):
    """One diagonal layer of one input and one output."""

    identity = Identity("diagonal", "wrap", "diagonal", 0, "float64", "cpu")
    input_size = 1
    pooled = False
    device = torch.device("cpu")
    dtype = torch.float64

    def __init__(self, copies: AbstractPerturbable | None, *, named: str = "") -> None:
        self.copies, self.named = copies, named

    def respond(self, inputs: Tensor) -> Tensor:
        return inputs if self.copies is None else self.copies.respond(inputs, {})[0]

    def spectra(self, inputs: Tensor | None = None) -> tuple[Spectrum, ...]:
        del inputs
        if self.copies is None or not self.named:
            return ()
        modes = self.copies.modes({})["mixer"][0].detach()
        facts = {"layer": "mixer", "cell": "diagonal", "parameterization": self.named}
        return (spectrum(**facts, at="every step", eigenvalues=modes.numpy()),)

    def perturbable(self) -> AbstractPerturbable | None:
        return self.copies


class SharedRates(DiagonalCopies):
    """Rates that two channels share, whose steps are `log_dt`: modes in blocks, or as neighbours.

    Steps e^{log_dt} scale the modes as rates e^w do; only their name tells them apart.
    """

    def __init__(self, form: AbstractReparam, lam: Tensor, *, blocks: bool) -> None:
        super().__init__(form, lam)
        self.blocks = blocks
        steps = torch.tensor([0.05, 0.2], dtype=torch.float64).log()
        self.weights = {"log_dt": steps, **self.weights}
        self.roles = {"log_dt": Role("recurrent", "diagonal", self.layer), **self.roles}

    def _modes(self, moved: Mapping[str, Tensor]) -> Tensor:
        rate = self.form.forward(moved.get("w", self.weights["w"][None]))
        steps = moved.get("log_dt", self.weights["log_dt"][None]).exp()
        both = torch.einsum("kd,kn->kdn" if self.blocks else "kd,kn->knd", steps, rate)
        return both.exp().flatten(1).to(torch.complex128)

    def respond(self, inputs: Tensor, moved: Mapping[str, Tensor]) -> Tensor:
        ones = {**moved, "c": torch.ones(1, 2 * len(self.weights["w"]), dtype=torch.float64)}
        return super().respond(inputs, ones)
