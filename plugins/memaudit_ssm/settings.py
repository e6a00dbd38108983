"""The options of the adapter: what is run and how, and what no file says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from memaudit.errors import ArgumentError, clean, nearest
from memaudit.numerics.linear import EXECUTIONS
from memaudit_ssm.asked import ASKED

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

OPTIONS: Final[dict[str, str]] = {
    "layers": "all, or the names of the scans or modules to run, with commas (default all)",
    "execution": f"how linear layers are run: {', '.join(EXECUTIONS)} (default auto)",
    **ASKED,
}
ALL = "all"


@dataclass(frozen=True, slots=True)
class Settings:
    """The options as given; `layers` None runs everything."""

    layers: tuple[str, ...] | None = None
    execution: str = "auto"

    def chosen(self, names: Iterable[str]) -> set[str]:
        """The names to run: a layer stands for itself and for everything inside it."""
        every = list(names)
        if self.layers is None:
            return set(every)
        taken: set[str] = set()
        for layer in self.layers:
            inside = [name for name in every if name == layer or name.startswith(f"{layer}.")]
            if not inside:
                raise ArgumentError(
                    f"no scan is called {clean(layer)!r}", hint=nearest(layer, _rooms(every))
                )
            taken.update(inside)
        return taken


def read_settings(options: Mapping[str, Any]) -> Settings:
    """The settings behind the user's options; unknown names and values are refused."""
    for name in options:
        if name not in OPTIONS:
            raise ArgumentError(f"unknown option {clean(name)!r}", hint=nearest(name, OPTIONS))
    return Settings(_layers(options.get("layers")), _execution(options.get("execution")))


def _execution(value: Any) -> str:
    if value is None:
        return "auto"
    if value not in EXECUTIONS:
        hint = nearest(str(value), EXECUTIONS)
        raise ArgumentError(f"execution={clean(value)!r} is unknown", hint=hint)
    return str(value)


def _layers(value: Any) -> tuple[str, ...] | None:
    if value is None:
        return None
    # A layer may be called 3, and a number is what the command line makes of that.
    items = value if isinstance(value, list | tuple) else str(value).split(",")
    names = tuple(str(item).strip() for item in items)
    if not names or not all(names):
        raise ArgumentError(
            f"layers={clean(value)!r} names no layer", hint="give all, or names with commas"
        )
    return None if names == (ALL,) else names


def _rooms(names: Iterable[str]) -> set[str]:
    """Every name that could have been meant: the scans and the modules around them."""
    found: set[str] = set()
    for name in names:
        while name:
            found.add(name)
            name = name.rpartition(".")[0]
    return found
