"""The raw weights of a whole model as plain values, out of it and back."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from memaudit.errors import SourceError, clean
from memaudit.retrofitting.plain_state import retrofitted_names
from memaudit.retrofitting.putting_back import entry_of, numbers_in, numbers_out
from memaudit.retrofitting.raw_file import read_raw
from memaudit.retrofitting.record import Record

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor, nn


def is_retrofitted(model: nn.Module) -> bool:
    """Whether any weight of the model stands behind a form."""
    return any(True for _ in _weights(model))


def raw_state(model: nn.Module) -> dict[str, Any]:
    """The raw weights by their plain names, and what they mean: dicts, tensors and words."""
    tensors: dict[str, Tensor] = {}
    entries = []
    for key, owner, name in _weights(model):
        tensors |= numbers_out(owner, name, key)
        layer, cell = key.rpartition(".")[0] or name, type(owner).__name__
        entries.append(entry_of(owner, name, key, weight=key, layer=layer, cell=cell))
    reparam = entries[0].form.get("name", "") if entries else ""
    return {"record": Record(reparam=reparam, entries=tuple(entries)).to_dict(), "raw": tensors}


def load_raw_state(model: nn.Module, state: dict[str, Any]) -> None:
    """Put them back into a model that stands behind the same forms."""
    entries = {entry.key: entry for entry in Record.from_dict(state["record"]).entries}
    here = {key: (owner, name) for key, owner, name in _weights(model)}
    alone = sorted(set(here) ^ set(entries))
    if alone:
        raise SourceError(
            "E_WEIGHTS",
            f"{clean(alone[0])} is retrofitted in the model or in the checkpoint, but not in both",
            hint="retrofit the model as it was when the checkpoint was written",
            stage="training",
        )
    for key, (owner, name) in here.items():
        numbers_in(owner, name, entries[key], state["raw"])


class RawWeights:
    """The raw weights of a model for whoever checkpoints objects by their state dicts.

    `accelerator.register_for_checkpointing(RawWeights(model))` makes `load_state` exact.
    """

    def __init__(self, model: nn.Module) -> None:
        self._model = model

    def state_dict(self) -> dict[str, Any]:
        """The raw weights, as they are."""
        return raw_state(self._model)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Put them back, after the plain ones were."""
        load_raw_state(self._model, state)


def read_if_it_fits(model: nn.Module, folder: Path) -> bool:
    """Read the raw weights of a folder, if they make the weights that the model has now."""
    before = {key: getattr(owner, name).detach().clone() for key, owner, name in _weights(model)}
    kept = raw_state(model)
    if not read_raw(model, folder):
        return False
    now = {key: getattr(owner, name).detach() for key, owner, name in _weights(model)}
    if all(torch.equal(now[key], value) for key, value in before.items()):
        return True
    load_raw_state(model, kept)
    return False


def _weights(model: nn.Module) -> Iterator[tuple[str, nn.Module, str]]:
    for path, owner in model.named_modules():
        for name in retrofitted_names(owner):
            yield (f"{path}.{name}" if path else name), owner, name
