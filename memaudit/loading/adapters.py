"""Folders of PEFT: an adapter, and the name of the model that it was made for."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memaudit.errors import MemauditError, SourceError, clean
from memaudit.loading.checkpoint import WeightFile, read_weight_file
from memaudit.loading.configs import ADAPTER_NAME, read_json
from memaudit.loading.files import open_within
from memaudit.loading.source import Source, parse_source

if TYPE_CHECKING:
    import torch

    from memaudit.loading.access import Access

WEIGHTS_NAME = "adapter_model.safetensors"
BASE_HINT = "name it with --set base=PATH_OR_HUB_ID"


@dataclass(frozen=True, slots=True)
class Adapter:
    """The settings of an adapter, and its weights."""

    settings: dict[str, Any]
    file: WeightFile

    @property
    def tensors(self) -> dict[str, torch.Tensor]:
        """The weights, by the names that peft gives them."""
        return self.file.weights.tensors

    def changes(self) -> list[MemauditError]:
        """What happened to its file since it was read."""
        found = self.file.stamp.change()
        return [] if found is None else [found]


def is_adapter(source: Source) -> bool:
    """Whether the source is a folder with an adapter and without a model."""
    if source.kind != "path" or source.path is None or not source.path.is_dir():
        return False
    names = os.listdir(source.path)
    return ADAPTER_NAME in names and WEIGHTS_NAME in names and "config.json" not in names


def open_adapter(source: Source, base: Any = None) -> tuple[Adapter, Source]:
    """The adapter and its base, which is named by the user, or else by the adapter itself.

    What an adapter names is taken from the disk or the cache, and never fetched.
    """
    assert source.path is not None
    settings = read_json(source.path, ADAPTER_NAME)
    named = base or settings.get("base_model_name_or_path")
    if not isinstance(named, str) or not named:
        fact = f"{ADAPTER_NAME} does not name the model that the adapter was made for"
        raise SourceError("E_CONFIG", fact, hint=BASE_HINT, stage="config")
    file = _read(source.path, source.access)
    adapter = Adapter(settings, file)
    try:
        found = parse_source(named, access=source.access)
    except MemauditError as error:
        fact = f"the base of the adapter, {clean(named)}, cannot be opened: {error.fact}"
        raise SourceError(error.code, fact, hint=BASE_HINT, stage="open") from None
    if found.kind == "hub" and not base:
        found = replace(found, access=replace(found.access, offline=True))
        try:
            _ = found.fetched
        except MemauditError:
            fact = f"the base of the adapter, {clean(named)}, is not in the cache"
            hint = f"a file does not decide what is fetched; --set base={clean(named)} does"
            raise SourceError("E_UNSUPPORTED", fact, hint=hint, stage="open") from None
    source.opened_from(found)
    source.opened_from(adapter)
    return adapter, found


def _read(folder: Path, access: Access) -> WeightFile:
    with open_within(folder, WEIGHTS_NAME) as file:
        return read_weight_file(file, access)
