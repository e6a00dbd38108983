"""The options of the adapter: what a timm name, a file or a model does not say."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from memaudit.errors import ArgumentError, clean, nearest

if TYPE_CHECKING:
    from collections.abc import Mapping

OPTIONS: Final[dict[str, str]] = {
    "pretrained": "true or false, for timm:NAME: trained weights or random ones (default true)",
    "model": "the timm name of the architecture, for weights without a timm config beside them",
    "model_args": 'sizes that differ from the architecture\'s own, such as {"img_size": 64}',
    "layers": "ends, all, or names: which recurrent layers are audited; ends takes the first and "
    "the last block of every stage (default ends)",
    "shorter": "cut or fill: how fewer patches than the model has are run, by themselves or with "
    "silence up to the whole grid (default cut, where the model can)",
}
CHOICES: Final[dict[str, tuple[str, ...]]] = {
    "pretrained": ("true", "false"),
    "shorter": ("cut", "fill"),
}


@dataclass(frozen=True, slots=True)
class Settings:
    """The options as given; None where the user left the choice to the adapter."""

    pretrained: bool | None = None
    model: str | None = None
    model_args: dict[str, Any] = field(default_factory=dict)
    layers: str | None = None
    shorter: str | None = None


def read_settings(options: Mapping[str, Any]) -> Settings:
    """The settings behind the user's options; unknown names and values are refused."""
    values: dict[str, Any] = {}
    for name, value in options.items():
        if name not in OPTIONS:
            raise ArgumentError(f"unknown option {clean(name)!r}", hint=nearest(name, OPTIONS))
        if name == "model_args":
            values[name] = _sizes(value)
            continue
        text = _listed(value) if name == "layers" else str(value)
        choices = CHOICES.get(name)
        if choices is not None:
            text = text.lower()
            if text not in choices:
                hint = "give " + " or ".join(choices)
                raise ArgumentError(f"{name}={clean(value)!r} is not possible", hint=hint)
        values[name] = text == "true" if name == "pretrained" else text
    return Settings(**values)


def _listed(value: Any) -> str:
    """Several names may be given as a list."""
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _sizes(value: Any) -> dict[str, Any]:
    """A dictionary, which the command line gives as JSON."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            value = clean(value)  # text, which is refused below
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        hint = 'give a dictionary, such as {"img_size": 64}'
        raise ArgumentError(f"model_args={clean(value)!r} is not possible", hint=hint)
    return dict(value)
