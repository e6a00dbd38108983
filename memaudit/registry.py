"""Finding plugins by kind and name; built-ins and entry points through the same door."""

from __future__ import annotations

import importlib
import sys
from contextlib import redirect_stdout
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from memaudit.catalog import BUILT_IN
from memaudit.errors import ArgumentError, MachineError, clean, nearest

KINDS = tuple(BUILT_IN)
SINGULAR = {kind: kind.removesuffix("s") for kind in KINDS} | {"queries": "query"}
OURS = "memaudit"


@dataclass(frozen=True, slots=True)
class Plugin:
    """One registered name: where its class lives and which distribution brought it."""

    kind: str
    name: str
    target: str
    distribution: str

    @property
    def built_in(self) -> bool:
        """Whether it came with memaudit itself."""
        return self.distribution == OURS

    def origin(self) -> str:
        """The words that name this plugin in an error."""
        return f"{clean(self.target)} ({clean(self.distribution)})"


def available(kind: str) -> dict[str, tuple[Plugin, ...]]:
    """Every registered name of a kind; more than one plugin behind a name is a clash."""
    _known_kind(kind)
    found: dict[str, tuple[Plugin, ...]] = {
        name: (Plugin(kind, name, target, OURS),) for name, target in BUILT_IN[kind].items()
    }
    for point in _points(kind):
        plugin = Plugin(kind, point.name, point.value, _distribution(point))
        same = found.get(point.name, ())
        if all(other.target != plugin.target for other in same):
            found[point.name] = (*same, plugin)
    return dict(sorted(found.items()))


def find(kind: str, name: str) -> Plugin:
    """The one plugin behind a name, or an error that names the neighbours or the rivals."""
    plugins = available(kind)
    if name not in plugins:
        raise ArgumentError(
            f"unknown {SINGULAR[kind]} {clean(name)!r}", hint=nearest(name, plugins)
        )
    first, *others = plugins[name]
    if others:
        raise clash(plugins[name])
    return first


def clash(rivals: tuple[Plugin, ...]) -> MachineError:
    """The error for two plugins that want one name."""
    both = " and ".join(plugin.origin() for plugin in rivals)
    return MachineError(
        "E_PLUGIN_CLASH",
        f"{rivals[0].kind}/{clean(rivals[0].name)} is registered by {both}",
        hint="uninstall one of them",
        stage="plugins",
    )


def load(plugin: Plugin) -> type[Any]:
    """Import the class behind a plugin.

    The only broad `except` of the code base: a stranger's module may raise anything, and even
    SystemExit must not take the others along.
    """
    module, _, attribute = plugin.target.partition(":")
    try:
        # What a plugin prints while it loads must not end up inside a report on stdout.
        with redirect_stdout(sys.stderr):
            return getattr(importlib.import_module(module), attribute)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise MachineError(
            "E_PLUGIN",
            f"{plugin.kind}/{clean(plugin.name)} from {plugin.origin()} does not import: "
            f"{type(error).__name__}: {clean(error)}",
            hint="reinstall or uninstall that distribution",
            stage="plugins",
        ) from error


def build(kind: str, name: str, **options: Any) -> Any:
    """An instance of the named plugin."""
    plugin = find(kind, name)
    made = load(plugin)
    missing = sorted(getattr(made, "__abstractmethods__", ()))
    if missing:
        raise MachineError(
            "E_PLUGIN",
            f"{kind}/{clean(name)} from {plugin.origin()} lacks {', '.join(missing)}",
            hint="it was written for another version of memaudit; update or uninstall it",
            stage="plugins",
        )
    return made(**options)


def _known_kind(kind: str) -> None:
    if kind not in BUILT_IN:
        raise ArgumentError(f"unknown kind {clean(kind)!r}", hint=nearest(kind, KINDS))


@cache
def _points(kind: str) -> tuple[EntryPoint, ...]:
    return tuple(entry_points(group=f"memaudit.{kind}"))


def _distribution(point: EntryPoint) -> str:
    return point.dist.name if point.dist is not None else "unknown distribution"
