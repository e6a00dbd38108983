"""`memaudit fold`: the original format of a retrofit folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from memaudit.cli import options
from memaudit.cli.output import to_stdout
from memaudit.cli.retrofit import Out
from memaudit.cli.starting import calm, imported
from memaudit.cli.waiting import waiting
from memaudit.errors import MemauditError, clean


def fold(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="A folder that memaudit retrofit wrote.")
    ],
    *,
    out: Out,
    debug: options.Debug = False,
) -> None:
    """Turn a retrofitted checkpoint back into its original format, trained or not.

    Exits: 0 written, 2 arguments, 3 DIR is no retrofit folder or is damaged, 5 machine.
    """
    try:
        with calm(debug=debug), waiting("folding"):
            keys = imported("memaudit.retrofitting.folder").fold_folder(folder, out)
    except MemauditError as error:
        raise error.at(folder) from error
    weights = "1 weight was" if len(keys) == 1 else f"{len(keys)} weights were"
    to_stdout(f"{weights} folded; {clean(out)} was written\n")
