"""A model of timm, built without its loaders and without moving the global random numbers."""

from __future__ import annotations

import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from memaudit.errors import SourceError, clean
from memaudit_timm.library import timm_library

if TYPE_CHECKING:
    from collections.abc import Iterator

    from memaudit_timm.origins import Origin

#: What timm raises when sizes do not fit together.
BUILD_ERRORS = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    NotImplementedError,
    RuntimeError,
    TypeError,
    ValueError,
)
#: The random initialisation that `pretrained=false` asks for.
SEED = 0


def build_blank(origin: Origin) -> nn.Module:
    """The model without memory for its numbers."""
    with torch.device("meta"):
        return _create(origin)


def build_random(origin: Origin) -> nn.Module:
    """The model with timm's own initialisation, the same at every call."""
    with _seeded(torch.Generator().manual_seed(SEED)):
        return _create(origin)


def unsaved_buffers(model: nn.Module) -> list[str]:
    """Buffers that no file holds, such as tables of positions: building computes them."""
    saved = model.state_dict()
    return [name for name, _ in model.named_buffers() if name not in saved]


def count_numbers(model: nn.Module) -> int:
    """All numbers that the model would hold, unsaved buffers among them."""
    return sum(t.numel() for t in (*model.parameters(), *model.buffers()))


def _create(origin: Origin) -> nn.Module:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # deprecated names are mapped to the present ones
            return timm_library().create_model(
                origin.architecture,
                pretrained=False,
                pretrained_cfg=origin.config,
                **origin.sizes,
            )
    except BUILD_ERRORS as error:
        raise SourceError(
            "E_CONFIG",
            f"timm cannot build {origin.architecture} with {clean(_shown(origin.sizes))}: "
            f"{type(error).__name__}: {clean(error)}",
            hint="look at model_args in the config, or give them with --set model_args=...",
            stage="config",
        ) from error


def _shown(sizes: dict[str, Any]) -> str:
    return ", ".join(f"{key}={value}" for key, value in sizes.items()) or "its own sizes"


@contextmanager
def _seeded(generator: torch.Generator) -> Iterator[None]:
    """Let code that draws from the global generator draw from this one instead."""
    with torch.random.fork_rng(devices=[]):
        torch.set_rng_state(generator.get_state())
        yield
