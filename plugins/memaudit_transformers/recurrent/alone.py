"""A recurrent layer by itself: (B,T,D) floats in, (B,T,M) floats out."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn.utils import parametrize

from memaudit.contracts import AbstractSubject
from memaudit.errors import SourceError, clean
from memaudit.numerics.wide_floats import really_float64
from memaudit.report import Identity
from memaudit_transformers.living import live_weights
from memaudit_transformers.recurrent.fast import fast_scans
from memaudit_transformers.recurrent.finding import find_recurrences
from memaudit_transformers.recurrent.spectra import spectra_of
from memaudit_transformers.recurrent.taps import decays_of

if TYPE_CHECKING:
    from torch import Tensor

    from memaudit.spectrum.result import LayerSpectrum as Spectrum


class LayerAlone(AbstractSubject):
    """A copy of one layer of a model, without the layers before and behind it.

    Under a constant input the decays of the layer settle, and from then on it is linear and
    time-invariant: its slowest mode can be measured and compared with its spectrum.
    """

    pooled = False

    def __init__(self, module: nn.Module, *, name: str, dtype: torch.dtype = torch.float64) -> None:
        self.module = copy.deepcopy(module).to(dtype).eval()
        for part in self.module.modules():  # left behind by whoever ran the model before
            if "recurrent_states" in vars(part):
                vars(part)["recurrent_states"] = None
        self.name = name
        self.dtype = dtype
        self.device = next(self.module.parameters()).device
        self.input_size = _width(self.module)
        self.recurrents = find_recurrences(self.module)
        kind = clean(parametrize.type_before_parametrizations(module).__name__)
        self.identity = Identity(
            source=clean(name),
            adapter="transformers",
            family=kind,
            parameters=sum(parameter.numel() for parameter in self.module.parameters()),
            dtype=str(dtype).removeprefix("torch."),
            device=str(self.device),
            description=f"{kind} alone",
            recurrences=tuple(recurrent.record() for recurrent in self.recurrents),
        )

    def respond(self, inputs: Tensor) -> Tensor:
        inputs = inputs.to(self.device, self.dtype)
        with (
            torch.no_grad(),
            fast_scans(self.module),
            really_float64(self.dtype),
            _unremembered(self.module),
        ):
            answer = self.module(inputs, **_company(self.module, inputs))
        while isinstance(answer, tuple | list):
            answer = answer[0]
        return answer

    def weights(self) -> Mapping[str, Tensor]:
        return live_weights(self.module)

    def live_modules(self) -> Mapping[str, nn.Module]:
        return {"": self.module}

    def spectra(self, inputs: Tensor | None = None) -> tuple[Spectrum, ...]:
        return spectra_of(self.module, self.recurrents, self.respond, inputs)

    def decays(self, inputs: Tensor) -> dict[str, Tensor]:
        """Layer → its decays (B,T,…) over the inputs."""
        return decays_of(self.module, self.recurrents, self.respond, inputs)


def _width(module: nn.Module) -> int:
    """What the first projection takes; a recurrence without one takes one number per mode."""
    linear = next((m for m in module.modules() if isinstance(m, nn.Linear)), None)
    if linear is not None:
        return linear.in_features
    found = find_recurrences(module)
    if not found:
        raise SourceError(
            "E_UNSUPPORTED",
            f"{clean(type(module).__name__)} has no recurrence that is known",
            stage="build",
        )
    return found[0].size


def _company(module: nn.Module, inputs: Tensor) -> dict[str, Any]:
    """The other arguments that the layer cannot do without; no padding and no cache."""
    batch, length, _ = inputs.shape
    positions = torch.arange(length, device=inputs.device).expand(batch, length)
    given = {"position_ids": positions, "attention_mask": None, "use_cache": False}
    names = inspect.signature(module.forward).parameters
    return {name: value for name, value in given.items() if name in names}


@contextmanager
def _unremembered(module: nn.Module) -> Iterator[None]:
    """What a layer keeps on itself is put back, so that every answer starts afresh."""
    before = [(vars(part), dict(vars(part))) for part in module.modules()]
    try:
        yield
    finally:
        for now, then in before:
            for name in [name for name in now if name not in then]:
                del now[name]
            now.update(then)
