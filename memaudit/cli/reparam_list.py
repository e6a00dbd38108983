"""The table of reparameterizations: their ranges, moduli and gradient scales."""

from __future__ import annotations

import math
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from memaudit import registry
from memaudit.errors import MemauditError, clean
from memaudit.reparam import TIMES
from memaudit.reparams import BETAS, Overview, overview

if TYPE_CHECKING:
    from rich.console import RenderableType

TITLES = {
    "continuous": "in continuous time (stable: lambda < 0)",
    "discrete": "in discrete time (stable: |lambda| < 1)",
}
LEGEND = (
    "g(beta): the modulus of Definition 3.2, by which share of itself a mode changes at most when "
    "its raw weight moves by beta. Gradient scale: |f'| / f², in discrete time |f'| / (1 - f)²; it "
    "multiplies the gradient of a raw weight w. edge: stable but for one raw weight, which gives a "
    "mode on the boundary."
)
#: Seconds that the numbers of one form may take.
PATIENCE = 30.0


def reparam_tables(pattern: str) -> list[RenderableType]:
    """One table for every time, and what its columns mean; a form that fails is named."""
    found: dict[str, list[Overview | MemauditError]] = {
        time: _overviews(pattern, time) for time in TIMES
    }
    blocks: list[RenderableType] = []
    for time, told in found.items():
        rows = [item for item in told if isinstance(item, Overview)]
        if rows:
            blocks += [Text(f"\n{TITLES[time]}", style="bold"), _table(rows)]
    constants = _constants([item for told in found.values() for item in told])
    if blocks:
        blocks += [Text("\n" + LEGEND + (f" Constants: {constants}." if constants else ""))]
    errors = {str(e): e for told in found.values() for e in told if isinstance(e, MemauditError)}
    return blocks + [Text(f"\n{error.line()}", style="red") for error in errors.values()]


def _overviews(pattern: str, time: str) -> list[Overview | MemauditError]:
    names = [
        name
        for name, rivals in registry.available("reparams").items()
        if len(rivals) == 1 and fnmatchcase(name.lower(), pattern.lower())
    ]
    found: list[Overview | MemauditError] = []
    for name in names:
        try:
            if time in registry.load(registry.find("reparams", name)).times:
                found.append(_numbers(name, time))
        except (MemauditError, AttributeError) as error:
            found.append(_named(name, error))
    return found


def _numbers(name: str, time: str) -> Overview:
    form = registry.build("reparams", name, time=time)
    with registry.calling("reparams", name, "cannot be shown", seconds=PATIENCE):
        return replace(overview(form), name=name)


def _named(name: str, error: MemauditError | AttributeError) -> MemauditError:
    """The error of one plugin; a class without `times` is none of this kind."""
    if isinstance(error, MemauditError):
        return error
    return registry.nonsense(registry.find("reparams", name), "does not name its times")


def _table(rows: list[Overview]) -> Table:
    made = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="dim")
    made.add_column("name", no_wrap=True)
    made.add_column("stable")
    made.add_column("reaches", no_wrap=True)
    for beta in BETAS:
        made.add_column(f"g({beta:g})", justify="right")
    made.add_column("gradient scale", overflow="fold")
    for row in rows:
        cells = [clean(row.name), _stable(row), row.reach, *map(_modulus, row.moduli), row.scale]
        made.add_row(*map(Text, cells))
    return made


def _stable(row: Overview) -> str:
    if not row.stable:
        return "no"
    return "edge" if any(map(math.isinf, row.moduli)) else "yes"


def _modulus(value: float) -> str:
    return "infinite" if math.isinf(value) else f"{value:.4g}"


def _constants(told: list[Overview | MemauditError]) -> str:
    named = {
        f"{clean(item.name)} with {item.options}": None
        for item in told
        if isinstance(item, Overview) and item.options
    }
    return "; ".join(named)
