"""The raw weights of a retrofitted module beside its saved state dict, and back."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from memaudit.errors import ArgumentError, SourceError, clean
from memaudit.loading.saving import (
    RAW_NAME,
    is_retrofit,
    read_raw_tensors,
    read_record,
    write_retrofit_files,
)
from memaudit.retrofitting.plain_state import retrofitted_names
from memaudit.retrofitting.putting_back import entry_of, numbers_in, numbers_out
from memaudit.retrofitting.record import Record

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor, nn


def write_raw(model: nn.Module, folder: Path) -> None:
    """Write retrofit.safetensors and retrofit_config.json beside the model's saved state dict.

    The keys are those of the state dict, in which every retrofitted weight has its plain name.
    """
    tensors: dict[str, Tensor] = {}
    entries = []
    for path, owner, name in _retrofitted(model):
        key = f"{path}.{name}" if path else name
        tensors |= numbers_out(owner, name, key)
        cell = type(owner).__name__.removeprefix("Parametrized")
        entries.append(entry_of(owner, name, key, weight=key, layer=path or cell, cell=cell))
    if not entries:
        raise ArgumentError(
            "nothing in the model is retrofitted", hint="memaudit.retrofit(model) comes first"
        )
    form = entries[0].form
    reparam = form.get("inner", form)["name"]
    record = Record(reparam=reparam, entries=tuple(entries))
    write_retrofit_files(Path(folder), record.to_dict(), tensors)


def read_raw(model: nn.Module, folder: Path) -> bool:
    """Put the raw weights of a folder into a retrofitted model, exactly; False without any.

    The model must stand behind the same forms. Its parameters stay the same objects, so that an
    optimizer that was built already goes on training them.
    """
    folder = Path(folder)
    if not is_retrofit(folder):
        return False
    record = Record.from_dict(read_record(folder))
    tensors = read_raw_tensors(folder)
    here = {f"{path}.{name}" if path else name: (o, name) for path, o, name in _retrofitted(model)}
    there = {entry.key: entry for entry in record.entries}
    alone = sorted(set(here) ^ set(there))
    if alone:
        places = ("the model", "the folder")
        one, other = places if alone[0] in here else places[::-1]
        raise SourceError(
            "E_WEIGHTS",
            f"{clean(alone[0])} is retrofitted in {one}, but not in {other}",
            hint=f"retrofit the model as it was when {RAW_NAME} was written",
            source=folder,
            stage="open",
        )
    for key, (owner, name) in here.items():
        numbers_in(owner, name, there[key], tensors)
    return True


def _retrofitted(model: nn.Module) -> Iterator[tuple[str, nn.Module, str]]:
    for path, owner in model.named_modules():
        for name in retrofitted_names(owner):
            yield path, owner, name
