"""The config.json of a checkpoint: hostile JSON read as plain data, without what names code."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from memaudit.errors import SourceError, clean
from memaudit.loading.configs.config_cleaning import clean_config
from memaudit.loading.configs.config_text import LARGEST_CONFIG, parse_config
from memaudit.loading.disk.containment import open_within
from memaudit.loading.disk.folder import rank_weights
from memaudit.loading.disk.regular_file import read_whole

if TYPE_CHECKING:
    from pathlib import Path

CONFIG_NAME = "config.json"
ADAPTER_NAME = "adapter_config.json"


@dataclass(frozen=True, slots=True)
class Config:
    """What the config.json of a folder states, and sentences on what was left out of it."""

    path: Path | None
    values: dict[str, Any]
    notes: tuple[str, ...]


def open_config(folder: Path) -> Config:
    """The folder's config.json, read and cleaned; without one there are no values.

    A folder with nothing but an adapter (LoRA) is refused: its base lies elsewhere.
    """
    notes = _without_adapter(folder)
    if not _is_there(folder, CONFIG_NAME):
        return Config(None, {}, notes)
    values, dropped = clean_config(_read(folder, CONFIG_NAME), name=CONFIG_NAME)
    return Config(folder / CONFIG_NAME, values, (*notes, *dropped))


def _is_there(folder: Path, name: str) -> bool:
    """Whether the folder has an entry of this name, be it a link that leads nowhere."""
    return os.path.lexists(folder / name)


def _read(folder: Path, name: str) -> dict[str, Any]:
    with open_within(folder, name) as file:
        return parse_config(read_whole(file, most=LARGEST_CONFIG), name=name)


def _without_adapter(folder: Path) -> tuple[str, ...]:
    """A sentence when an adapter beside the weights is not applied."""
    if not _is_there(folder, ADAPTER_NAME):
        return ()
    if _full_weights(folder):
        return (f"{ADAPTER_NAME} was not read: the adapter is not applied to the weights",)
    base = _read(folder, ADAPTER_NAME).get("base_model_name_or_path")
    named = f"its base, {clean(base)}," if isinstance(base, str) and base else "its base"
    raise SourceError(
        "E_UNSUPPORTED",
        f"this is an adapter without a model: {named} is not here and is not fetched",
        hint="merge it into its base first, e.g. with peft's merge_and_unload, and save the model",
        stage="config",
    )


def _full_weights(folder: Path) -> bool:
    """Whether the folder has weights besides those of an adapter."""
    try:
        chosen, whole = rank_weights(os.listdir(folder))
    except OSError:
        return True  # whoever looks for the weights says what is wrong
    return any(not name.lower().startswith("adapter_") for name in (*chosen, *whole))
