"""Opening a model of the library that is in memory, without touching it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from memaudit.errors import ArgumentError, SourceError
from memaudit.loading import require_finite
from memaudit.loading.filling import digest_tensors
from memaudit_transformers.calm import copied, is_rescaled, undo_rescaling
from memaudit_transformers.describing import describe
from memaudit_transformers.examining import examine
from memaudit_transformers.subject import TransformersSubject

if TYPE_CHECKING:
    from memaudit.contracts import Request
    from memaudit_transformers.settings import Settings


def open_module(text: str, model: Any, request: Request, settings: Settings) -> TransformersSubject:
    """The subject of a model; a copy of it where another dtype is asked for."""
    if settings.architecture is not None:
        raise ArgumentError("architecture is an option of files, not of modules in memory")
    tensors = {name: value for name, value in model.state_dict().items() if torch.is_tensor(value)}
    empty = [name for name, tensor in tensors.items() if tensor.is_meta]
    if empty:
        raise SourceError(
            "E_WEIGHTS",
            f"{len(empty)} tensors of the module hold no numbers, {empty[0]} among them",
            hint="load the weights first",
            stage="open",
        )
    require_finite(tensors, source=text)
    own = _dtype(model)
    dtype = request.dtype or own
    if dtype != own or is_rescaled(model):
        model = copied(model).to(dtype)
    if is_rescaled(model):
        undo_rescaling(model)
    examined = examine(model, dtype, settings)
    identity = describe(examined, source=text, sha256=digest_tensors(tensors), assumed={}, notes=())
    return TransformersSubject(examined, identity)


def _dtype(model: torch.nn.Module) -> torch.dtype:
    """The dtype of the first weights: where several are mixed, that of the embedding."""
    found = [p.dtype for p in model.parameters() if p.is_floating_point()]
    if not found:
        raise SourceError("E_WEIGHTS", "the module has no weights", stage="open")
    return found[0]
