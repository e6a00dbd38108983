"""The application: its commands, and the one place where errors become exit codes."""

from __future__ import annotations

import errno
import os
import sys
import traceback
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from memaudit import __version__
from memaudit.cli.output import (
    INTERRUPTED,
    UNMEASURED,
    open_closed_streams,
    reader_left,
    say,
    to_stdout,
    unwritable,
)
from memaudit.cli.signals import Stopping
from memaudit.errors import ArgumentError, MachineError, MemauditError, clean

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Neither a failed gate (1) nor anything else that a pipeline could act upon.
CRASHED = 70
#: What typer raises for a usage error; its name differs between the click that typer carries.
UsageError: type[Exception] = typer.BadParameter.__bases__[0]
#: Output that finds no room: a full disk or quota, a limit of the shell, a disk that fails.
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS)


class Command(TyperCommand):
    """A command whose help option has no `<bool>` behind it."""

    def get_help_option(self, ctx: Any) -> Any:
        """The help option."""
        return _without_metavar(super().get_help_option(ctx))


class Group(TyperGroup):
    """All commands; the help option has no `<bool>` behind it."""

    def get_help_option(self, ctx: Any) -> Any:
        """The help option."""
        return _without_metavar(super().get_help_option(ctx))


def _without_metavar(option: Any) -> Any:
    if option is not None:
        option.metavar = ""
    return option


#: Where the commands stand: only the one that is asked for is imported.
COMMANDS = {
    "scan": "memaudit.cli.scan:scan",
    "family": "memaudit.cli.family:family",
    "retrofit": "memaudit.cli.retrofit:retrofit",
    "fold": "memaudit.cli.retrofit:fold",
    "diff": "memaudit.cli.diff:diff",
    "card": "memaudit.cli.scan:card",
    "list": "memaudit.cli.inventory:list_plugins",
    "explain": "memaudit.cli.inventory:explain",
    "doctor": "memaudit.cli.inventory:doctor",
}


def _show_version(wanted: bool) -> None:
    if wanted:
        to_stdout(f"memaudit {__version__}\n")
        raise typer.Exit


def root(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            metavar="",
            callback=_show_version,
            is_eager=True,
            help="Show the version.",
        ),
    ] = False,
) -> None:
    """Audit how long trained sequence models remember, and how that memory decays."""
    del version
    if context.invoked_subcommand is None:
        to_stdout(context.get_help() + "\n")
        raise typer.Exit(ArgumentError.exit_code)


def application(given: list[str]) -> Any:
    """The command line with the command that the words name, or with all of them."""
    app = typer.Typer(
        name="memaudit",
        cls=Group,
        help="Audit how long trained sequence models remember, and how that memory decays.",
        epilog="Every option can be set by an environment variable: --horizon is MEMAUDIT_HORIZON.",
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={
            "help_option_names": ["-h", "--help"],
            "token_normalize_func": lambda word: word.replace("_", "-"),
        },
    )
    app.callback(invoke_without_command=True)(root)
    asked = next((word for word in given if not word.startswith("-")), "")
    for name in [asked] if asked in COMMANDS else COMMANDS:
        module, _, function = COMMANDS[name].partition(":")
        app.command(name, cls=Command)(getattr(import_module(module), function))
    return typer.main.get_command(app)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and give back its exit code; every error is one line on stderr."""
    open_closed_streams()
    given = list(sys.argv[1:] if arguments is None else arguments)
    with Stopping() as stopping:
        return stopping.exit_code(_run(given))


def _run(given: list[str]) -> int:
    try:
        # Not app(...): typer would end an interrupted command without a word.
        with application(given).make_context("memaudit", given) as context:
            context.command.invoke(context)
        return 0
    except typer.Exit as done:
        return done.exit_code
    except MemauditError as error:
        return _report_error(error, given)
    except UsageError as error:
        return _report_error(_misused(error), given)
    except MemoryError:
        fact = "the machine has too little memory for this"
        return _report_error(
            MachineError("E_MEMORY", fact, hint="try --quick or a smaller --horizon"), given
        )
    except KeyboardInterrupt:
        say(UNMEASURED)
        return INTERRUPTED
    except SystemExit as stop:
        return _exited(stop, given)
    except OSError as error:
        if reader_left(error):
            return 0
        if error.errno not in NO_ROOM:
            return _crashed(error, given)
        return _report_error(unwritable(error, source=""), given)
    except Exception as error:
        return _crashed(error, given)


def _misused(error: Any) -> ArgumentError:
    """The error for wrong usage: names the variable it came from and the help that explains it."""
    fact = clean(error.format_message()).rstrip(".")
    context, option = getattr(error, "ctx", None), getattr(error, "param", None)
    if context is None:
        return ArgumentError(fact, hint="see memaudit --help")
    if option is not None:
        origin = context.get_parameter_source(option.name)
        if origin is not None and origin.name == "ENVIRONMENT":
            fact += f", from the environment variable {option.envvar}"
    return ArgumentError(fact, hint=f"see {context.command_path} --help")


def _report_error(error: MemauditError, given: list[str]) -> int:
    if _debugging(given):
        traceback.print_exc()
    say(error.line())
    return error.exit_code


def _exited(stop: SystemExit, given: list[str]) -> int:
    """Rich leaves like this when the reader of a pipe is gone; others should not."""
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
