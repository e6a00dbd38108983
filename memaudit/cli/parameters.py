"""How an option of a command is declared: its names, its help, its environment variable."""

from __future__ import annotations

from typing import Any

import typer


def option(*names: str, **details: Any) -> Any:
    """An option that is read from `MEMAUDIT_NAME` as well, NAME being its first name."""
    return typer.Option(*names, envvar=variable(names[0]), show_envvar=False, **details)


def flag(*names: str, **details: Any) -> Any:
    """An option that is there or not, and takes no value."""
    return option(*names, metavar="", **details)


def variable(name: str) -> str:
    """The environment variable of an option: `--fail-on` is MEMAUDIT_FAIL_ON."""
    return "MEMAUDIT_" + name.split("/")[0].removeprefix("--").replace("-", "_").upper()
