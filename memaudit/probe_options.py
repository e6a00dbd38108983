"""Options of probes, as in `stability.ball`: told apart from the others, checked, and handed on."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any

from memaudit import registry
from memaudit.catalog import DEFAULT_PROBES
from memaudit.contracts import AbstractProbe
from memaudit.errors import ArgumentError, clean, nearest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    Options = dict[str, dict[str, Any]]


def split_probe_options(options: Mapping[str, Any]) -> tuple[dict[str, Any], Options]:
    """The options without a probe before them, and those of every probe by its name."""
    plain: dict[str, Any] = {}
    of_probes: Options = {}
    for key, value in options.items():
        probe, dot, name = key.partition(".")
        if dot:
            of_probes.setdefault(probe.replace("_", "-"), {})[name.replace("-", "_")] = value
        else:
            plain[key] = value
    return plain, of_probes


def build_probes(
    asked: Sequence[str | AbstractProbe] | None, options: Options
) -> list[AbstractProbe]:
    """The probes of an audit with their options; one that nobody asked for takes none."""
    names = DEFAULT_PROBES if asked is None else [asked] if isinstance(asked, str) else asked
    named = {name for name in names if isinstance(name, str)}
    for probe in options:
        if probe not in named:
            registry.find("probes", probe)
            first = next(iter(options[probe]))
            fact = f"{clean(probe)}.{clean(first)} is an option of a probe that is not asked for"
            raise ArgumentError(fact, hint=f"add --probe {clean(probe)}")
    return [p if isinstance(p, AbstractProbe) else _built(p, options.get(p, {})) for p in names]


def _built(name: str, options: Mapping[str, Any]) -> AbstractProbe:
    known = probe_options(name)
    for option in options:
        if option not in known:
            fact = f"the probe {clean(name)} has no option {clean(option)!r}"
            raise ArgumentError(fact, hint=nearest(option, known))
    return registry.build("probes", name, **options)


def probe_options(name: str) -> tuple[str, ...]:
    """The names of a probe's options."""
    kind = registry.load(registry.find("probes", name))
    return tuple(f.name for f in fields(kind) if f.init) if is_dataclass(kind) else ()
