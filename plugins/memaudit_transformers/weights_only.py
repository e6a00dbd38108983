"""Recurrent layers from stored weights alone: names and shapes make a model without a forward."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from memaudit.errors import SourceError, clean, listed
from memaudit.interfaces import AbstractSubject
from memaudit.loading import require_finite
from memaudit.report import Identity
from memaudit_transformers.kinds import LOOKALIKE, Recurrent, find_recurrences, spectra_of
from memaudit_transformers.structure import advertised_length

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from memaudit.loading.stored import StoredWeights
    from memaudit.modes import LayerSpectrum

#: Values of a config that layers keep as attributes, and that bound their modes.
BOUNDS = ("time_step_limit", "safe_gate", "safe_gate_lower_bound", "lower_bound")
#: Names that are shown of tensors that were not matched.
SHOWN = 6


class WeightsSubject(AbstractSubject):
    """The recurrent layers of a model of which only their decays were read; it cannot be run."""

    input_size = None
    pooled = False
    device = torch.device("cpu")
    dtype = torch.float64

    def __init__(
        self, identity: Identity, found: tuple[LayerSpectrum, ...], advertised: int | None
    ) -> None:
        self.identity, self._found, self.advertised = identity, found, advertised

    def respond(self, inputs: Tensor) -> Tensor:
        """Refused: most weights were not read."""
        raise SourceError(
            "E_UNSUPPORTED",
            "only the weights that make the modes were read",
            hint="leave --weights-only out",
            stage="measure",
        )

    def spectra(self, inputs: Tensor | None = None) -> tuple[LayerSpectrum, ...]:
        """Those at rest."""
        return self._found


def subject_of(stored: StoredWeights) -> WeightsSubject | None:
    """The subject; None where no layer of a known kind is among the weights."""
    config, tensors = stored.config, stored.tensors
    model = skeleton(tensors, config)
    recurrents = find_recurrences(model)
    if not recurrents:
        return None
    names = {name for recurrent in recurrents for name in needed(recurrent)}
    read = stored.read(sorted(names))
    require_finite(read, source=stored.source.text)
    for name, tensor in read.items():
        _put(model, name, nn.Parameter(tensor, requires_grad=False))
    recurrents = find_recurrences(model)
    found = spectra_of(recurrents, lambda _: None, None)
    owned = tuple(f"{recurrent.layer}." for recurrent in recurrents)
    others = [n for n in tensors if LOOKALIKE.search(n) and not n.startswith(owned)]
    notes = [stored.note, *stored.checkpoint.notes]
    if others:
        names = listed(map(clean, others), most=SHOWN)
        notes.append(f"recurrent-looking tensors that were not matched: {names}")
    total = sum(tensor.numel() for tensor in tensors.values())
    dtypes = sorted({clean(stored.formats[name]) for name in read})
    identity = Identity(
        source=stored.source.text,
        adapter="transformers",
        family=clean(config.get("model_type") or "recurrent layers", limit=60),
        parameters=total,
        dtype=" and ".join(dtypes),
        device="cpu",
        sha256=stored.sha256,
        description=f"{len(recurrents)} recurrent layers, from stored weights alone",
        coverage=sum(tensor.numel() for tensor in read.values()) / max(total, 1),
        recurrences=tuple(recurrent.record() for recurrent in recurrents),
        notes=tuple(notes),
    )
    return WeightsSubject(identity, found, advertised_length(SimpleNamespace(**config)))


def needed(recurrent: Recurrent) -> Iterator[str]:
    """The tensors that the modes at rest are made of."""
    ends = recurrent.kind.resting or recurrent.kind.decays
    for name, _ in recurrent.module.named_parameters():
        if any(f".{name}".endswith(f".{end}") for end in ends):
            yield f"{recurrent.layer}.{name}" if recurrent.layer else name


def skeleton(tensors: Mapping[str, Tensor], config: Mapping[str, Any]) -> nn.Module:
    """Modules nested as the names are, whose tensors have shapes and no numbers."""
    model, settings = nn.Module(), SimpleNamespace(**config)
    for name, tensor in tensors.items():
        if name.endswith(".weight") and tensor.ndim == 2:
            rows, columns = tensor.shape
            _put(model, name, nn.Linear(columns, rows, bias=False, device="meta"), depth=1)
    for name, tensor in tensors.items():
        _put(model, name, nn.Parameter(tensor.to("meta"), requires_grad=False))
    for module in model.modules():
        module.config = settings  # type: ignore[assignment]
        for key in BOUNDS:
            if key in config:
                setattr(module, key, config[key])
    return model


def _put(model: nn.Module, name: str, what: nn.Parameter | nn.Module, *, depth: int = 0) -> None:
    """Put a parameter where its name says, or a module in place of the one `depth` above it."""
    *path, own = name.split(".")[: None if not depth else -depth]
    for part in path:
        model = model._modules.setdefault(part, nn.Module())  # type: ignore[assignment]
    kept = model._parameters if isinstance(what, nn.Parameter) else model._modules
    kept[own] = what  # type: ignore[assignment]
