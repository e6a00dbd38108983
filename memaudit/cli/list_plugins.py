"""`memaudit list`: what is registered, and by whom."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from memaudit.cli.options import Debug
from memaudit.cli.output import say, show

if TYPE_CHECKING:
    from rich.table import Table

    from memaudit.cli.inventory import Row


def list_plugins(
    kind: Annotated[
        str | None,
        typer.Argument(
            help="adapters, queries, probes, reparams, targets, findings, reports or demos."
        ),
    ] = None,
    pattern: Annotated[
        str, typer.Argument(help="A name with the wildcards * and ?.", show_default=False)
    ] = "*",
    *,
    debug: Debug = False,
) -> None:
    """List adapters, queries, probes, reparameterizations, targets, findings, reports, demos.

    Of adapters and probes it shows the options as well, of reparams ranges, moduli and gradients,
    when they are asked for by name.
    """
    from rich.text import Text

    from memaudit.cli.inventory import KINDS, clashes, rows
    from memaudit.errors import ArgumentError, MachineError, clean, nearest

    del debug
    if kind is not None and kind not in KINDS:
        raise ArgumentError(f"unknown kind {clean(kind)!r}", hint=nearest(kind, KINDS))
    asked = (kind,) if kind else KINDS
    tables = [(name, rows(name, pattern)) for name in asked]
    shown = [(name, found) for name, found in tables if found or kind]
    for position, (name, found) in enumerate(shown):
        title = Text(("\n" if position else "") + name, style="bold underline")
        show(title, _table(found) if found else Text("none"))
    if kind in ("adapters", "probes"):  # asked for by name: only then is it worth importing them
        _show_options(kind, pattern)
    if kind == "reparams":
        _show_numbers(pattern)
    errors = [error for name in asked for error in clashes(name)]
    for error in errors:
        say(error.line())
    if errors:
        raise typer.Exit(MachineError.exit_code)


def _show_options(kind: str, pattern: str) -> None:
    """The options of every adapter or probe that has some."""
    from rich.text import Text

    from memaudit.cli.inventory import Row, options_of
    from memaudit.errors import clean

    for name, options in options_of(kind, pattern).items():
        if options:
            title = Text(f"\noptions of {clean(name)} (--set KEY=VALUE)", style="bold")
            show(title, _table([Row(key, "", words) for key, words in options.items()]))


def _show_numbers(pattern: str) -> None:
    """Ranges, moduli and gradient scales, for which torch is loaded."""
    from memaudit.cli.waiting import waiting

    with waiting("computing moduli"):
        from memaudit.cli.reparam_list import reparam_tables

        tables = reparam_tables(pattern)
    show(*tables)


def _table(found: list[Row]) -> Table:
    from rich.table import Table
    from rich.text import Text

    from memaudit.errors import clean

    made = Table.grid(padding=(0, 2, 0, 0))
    made.add_column(no_wrap=True)
    made.add_column(no_wrap=True, style="dim")
    made.add_column(overflow="fold")
    for row in found:
        last = Text(clean(row.problem), style="red") if row.problem else Text(clean(row.summary))
        made.add_row(Text(clean(row.name)), Text(clean(row.distribution)), last)
    return made
