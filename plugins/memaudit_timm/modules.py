"""A model of timm that is in memory already: a copy of it is audited."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

from torch import nn

from memaudit.errors import SourceError, clean
from memaudit.loading import require_finite
from memaudit.loading.filling import digest_tensors
from memaudit_timm.loaded import Loaded

if TYPE_CHECKING:
    from memaudit.contracts import Request


def load_module(text: str, module: object, request: Request) -> Loaded:
    """A copy of the module, in the dtype of the request or its own; the module is left alone."""
    if not isinstance(module, nn.Module) or not any(True for _ in module.parameters()):
        raise SourceError("E_UNSUPPORTED", f"{clean(text)} is no model with weights")
    state = dict(module.state_dict())
    require_finite(state, source=text)
    ours = copy.deepcopy(module).eval().requires_grad_(False)
    if request.dtype is not None:
        ours = ours.to(request.dtype)
    config = getattr(module, "pretrained_cfg", None)
    stated = config.get("architecture") if isinstance(config, dict) else None
    name = clean(stated) if stated else type(module).__name__
    return Loaded(text, ours, name, digest_tensors(state), {}, ())
