"""Opening a model from files: weights, a config.json, and perhaps a tokenizer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from memaudit.errors import ArgumentError, clean, listed
from memaudit.loading import require_finite
from memaudit_transformers.building import Built, build
from memaudit_transformers.classes import named_class
from memaudit_transformers.configuring import config_error, make_config
from memaudit_transformers.describing import SHOWN, describe
from memaudit_transformers.examining import examine
from memaudit_transformers.library import known_types
from memaudit_transformers.original import Translated, family_of, translate
from memaudit_transformers.remote import folder_of, is_trusted, refuse_unknown, remote_classes
from memaudit_transformers.subject import TransformersSubject
from memaudit_transformers.tokenizer import open_tokenizer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from memaudit.contracts import Request
    from memaudit.loading.source import Source
    from memaudit_transformers.settings import Settings

#: Up to this many numbers a model is run in float64: 256 MB of weights.
FLOAT64 = 1 << 25


def open_file(source: Source, request: Request, settings: Settings) -> TransformersSubject:
    """The subject behind a checkpoint."""
    checkpoint = source.checkpoint
    require_finite(checkpoint.tensors, source=source.text)
    meant = _meant(checkpoint.library_config, checkpoint.tensors)
    dtype, assumed = choose_dtype(request, checkpoint.tensors)
    built, notes = _built(source, meant, dtype, settings.architecture)
    model = built.model.to(request.device)
    examined = examine(model, dtype, settings)
    tokens, said = open_tokenizer(folder_of(source), examined.vocabulary)
    unread = (f"not run: {listed(map(clean, built.unread), most=SHOWN)}",) if built.unread else ()
    identity = describe(
        examined,
        source=source.text,
        sha256=checkpoint.sha256,
        stored=_stored(model, built, checkpoint.tensors),
        assumed={**built.assumed, **assumed},
        notes=(*checkpoint.notes, *meant.notes, *notes, *built.notes, *unread, *said),
    )
    return TransformersSubject(examined, identity, tokens=tokens)


def choose_dtype(
    request: Request, tensors: Mapping[str, Tensor]
) -> tuple[torch.dtype, dict[str, str]]:
    """The dtype that was asked for, else float64 for models that are small enough for it."""
    if request.dtype is not None:
        return request.dtype, {}
    numbers = sum(tensor.numel() for tensor in tensors.values())
    if request.device.type == "mps":
        return torch.float32, {"dtype": "float32 (the device has no float64)"}
    if numbers <= FLOAT64:
        return torch.float64, {"dtype": f"float64 (up to {FLOAT64} numbers; --dtype to change)"}
    return torch.float32, {"dtype": f"float32 (beyond {FLOAT64} numbers; --dtype to change)"}


def _meant(config: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Translated:
    """The config and the tensors as transformers names them."""
    family = None if "model_type" in config else family_of(tensors)
    if family is not None:
        return translate(family, config, tensors)
    return Translated(dict(config), dict(tensors), ())


def _built(
    source: Source, meant: Translated, dtype: torch.dtype, asked: str | None
) -> tuple[Built, tuple[str, ...]]:
    model_type = str(meant.values.get("model_type", ""))
    if model_type in known_types():
        config = make_config(meant.values)
        only = None if asked is None else _asked(config, asked)
        return build(config, meant.tensors, dtype, only=only), ()
    if not model_type:
        raise config_error("it states no model_type")
    if not is_trusted(source):
        raise refuse_unknown(source, model_type)
    names = meant.values.get("architectures")
    named = names[0] if isinstance(names, list) and names else None
    remote = remote_classes(source, named if isinstance(named, str) else None)
    config = make_config(meant.values, remote.config)
    return build(config, meant.tensors, dtype, trusted=remote.model), remote.notes


def _asked(config: Any, name: str) -> type[Any]:
    """The class that the user names, if it is made for this config."""
    config.architectures = [name]
    found = named_class(config)
    if found is None:
        raise ArgumentError(
            f"transformers has no class {clean(name)} for {type(config).__name__}",
            hint="leave architecture alone to let config.json and the tensors decide",
        )
    return found


def _stored(model: Any, built: Built, tensors: Mapping[str, Tensor]) -> int:
    """The numbers of the model and of the heads in the file that it has no place for."""
    own = sum(parameter.numel() for parameter in model.parameters())
    return own + sum(tensors[name].numel() for name in built.unread if name in tensors)
