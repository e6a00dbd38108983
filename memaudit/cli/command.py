"""Commands that tell of Ctrl-C in a line, and whose help shows flags without a type."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperCommand, TyperGroup

from memaudit.cli.output import INTERRUPTED, UNMEASURED, say

if TYPE_CHECKING:
    from collections.abc import Iterator


class Command(TyperCommand):
    """A command."""

    def get_help_option(self, ctx: Any) -> Any:
        """The help option, without `<bool>` behind it."""
        return _bare(super().get_help_option(ctx))


class Group(TyperGroup):
    """The group of all commands; typer would end an interrupted one without a word."""

    def make_context(self, *arguments: Any, **options: Any) -> Any:
        """Read the arguments."""
        with _told():
            return super().make_context(*arguments, **options)

    def invoke(self, ctx: Any) -> Any:
        """Run the command; it handles an interruption itself once something was measured."""
        with _told():
            return super().invoke(ctx)

    def get_help_option(self, ctx: Any) -> Any:
        """The help option, without `<bool>` behind it."""
        return _bare(super().get_help_option(ctx))


@contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        say(UNMEASURED)
        raise typer.Exit(INTERRUPTED) from None


def _bare(option: Any) -> Any:
    if option is not None:
        option.metavar = ""
    return option
