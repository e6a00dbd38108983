"""What cannot be retrofitted, or not now, with a sentence that says why."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from memaudit.errors import ArgumentError, SourceError, clean
from memaudit.retrofitting.plain_state import retrofitted_names

if TYPE_CHECKING:
    from collections.abc import Iterable

#: What quantising libraries put on a model of transformers, and on parameters.
QUANTISED = ("quantization_method", "is_quantized", "is_loaded_in_8bit", "is_loaded_in_4bit")


def require_plain(modules: Iterable[nn.Module]) -> None:
    """Refuse a second retrofit, and quantised weights."""
    for module in modules:
        owners = [path for path, part in module.named_modules() if retrofitted_names(part)]
        if owners:
            raise ArgumentError(
                f"{clean(owners[0] or type(module).__name__)} is retrofitted already",
                hint="memaudit.fold(model) first",
            )
        told = _quantised(module)
        if told:
            raise SourceError(
                "E_UNSUPPORTED",
                f"the model is quantised ({clean(told)}): its weights cannot be trained in "
                "another form",
                hint="retrofit the model before it is quantised, and quantise what was folded",
                stage="retrofit",
            )


def require_no_optimizer(weights: Iterable[torch.Tensor]) -> None:
    """Refuse weights that an optimizer holds: it would go on training those of before."""
    asked = {id(weight) for weight in weights}
    for optimizer in _optimizers():
        held = (p for group in optimizer.param_groups for p in group.get("params", ()))
        if any(id(p) in asked for p in held):
            raise ArgumentError(
                f"the optimizer {clean(type(optimizer).__name__)} was built before the retrofit "
                "and would train weights that the model no longer has",
                hint="retrofit first, then build the optimizer",
            )


def nothing_recurrent(module: nn.Module) -> SourceError:
    """The refusal of a model without recurrent layers."""
    return SourceError(
        "E_UNSUPPORTED",
        f"nothing recurrent was found in {clean(type(module).__name__)}: there is no mode to put "
        "into another form",
        hint="memaudit scan shows which layers a model has",
        stage="retrofit",
    )


def _optimizers() -> list[torch.optim.Optimizer]:
    # By type alone: asking foreign objects for their class may run code of theirs.
    return [o for o in gc.get_objects() if issubclass(type(o), torch.optim.Optimizer)]


def _quantised(module: nn.Module) -> str:
    for name in QUANTISED:
        value: Any = getattr(module, name, None)
        if value:
            return name if value is True else str(value)
    for path, part in module.named_modules():
        library = type(part).__module__
        if library.startswith(("bitsandbytes", "torch.ao.nn.quantized", "torch.nn.quantized")):
            return f"{path}: {type(part).__name__}"
    whole = (n for n, p in module.named_parameters() if not _is_real(p))
    return next((f"{name} holds whole numbers" for name in whole), "")


def _is_real(weight: torch.Tensor) -> bool:
    return weight.is_floating_point() or weight.is_complex()
