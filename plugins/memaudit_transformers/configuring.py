"""From the values of a config.json to the library's config, or a sentence on what is wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memaudit.errors import SourceError, clean
from memaudit_transformers.library import hushed, library, strict_errors

if TYPE_CHECKING:
    from collections.abc import Mapping

_HINT = "put the right config beside the weights; memaudit doctor tells the versions"


def make_config(values: Mapping[str, Any], kind: type[Any] | None = None) -> Any:
    """The library's config of these values; E_CONFIG with the library's reason if it has none.

    `kind` is the config class of code that came with the model; else the model type decides.
    """
    try:
        with hushed():
            found = kind or _class_of(values["model_type"])
            config = found.from_dict(dict(values))
            # Where the library would store what it was loaded from: nothing here is.
            config.name_or_path = ""
            return config
    except strict_errors() as error:
        reason = str(error) or type(error).__name__
        raise config_error(f"transformers refuses it: {reason}") from None


def config_error(fact: str) -> SourceError:
    """E_CONFIG with a fact about config.json."""
    return SourceError(
        "E_CONFIG", f"config.json: {clean(fact, limit=600)}", hint=_HINT, stage="config"
    )


def _class_of(model_type: str) -> type[Any]:
    return library("transformers.models.auto.configuration_auto").CONFIG_MAPPING[model_type]


def text_config(config: Any) -> Any:
    """The part of a config that describes the text model; the config itself if there is one."""
    try:
        return config.get_text_config()
    except strict_errors():
        return config
