"""The application: its commands, and the one place where errors become exit codes."""

from __future__ import annotations

import os
import sys
import traceback
from typing import TYPE_CHECKING, Annotated

import typer

from memaudit import __version__
from memaudit.cli.doctor import doctor
from memaudit.cli.explain import explain
from memaudit.cli.list_plugins import list_plugins
from memaudit.cli.output import say, to_stdout
from memaudit.cli.scan import scan
from memaudit.errors import ArgumentError, MachineError, MemauditError, clean

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Neither a failed gate (1) nor anything else that a pipeline could act upon.
CRASHED = 70
INTERRUPTED = 130
#: What typer raises for a usage error; its name differs between the click that typer carries.
UsageError: type[Exception] = typer.BadParameter.__bases__[0]

app = typer.Typer(
    name="memaudit",
    help="Audit how long trained sequence models remember, and how that memory decays.",
    epilog="Every option can be set by an environment variable: --horizon is MEMAUDIT_HORIZON.",
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={
        "help_option_names": ["-h", "--help"],
        "token_normalize_func": lambda word: word.replace("_", "-"),
    },
)
app.command("scan")(scan)
app.command("list")(list_plugins)
app.command("explain")(explain)
app.command("doctor")(doctor)


def _show_version(wanted: bool) -> None:
    if wanted:
        to_stdout(f"memaudit {__version__}\n")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def root(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Audit how long trained sequence models remember, and how that memory decays."""
    del version
    if context.invoked_subcommand is None:
        to_stdout(context.get_help() + "\n")
        raise typer.Exit(ArgumentError.exit_code)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and give back its exit code; every error is one line on stderr."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        return app(given, prog_name="memaudit", standalone_mode=False) or 0
    except MemauditError as error:
        return _told(error, given)
    except UsageError as error:
        fact = clean(error.format_message()).rstrip(".")  # type: ignore[attr-defined]
        return _told(ArgumentError(fact, hint="see memaudit --help"), given)
    except MemoryError:
        fact = "the machine has too little memory for this"
        return _told(
            MachineError("E_MEMORY", fact, hint="try --quick or a smaller --horizon"), given
        )
    except (KeyboardInterrupt, typer.Abort):
        say("interrupted")
        return INTERRUPTED
    except SystemExit as stop:
        return _left(stop, given)
    except Exception as error:
        return _crashed(error, given)


def _told(error: MemauditError, given: list[str]) -> int:
    if _debugging(given):
        traceback.print_exc()
    say(error.line())
    return error.exit_code


def _left(stop: SystemExit, given: list[str]) -> int:
    """Typer and rich leave like this when the reader of a pipe is gone; others should not."""
    if stop.code in (None, 0) or isinstance(stop.__context__, BrokenPipeError):
        return 0
    return _crashed(stop, given)


def _crashed(error: BaseException, given: list[str]) -> int:
    if _debugging(given):
        traceback.print_exc()
    fact = f"{type(error).__name__}: {clean(error)}"
    say(f"error[E_INTERNAL] {fact}; run again with --debug and report it")
    return CRASHED


def _debugging(given: list[str]) -> bool:
    return "--debug" in given or os.environ.get("MEMAUDIT_DEBUG", "") not in ("", "0", "false")
