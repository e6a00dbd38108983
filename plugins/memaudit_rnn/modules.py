"""Opening the recurrent layers of a module in memory, without touching the module."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from torch import Tensor, nn

from memaudit.errors import ArgumentError, SourceError, clean
from memaudit.loading.filling import digest_tensors, require_finite
from memaudit.report import Identity
from memaudit_rnn import describing
from memaudit_rnn.host import RnnHost
from memaudit_rnn.keys import find_stacks
from memaudit_rnn.network import RecurrentNetwork
from memaudit_rnn.reading import read_stack
from memaudit_rnn.retrofitted import can_stay, made_weights, told_form, twin
from memaudit_rnn.stack import Stack, build
from memaudit_rnn.subject import RnnSubject

if TYPE_CHECKING:
    import torch

    from memaudit.contracts import AbstractSubject, Request
    from memaudit_rnn.settings import Settings

KINDS = (nn.RNNBase, nn.RNNCellBase)
NAMES = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")


@dataclass(frozen=True, slots=True)
class Found:
    """One recurrent layer of a module: its shape and a copy of its weights.

    `forms` are those of the weights that a retrofit has changed; `kept` is the layer itself where
    a copy of it can be run in them.
    """

    stack: Stack
    tensors: dict[str, Tensor]
    nonlinearity: str
    notes: tuple[str, ...]
    forms: dict[str, str]
    kept: nn.RNNBase | None = None

    def parameters(self) -> int:
        """How many weights it has."""
        return describing.count(self.tensors)


def recurrent_layers(module: object) -> dict[str, nn.Module]:
    """The recurrent layers in a module by their path; the module itself has the path ''."""
    if not isinstance(module, nn.Module):
        return {}
    return {name: part for name, part in module.named_modules() if isinstance(part, KINDS)}


def open_module(
    text: str, module: nn.Module, request: Request, settings: Settings
) -> AbstractSubject:
    """The subject of a bare recurrent layer, or the host of a module that contains some."""
    layers = recurrent_layers(module)
    if not layers:
        raise SourceError(
            "E_UNSUPPORTED",
            f"{text} contains no nn.RNN, nn.GRU, nn.LSTM or cell of them",
            hint="audit it as a function: memaudit.wrap(module, input_size=...)",
        )
    _check_options(settings)
    dropped = [name for name, _ in module.named_parameters() if name.endswith("_raw")]
    subjects = {}
    for path, layer in layers.items():
        found = _find(path, layer, dropped, request.dtype)
        subjects[found.stack.name] = _subject(text, found, request, settings)
    if "" in layers:
        return next(iter(subjects.values()))
    return RnnHost(subjects, _host_identity(text, module, subjects, settings))


def _find(path: str, layer: nn.Module, dropped: list[str], dtype: torch.dtype | None) -> Found:
    """The weights of one layer, read from a copy: a parametrization may change when it is read."""
    try:
        layer_copy = copy.deepcopy(layer).eval()
    except RuntimeError:  # the older weight norm keeps a tensor that cannot be copied
        layer_copy = layer
    names = NAMES
    if isinstance(layer_copy, nn.RNNBase):
        names = tuple(layer_copy._flat_weights_names)
    prefix = f"{path}." if path else ""
    values = {f"{prefix}{name}": getattr(layer_copy, name, None) for name in names}
    tensors = {name: t.detach().clone() for name, t in values.items() if isinstance(t, Tensor)}
    stack = read_stack(find_stacks(tensors)[0], tensors, dropped)
    own = not type(layer).forward.__module__.startswith("torch.")
    kept = layer if isinstance(layer, nn.RNNBase) and not own and can_stay(layer, dtype) else None
    forms = _forms(layer)
    end = "" if kept else "; it is run as the plain weight that this makes"
    notes = tuple(f"{prefix}{name} is kept as {form}{end}" for name, form in forms.items())
    if own:
        title = clean(type(layer).__name__.removeprefix("Parametrized"))
        notes += (f"{title} has a forward of its own; its weights are run as a plain {stack.cell}",)
    named = replace(stack, name=path or stack.name)
    return Found(named, tensors, _nonlinearity(layer), notes, forms, kept)


def _forms(layer: nn.Module) -> dict[str, str]:
    """The forms of the retrofitted weights."""
    told = {name: told_form(layer, name) for name in made_weights(layer)}
    return {name: form for name, form in told.items() if form}


def _nonlinearity(layer: nn.Module) -> str:
    return str(getattr(layer, "nonlinearity", "tanh"))


def _subject(text: str, found: Found, request: Request, settings: Settings) -> RnnSubject:
    require_finite(found.tensors, source=text)
    weight = next(iter(found.tensors.values()))
    dtype = request.dtype or weight.dtype
    made = {"nonlinearity": found.nonlinearity, "device": weight.device, "dtype": dtype}
    if found.kept is None:
        stack = build(found.stack, found.tensors, **made)
    else:
        stack = twin(found.kept, dtype)
    recurrences = found.stack.recurrences()
    identity = Identity(
        source=text,
        adapter="rnn",
        family="rnn",
        parameters=found.parameters(),
        dtype=describing.dtype_name(dtype),
        device=str(weight.device),
        sha256=digest_tensors(found.tensors),
        description=found.stack.title,
        recurrences=recurrences,
        notes=(*found.notes, *settings.notes()),
    )
    layers = tuple(layer.layer for layer in recurrences)
    # A cell is run as the first layer of a stack.
    end = "_l0" if found.stack.keys.is_cell else ""
    forms = {f"{name}{end}": form for name, form in found.forms.items() if found.kept is None}
    pool = settings.pool or "none"
    network = RecurrentNetwork(stack, pool=pool, layers=layers, forms=forms)
    return RnnSubject(network, identity)


def _host_identity(
    text: str, module: nn.Module, parts: dict[str, RnnSubject], settings: Settings
) -> Identity:
    first = next(iter(parts.values())).identity
    total = sum(parameter.numel() for parameter in module.parameters())
    used = sum(part.identity.parameters for part in parts.values())
    inside = "; ".join(f"{name} ({part.identity.description})" for name, part in parts.items())
    return replace(
        first,
        parameters=total,
        description=f"host of {inside}",
        coverage=min(1.0, used / max(total, 1)),
        recurrences=tuple(r for part in parts.values() for r in part.identity.recurrences),
        notes=(
            f"only the recurrent layers of {text} are run: {', '.join(parts)}",
            *(note for part in parts.values() for note in part.identity.notes),
        ),
    )


def _check_options(settings: Settings) -> None:
    """A module states its own nonlinearity, and nothing of it but the recurrent layers is run."""
    given = {
        "nonlinearity": settings.nonlinearity is not None,
        "encoder": settings.encoder not in ("auto", "none"),
        "head": settings.head not in ("auto", "none"),
        "output": settings.output == "logits",
    }
    for name, wrong in given.items():
        if wrong:
            raise ArgumentError(f"{name} is an option of files, not of modules in memory")
