"""Parameter groups for an optimizer: no weight decay on what makes the modes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from torch import nn

from memaudit.errors import ArgumentError
from memaudit.stored_decay import DiagonalDecay
from memaudit.training.recurrent_weights import recurrent_weights

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Weights that transformers does not decay either: biases, and the scales of norms.
UNDECAYED = re.compile(r"bias|layernorm|rmsnorm|(?:^|[._])norm(?:$|[._])", re.IGNORECASE)


def parameter_groups(
    model: nn.Module, *, weight_decay: float, lr: float | None = None
) -> list[dict[str, Any]]:
    """The parameters of a model in up to three groups, for any optimizer of torch.

    `decayed` has the weight decay; `undecayed`, biases and norms, has none; nor has `recurrent`:
    the raw weights of retrofitted layers, and rates that a model stores one by one, such as
    A_log. `lr` is the learning rate of that group alone. Raw weights are no sizes: to pull them
    to zero is to pull the modes to wherever the form has its middle.
    """
    if not weight_decay >= 0.0:
        raise ArgumentError(f"weight_decay is {weight_decay}", hint="give a number from 0 on")
    recurrent = undecayed_recurrent(model)
    named = {"decayed": [], "undecayed": [], "recurrent": []}
    scales = {id(p) for p in _scales(model)}
    for name, weight in model.named_parameters():
        if not weight.requires_grad:
            continue
        if id(weight) in recurrent:
            named["recurrent"].append(weight)
        elif id(weight) in scales or UNDECAYED.search(name):
            named["undecayed"].append(weight)
        else:
            named["decayed"].append(weight)
    groups = [
        {"params": params, "weight_decay": weight_decay if name == "decayed" else 0.0, "name": name}
        for name, params in named.items()
        if params
    ]
    for group in groups:
        if lr is not None and group["name"] == "recurrent":
            group["lr"] = lr
    return groups


def undecayed_recurrent(model: nn.Module) -> set[int]:
    """The ids of the parameters that weight decay would move for no good reason.

    A plain recurrent matrix is none: to decay it is to make its modes faster. A rate that is
    stored as it is would decay to the boundary.
    """
    return {
        id(raw)
        for weight in recurrent_weights(model)
        if weight.retrofitted or isinstance(weight.decay, DiagonalDecay)
        for raw in weight.raws()
    }


def _scales(model: nn.Module) -> Iterator[nn.Parameter]:
    for part in model.modules():
        if isinstance(part, nn.LayerNorm):
            yield from part.parameters(recurse=False)
