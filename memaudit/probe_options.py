"""Options of probes, as in `stability.ball`: told apart from the others, checked, and handed on."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import MISSING, fields, is_dataclass
from typing import TYPE_CHECKING, Any

from memaudit import registry
from memaudit.catalog import BUILT_IN, DEFAULT_PROBES
from memaudit.contracts import AbstractProbe
from memaudit.errors import ArgumentError, MachineError, clean, nearest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from dataclasses import Field

    Options = dict[str, dict[str, Any]]


def split_probe_options(options: Mapping[str, Any]) -> tuple[dict[str, Any], Options]:
    """The options without a probe before them, and those of every probe by its name."""
    plain: dict[str, Any] = {}
    of_probes: Options = {}
    for key, value in options.items():
        probe, dot, option = key.partition(".")
        if not dot:
            plain[key] = value
            continue
        given = of_probes.setdefault(probe.replace("_", "-"), {})
        name = option.replace("-", "_")
        if name in given:
            fact = f"{clean(key)} is given twice"
            raise ArgumentError(fact, hint="dashes and underscores in its name are the same")
        given[name] = value
    return plain, of_probes


def build_probes(
    asked: Sequence[str | AbstractProbe] | str | AbstractProbe | None,
    options: Options,
    *,
    queries: Sequence[Any] | str | None = None,
) -> list[AbstractProbe]:
    """The probes of an audit with their options, in the order in which they run.

    `memory` runs whenever there are queries. Cheap ones come first, outside ones last; a probe that
    nobody asked for takes no options.
    """
    names = _asked(DEFAULT_PROBES if asked is None else asked)
    named = {name.replace("_", "-") for name in names if isinstance(name, str)}
    for probe in options:
        if probe not in named:
            raise _not_taken(probe, next(iter(options[probe])), names)
    found = [
        p if isinstance(p, AbstractProbe) else _built(p, options.get(p.replace("_", "-"), {}))
        for p in names
        if p != "memory"
    ]
    wanted = [queries] if isinstance(queries, str) else queries
    if wanted is None or len(wanted):
        made = {} if wanted is None else {"queries": _queries(wanted)}
        found.append(_built("memory", made))
    order = list(BUILT_IN["probes"])
    place = {name: (number, "") for number, name in enumerate(order)}
    return sorted(found, key=lambda p: place.get(p.name, (len(order), p.name)))


def _queries(wanted: Sequence[Any]) -> tuple[Any, ...]:
    """Query objects; a name that nothing has is refused before a model is opened."""
    return tuple(registry.build("queries", q) if isinstance(q, str) else q for q in wanted)


def probe_options(name: str) -> tuple[str, ...]:
    """The names of a probe's options."""
    kind = registry.load(registry.find("probes", name))
    return tuple(f.name for f in fields(kind) if f.init) if is_dataclass(kind) else ()


def given_options(probes: Iterable[AbstractProbe]) -> dict[str, Any]:
    """The options that are not the usual ones, as in recall.lags, as plain values of JSON.

    What only Python can give, such as a function, is told by a word: "<function>", "<Tensor>".
    """
    return {
        f"{clean(probe.name)}.{option.name}": value
        for probe in probes
        if is_dataclass(probe)
        for option in fields(probe)
        if option.init and (value := _plain(getattr(probe, option.name))) != _plain(_usual(option))
    }


def _usual(option: Field[Any]) -> Any:
    return option.default if option.default_factory is MISSING else option.default_factory()


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return "<function>" if callable(value) else f"<{clean(type(value).__name__)}>"


def _asked(asked: Any) -> list[str | AbstractProbe]:
    """What was asked for as a list, when all of it is a probe or the name of one."""
    one = isinstance(asked, str) or not isinstance(asked, Iterable)
    found: list[Any] = [asked] if one else [*asked]
    for probe in found:
        if not isinstance(probe, str | AbstractProbe):
            fact = f"{clean(probe)!r} is neither a probe nor the name of one"
            raise ArgumentError(fact, hint="`memaudit list probes` shows the names")
    return found


def _not_taken(probe: str, option: str, names: Sequence[str | AbstractProbe]) -> ArgumentError:
    """The error for an option that no probe of this audit is built with."""
    told = f"{clean(probe)}.{clean(option)}"
    if any(isinstance(made, AbstractProbe) and made.name == probe for made in names):
        fact = f"{told} is an option of a probe that is built already"
        return ArgumentError(fact, hint="give it to the probe itself")
    registry.find("probes", probe)
    fact = f"{told} is an option of a probe that is not asked for"
    return ArgumentError(fact, hint=f"add --probe {clean(probe)}")


def _built(name: str, options: Mapping[str, Any]) -> AbstractProbe:
    known = probe_options(name)
    for option in options:
        if option not in known:
            fact = f"the probe {clean(name)} has no option {clean(option)!r}"
            raise ArgumentError(fact, hint=nearest(option, known))
    try:
        return registry.build("probes", name, **options)
    except MachineError as error:
        # A probe that stumbles over a value without a word of its own is not broken by that.
        if not options or not isinstance(error.__cause__, TypeError | ValueError | ArithmeticError):
            raise
        given = ", ".join(f"{clean(name)}.{o}={clean(v)!r}" for o, v in options.items())
        fact = f"{given} is refused: {type(error.__cause__).__name__}: {clean(error.__cause__)}"
        hint = f"`memaudit list probes {clean(name)}` shows its options"
        raise ArgumentError(fact, hint=hint) from error
