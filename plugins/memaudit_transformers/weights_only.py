"""Recurrent layers from stored weights alone: names and shapes make a model without a forward."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from memaudit.errors import SourceError, clean, listed
from memaudit.interfaces import AbstractSubject
from memaudit.loading import require_finite
from memaudit.loading.access import human_size
from memaudit.report import Identity
from memaudit_transformers.building import empty_model
from memaudit_transformers.kinds import LOOKALIKE, Recurrent, find_recurrences, spectra_of
from memaudit_transformers.structure import advertised_length, find_core

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from memaudit.loading.stored import StoredWeights
    from memaudit.modes import LayerSpectrum

#: No model nests its layers deeper.
DEEPEST = 32
#: Bytes of decays of a whole model that are read at the most: those of real ones take a few MB.
MOST = 1 << 30
#: What cannot be computed of tensors that are shaped as no layer has them.
ODD = (ArithmeticError, IndexError, RuntimeError, TypeError, ValueError, AssertionError)
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
    try:
        return _subject_of(stored)
    except ODD as error:
        raise SourceError(
            "E_CORRUPT",
            f"a recurrent layer has tensors of impossible shapes: {clean(error, limit=200)}",
            hint="copy or download the weights again",
            stage="recognise",
        ) from None


def _subject_of(stored: StoredWeights) -> WeightsSubject | None:
    config, tensors = stored.config, stored.tensors
    model = skeleton(tensors)
    known = [r for r in find_recurrences(model) if not _unused(r, tensors)]
    if not known:
        return None
    wanted = [name for recurrent in known for name in needed(recurrent)]
    _require_numbers(stored, wanted)
    read = stored.read(wanted)
    require_finite(read, source=stored.source.text)
    for name, tensor in read.items():
        _put(model, name, nn.Parameter(tensor, requires_grad=False))
    library = empty_model(config) if stored.gguf is None else None
    theirs = () if library is None else find_recurrences(find_core(library).module)
    recurrents = [_as_in(r, read, theirs) for r in known]
    found = spectra_of(recurrents, lambda _: None, None)
    _require_modes(found)
    others = [n for n in tensors if LOOKALIKE.search(n) and n not in read]
    others = [n for n in others if not any(_inside(n, r.layer) for r in known)]
    notes = [stored.note, *stored.checkpoint.notes]
    if others:
        shown = listed(map(clean, others), most=SHOWN)
        notes.append(f"recurrent-looking tensors that were not matched: {shown}")
    alone = sum(one is own for one, own in zip(recurrents, known, strict=True))
    if alone:
        notes.append(
            f"{alone} of {len(known)} layers stand in no model of the library, by the config that "
            "is there: where one bounds its steps, that is not known here"
        )
    total = sum(tensor.numel() for tensor in tensors.values())
    identity = Identity(
        source=stored.source.text,
        adapter="transformers",
        family=clean(config.get("model_type") or "recurrent layers", limit=60),
        parameters=total,
        dtype=" and ".join(sorted({clean(stored.formats[name]) for name in read})),
        device="cpu",
        sha256=stored.sha256,
        description=f"{len(recurrents)} recurrent layers, from stored weights alone",
        coverage=sum(tensor.numel() for tensor in read.values()) / max(total, 1),
        recurrences=tuple(recurrent.record() for recurrent in recurrents),
        notes=tuple(notes),
    )
    return WeightsSubject(identity, found, advertised_length(SimpleNamespace(**config)))


def _inside(name: str, layer: str) -> bool:
    return name.startswith(f"{layer}.") if layer else "." not in name


def _unused(recurrent: Recurrent, tensors: Mapping[str, Tensor]) -> list[str]:
    """What looks like a decay in the layer and is none of its kind: then it is of another kind."""
    ends = (*recurrent.kind.decays, *recurrent.kind.resting)
    inside = [n for n in tensors if LOOKALIKE.search(n) and _inside(n, recurrent.layer)]
    return [n for n in inside if not any(f".{n}".endswith(f".{end}") for end in ends)]


def _require_numbers(stored: StoredWeights, names: Iterable[str]) -> None:
    """Refuse integers, whose scale is not known, and more bytes than decays ever have."""
    size = 0
    for name in names:
        tensor = stored.tensors[name]
        size += tensor.numel() * tensor.itemsize
        # One byte holds no number without a scale: those are quantised weights.
        if not tensor.is_floating_point() or tensor.itemsize < 2:
            raise SourceError(
                "E_UNSUPPORTED",
                f"{clean(name)} is stored as {clean(stored.formats[name])}, whose scale is unknown",
                hint="give the checkpoint that it was quantised from",
                stage="recognise",
            )
    if size > MOST:
        fact = f"the decays take {human_size(size)}, more than {human_size(MOST)}"
        raise SourceError("E_LIMIT", fact, hint="is this a model?", stage="recognise")


def _require_modes(found: Iterable[LayerSpectrum]) -> None:
    for layer in found:
        if not np.isfinite(np.asarray(layer.eigenvalues)).all():
            raise SourceError(
                "E_WEIGHTS",
                f"the modes of {clean(layer.layer)} are not finite",
                hint="train or export the model again",
                stage="recognise",
            )


def _as_in(
    recurrent: Recurrent, numbers: Mapping[str, Tensor], known: Iterable[Recurrent]
) -> Recurrent:
    """The layer of the library at the same place, with the stored numbers in it.

    Its own code makes limits of steps, caps and bounds of the config.
    """
    stored = {_end(recurrent, name): name for name in needed(recurrent)}
    for layer in known:
        own = {_end(layer, name): name for name in needed(layer)}
        if layer.cell != recurrent.cell or own.keys() != stored.keys():
            continue
        if _same_place(recurrent.layer, layer.layer):
            for end, name in own.items():
                inside = name.removeprefix(f"{layer.layer}.")
                shape = layer.module.get_parameter(inside).shape
                number = numbers[stored[end]]
                if number.numel() != shape.numel():
                    fact = f"config.json does not fit: {clean(name)} has another size"
                    hint = "put the config of these weights beside them"
                    raise SourceError("E_WEIGHTS", fact, hint=hint, stage="recognise")
                value = nn.Parameter(number.reshape(shape), requires_grad=False)
                _put(layer.module, inside, value)
            return layer
    return recurrent


def _same_place(stored: str, known: str) -> bool:
    """Whether one path ends as the other, or as that of the module around it."""
    paths = {known, known.rpartition(".")[0]} - {""}
    pairs = (sorted((f".{stored}", f".{path}"), key=len) for path in paths)
    return any(long.endswith(short) for short, long in pairs)


def _end(recurrent: Recurrent, name: str) -> str:
    """Which of the weights of its kind a name is."""
    ends = recurrent.kind.resting or recurrent.kind.decays
    return max((end for end in ends if f".{name}".endswith(f".{end}")), key=len)


def needed(recurrent: Recurrent) -> Iterator[str]:
    """The tensors that the modes at rest are made of."""
    ends = recurrent.kind.resting or recurrent.kind.decays
    for name, _ in recurrent.module.named_parameters():
        if any(f".{name}".endswith(f".{end}") for end in ends):
            yield f"{recurrent.layer}.{name}" if recurrent.layer else name


def skeleton(tensors: Mapping[str, Tensor]) -> nn.Module:
    """Modules nested as the names are, whose tensors have shapes and no numbers."""
    model = nn.Module()
    named = {name: tensor for name, tensor in tensors.items() if name.count(".") < DEEPEST}
    for name, tensor in named.items():
        if name.endswith(".weight") and tensor.ndim == 2:
            rows, columns = tensor.shape
            _put(model, name, nn.Linear(columns, rows, bias=False, device="meta"), depth=1)
    for name, tensor in named.items():
        _put(model, name, nn.Parameter(tensor.to("meta"), requires_grad=False))
    return model


def _put(model: nn.Module, name: str, what: nn.Parameter | nn.Module, *, depth: int = 0) -> None:
    """Put a parameter where its name says, or a module in place of the one `depth` above it."""
    *path, own = name.split(".")[: None if not depth else -depth]
    for part in path:
        model = model._modules.setdefault(part, nn.Module())  # type: ignore[assignment]
    kept = model._parameters if isinstance(what, nn.Parameter) else model._modules
    kept[own] = what  # type: ignore[assignment]
