"""The tensors that a model runs with, also where some of them are made from others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memaudit.perturbable import plain_name

if TYPE_CHECKING:
    from torch import Tensor, nn


def live_weights(model: nn.Module) -> dict[str, Tensor]:
    """The state dict, with raw weights in the place of what parametrizations make of them.

    A retrofitted model tells the made ones, which are new tensors at every call: whoever writes
    to them changes nothing.
    """
    named = model.named_parameters(remove_duplicate=False)
    raw = {name: weight.detach() for name, weight in named if plain_name(name) != name}
    made = {plain_name(name) for name in raw}
    kept = {name: t for name, t in model.state_dict().items() if name not in made}
    return {**kept, **raw}
