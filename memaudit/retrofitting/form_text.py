"""Forms in words: the name of a reparameterization, its time and its constants."""

from __future__ import annotations

import math
from dataclasses import fields
from typing import Any

from memaudit import registry
from memaudit.errors import ArgumentError, SourceError, clean
from memaudit.loading.saving import RECORD_NAME
from memaudit.reparam import TIMES, AbstractReparam
from memaudit.retrofitting.stepped import Stepped

_KEYS = {"name", "time", "constants", "inner"}


def form_said(form: AbstractReparam) -> dict[str, Any]:
    """A form as plain values; infinity is a word."""
    given = {f.name: getattr(form, f.name) for f in fields(form) if f.name != "time"}
    constants = {n: number_said(v) for n, v in given.items() if isinstance(v, bool | int | float)}
    said: dict[str, Any] = {"name": form.name, "time": form.time, "constants": constants}
    inner = given.get("inner")
    if isinstance(inner, AbstractReparam):
        said["inner"] = form_said(inner)
    return said


def form_built(said: Any) -> AbstractReparam:
    """The form that the words name, by the registry and nothing else."""
    name, time, constants = _checked(said)
    if name == Stepped.name and "inner" in said:
        inner = form_built(said["inner"])
        if inner.time != "continuous" or isinstance(inner, Stepped):
            raise bad_record("steps a form that has no continuous time")
        return Stepped(inner=inner)
    if name not in registry.available("reparams"):
        raise SourceError(
            "E_UNSUPPORTED",
            f"the form {clean(name, limit=60)!r} is not known here: the plugin that brings it is "
            "not installed",
            hint="install it; memaudit list reparams shows what there is",
            stage="open",
        )
    kind = registry.load(registry.find("reparams", name))
    known = set(getattr(kind, "__dataclass_fields__", ())) - {"time"}
    odd = [one for one in constants if one not in known]
    if odd or time not in getattr(kind, "times", ()):
        what = f"a constant {clean(odd[0], limit=60)!r}" if odd else f"{time} time"
        raise bad_record(f"gives the form {name} {what}, which it does not have")
    try:
        return registry.build("reparams", name, time=time, **constants)
    except ArgumentError as error:
        raise bad_record(f"gives the form {name} what it does not take: {error.fact}") from None


def number_said(value: float) -> float | str:
    """A number for JSON, which has no infinity."""
    return value if math.isfinite(value) else str(float(value))


def number_read(said: Any) -> float:
    """A number out of JSON."""
    if isinstance(said, int | float):
        return said
    if said in ("inf", "-inf"):
        return float(said)
    raise bad_record(f"has {clean(said, limit=60)!r} in the place of a number")


def bad_record(fact: str) -> SourceError:
    """The refusal of a retrofit_config.json that nobody of ours wrote."""
    return SourceError(
        "E_CONFIG", f"{RECORD_NAME} {fact}", hint="write the folder again", stage="open"
    )


def _checked(said: Any) -> tuple[str, str, dict[str, float]]:
    if not isinstance(said, dict) or not set(said) <= _KEYS:
        raise bad_record("has a form that is none")
    name, time, constants = said.get("name"), said.get("time"), said.get("constants", {})
    if not isinstance(name, str) or time not in TIMES or not isinstance(constants, dict):
        raise bad_record("has a form that is none")
    return name, time, {key: number_read(value) for key, value in constants.items()}
