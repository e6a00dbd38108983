"""`--set KEY=VALUE`: options of the audit and of the adapter."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from memaudit.errors import ArgumentError, clean

if TYPE_CHECKING:
    from collections.abc import Iterable

#: Arguments of `scan` that have an option of their own.
OWN = {
    "source": "the argument SOURCE",
    "horizon": "--horizon",
    "queries": "--query",
    "probes": "--probe",
    "seed": "--seed",
    "progress": "--no-progress",
    "adapter": "--adapter",
    "device": "--device",
    "dtype": "--dtype",
    "revision": "--revision",
    "offline": "--offline",
    "timeout": "--timeout",
    "trust_remote_code": "--trust-remote-code",
    "allow_pickle": "--allow-pickle",
    "level": "--quick or --thorough",
}


def parse_settings(pairs: Iterable[str]) -> dict[str, Any]:
    """The options by name; dashes and underscores in a key are the same."""
    found: dict[str, Any] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        name = key.strip().replace("-", "_")
        probe, _, option = name.rpartition(".")  # as in stability.ball
        if not equals or not option.isidentifier() or not (probe or "x").isidentifier():
            raise ArgumentError(f"--set wants KEY=VALUE, got {clean(pair)!r}")
        if name in OWN:
            raise ArgumentError(f"--set cannot change {name}", hint=f"use {OWN[name]}")
        if name in found:
            raise ArgumentError(f"--set names {name} twice")
        found[name] = parse_value(value)
    return found


def parse_value(text: str) -> Any:
    """A JSON number, boolean, null, string or list; everything else is a plain string."""
    try:
        value = json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return text
    return text if isinstance(value, dict) else value


def _refuse(word: str) -> None:
    raise ValueError(word)  # NaN and Infinity are no JSON
