"""Settings that point at other settings, as OmegaConf writes them: ${dataset.l_max}."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from memaudit.errors import SourceError, clean

_WHOLE = re.compile(r"\$\{\s*(?P<path>[\w.]+)\s*\}\Z")
_SELECT = re.compile(
    r"\$\{\s*oc\.select\s*:\s*(?P<path>[\w.]+)\s*(?:,\s*(?P<other>[\w.+-]*)\s*)?\}\Z"
)
_OPEN = "${"
_DEEPEST = 8
_WORDS = {"null": None, "none": None, "true": True, "false": False, "": None}
_NOWHERE = object()


class Section(dict[str, Any]):
    """A part of a config; to read a setting that is still open is an error, not its text."""

    def get(self, key: str, default: Any = None) -> Any:
        """The setting of that name; E_CONFIG when it points at something that is not there."""
        try:
            return self[key]
        except KeyError:
            return default

    def __getitem__(self, key: str) -> Any:
        value = super().__getitem__(key)
        if isinstance(value, str) and _OPEN in value:
            raise SourceError(
                "E_CONFIG",
                f"the config leaves {clean(key)} open: {clean(value)}",
                hint="save the config with its references resolved, or write the value there",
                stage="config",
            )
        return value


def resolved(config: Mapping[str, Any]) -> Section:
    """The config with references to its own settings followed; others stay open."""
    return _copied(config, config)


def _copied(part: Mapping[str, Any], root: Mapping[str, Any]) -> Section:
    return Section({key: _value(value, root, 0) for key, value in part.items()})


def _value(value: Any, root: Mapping[str, Any], depth: int) -> Any:
    if isinstance(value, Mapping):
        return _copied(value, root)
    if not isinstance(value, str) or _OPEN not in value or depth > _DEEPEST:
        return value
    chosen = _SELECT.match(value)
    match = chosen or _WHOLE.match(value)
    if match is None:
        return value
    found = _at(root, match["path"].split("."))
    if found is _NOWHERE:
        return value if chosen is None else _plain(chosen["other"] or "")
    return _value(found, root, depth + 1) if not isinstance(found, Mapping) else value


def _at(root: Mapping[str, Any], path: list[str]) -> Any:
    here: Any = root
    for name in path:
        if not isinstance(here, Mapping) or name not in here:
            return _NOWHERE
        here = dict.__getitem__(here, name) if isinstance(here, dict) else here[name]
    return here


def _plain(word: str) -> Any:
    """A default as it stands in a reference."""
    if word.lower() in _WORDS:
        return _WORDS[word.lower()]
    try:
        return int(word)
    except ValueError:
        return word
