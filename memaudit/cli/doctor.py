"""`memaudit doctor`: what this machine can audit."""

from __future__ import annotations

import typer

from memaudit.cli.options import Debug
from memaudit.cli.output import say, show


def doctor(*, debug: Debug = False) -> None:
    """Show versions, devices and adapters, and what is wrong with them.

    Exits with 5 when something is missing that every audit needs.
    """
    import warnings

    from rich.table import Table
    from rich.text import Text

    from memaudit.doctor import diagnose
    from memaudit.errors import MachineError, clean

    with warnings.catch_warnings():
        if not debug:
            warnings.simplefilter("ignore")
        checks = diagnose()
    made = Table.grid(padding=(0, 2, 0, 0))
    made.add_column(style="bold", no_wrap=True)
    made.add_column(no_wrap=True)
    made.add_column(overflow="fold")
    group = ""
    for check in checks:
        shown = check.group if check.group != group else ""
        group = check.group
        state = Text(clean(check.state, limit=1200), style="" if check.fine else "red")
        made.add_row(shown, Text(clean(check.name)), state)
    show(made)
    broken = [check.name for check in checks if check.needed and not check.fine]
    if broken:
        say(f"needs repair: {', '.join(broken)}")
        raise typer.Exit(MachineError.exit_code)
