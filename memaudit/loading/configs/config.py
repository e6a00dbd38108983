"""The config beside a checkpoint: hostile text read as plain data, without what names code."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from memaudit.errors import SourceError, clean
from memaudit.loading.configs.config_cleaning import clean_config
from memaudit.loading.configs.config_text import LARGEST_CONFIG, parse_config
from memaudit.loading.configs.yaml_text import LARGEST_YAML, parse_yaml
from memaudit.loading.disk.containment import open_within
from memaudit.loading.disk.folder import rank_weights
from memaudit.loading.disk.regular_file import read_whole

if TYPE_CHECKING:
    from pathlib import Path

CONFIG_NAME = "config.json"
ADAPTER_NAME = "adapter_config.json"
#: Where trainers leave their settings, read when there is no config.json: the first one counts.
SETTINGS_NAMES = ("config.yaml", "config.yml", ".hydra/config.yaml", "hparams.yaml")


@dataclass(frozen=True, slots=True)
class Config:
    """What the config of a folder states, and sentences on what was left out of it.

    `path` is None when no file states it, `name` is what messages call it.
    """

    path: Path | None
    values: dict[str, Any]
    notes: tuple[str, ...]
    name: str = CONFIG_NAME

    @property
    def of_library(self) -> bool:
        """Whether this is a config.json, which a library reads, and not a trainer's settings."""
        return self.name == CONFIG_NAME


def open_config(folder: Path) -> Config:
    """The folder's config.json, or a trainer's settings; without either there are no values.

    A folder with nothing but an adapter (LoRA) is refused: its base lies elsewhere.
    """
    notes = _without_adapter(folder)
    found = config_names(folder)
    if not found:
        return Config(None, {}, notes)
    name, *others = found
    if name == CONFIG_NAME:
        values, dropped = clean_config(_read(folder, name), name=name)
        return Config(folder / name, values, (*notes, *dropped))
    passed = f"; not {', '.join(others)}" if others else ""
    stated, tagged = parse_yaml(_bytes(folder, name, most=LARGEST_YAML), name=name)
    values, dropped = clean_config(stated, name=name, library=False)
    said = f"settings were read from {name} beside the weights{passed}"
    return Config(folder / name, values, (*notes, said, *tagged, *dropped), name)


def config_names(folder: Path) -> tuple[str, ...]:
    """What states settings in a folder, the one that counts first; a config.json counts alone."""
    if _is_there(folder, CONFIG_NAME):
        return (CONFIG_NAME,)
    return tuple(name for name in SETTINGS_NAMES if _is_there(folder, name))


def _is_there(folder: Path, name: str) -> bool:
    """Whether the folder has an entry of this name, be it a link that leads nowhere."""
    return os.path.lexists(folder / name)


def _read(folder: Path, name: str) -> dict[str, Any]:
    return parse_config(_bytes(folder, name, most=LARGEST_CONFIG), name=name)


def _bytes(folder: Path, name: str, *, most: int) -> bytes:
    below, _, last = name.rpartition("/")
    with open_within(folder, last, below=below) as file:
        return read_whole(file, most=most)


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
