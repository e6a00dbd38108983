"""Weights of a checkpoint put into a model of timm, or its random initialisation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memaudit.errors import SourceError, clean
from memaudit.loading import fill, require_finite
from memaudit.loading.filling import digest_tensors
from memaudit_timm.building import (
    SEED,
    build_blank,
    build_random,
    count_numbers,
    unsaved_buffers,
)
from memaudit_timm.configs import short_names
from memaudit_timm.loaded import Loaded, choose_dtype

if TYPE_CHECKING:
    import torch
    from torch import nn

    from memaudit.contracts import Request
    from memaudit.loading.checkpoint import Checkpoint
    from memaudit_timm.origins import Origin

#: Numbers that a model may hold beyond those of the file: tables of positions.
FREE_NUMBERS = 1 << 26


def load_origin(text: str, origin: Origin, request: Request) -> Loaded:
    """The model behind an origin, on the device and in the dtype of the request."""
    blank = build_blank(origin)
    parameters = sum(parameter.numel() for parameter in blank.parameters())
    dtype, said = choose_dtype(request, parameters)
    if origin.checkpoint is None:
        model = build_random(origin)
        sha256 = digest_tensors(model.state_dict())
        model = model.to(dtype)
        said = (f"random initialisation by timm (seed {SEED}): no trained weights", *said)
    else:
        model = _filled(text, blank, origin, origin.checkpoint, dtype)
        sha256 = origin.checkpoint.sha256
        said = (*origin.checkpoint.notes, *said)
    ours = model.to(request.device).eval().requires_grad_(False)
    return Loaded(text, ours, origin.architecture, sha256, origin.assumed, said)


def _filled(
    text: str, blank: nn.Module, origin: Origin, checkpoint: Checkpoint, dtype: torch.dtype
) -> nn.Module:
    """The model with the weights of the file, proven by `fill` to be these and no others.

    A model with unsaved buffers is built with memory, once its size is known to be the file's.
    """
    tensors = checkpoint.tensors
    require_finite(tensors, source=text)
    loose = unsaved_buffers(blank)
    if loose:
        held = sum(tensor.numel() for tensor in tensors.values())
        asked = count_numbers(blank)
        if asked > held + FREE_NUMBERS:
            raise SourceError(
                "E_LIMIT",
                f"{clean(origin.architecture)} asks for {asked} numbers, the file holds {held}",
                hint="put the right config beside the weights",
                stage="config",
            )
        blank = build_random(origin)
    model = blank.to(dtype)
    fill(model, tensors, names=short_names(tensors), optional=loose, source=text)
    return model
