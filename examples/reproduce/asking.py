"""What may be asked of the runner, and what is refused before any work is done."""

from __future__ import annotations

import argparse
import errno
import os
import tempfile
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from examples.reproduce import records
from examples.reproduce.row import MEANINGS

if TYPE_CHECKING:
    from collections.abc import Callable

HERE = Path(__file__).parent
#: The largest seed that every generator takes.
LARGEST = 2**32 - 1
DISK = (errno.ENOSPC, errno.EROFS, errno.EDQUOT, errno.EIO)
NAMES = (
    'rows by any of their names, in any case: I-F10 for I-F10a-h, S-T1 for "S-F2, S-T1", O-F2 for '
    "O-F1-F4"
)


class RefusedError(Exception):
    """What cannot be done, in one line, and the exit code for it."""

    def __init__(self, fact: str, code: int = 2) -> None:
        self.code = code
        super().__init__(fact)


class Parser(argparse.ArgumentParser):
    """Errors are one line."""

    def error(self, message: str) -> NoReturn:
        """Say it and leave."""
        self.exit(2, f"reproduce: {message}\n")


def parser() -> Parser:
    """The options, with what they are when nobody gives them."""
    meanings = "\n".join(
        textwrap.fill(f"{word}: {means}", 78, initial_indent="  ", subsequent_indent="    ")
        for word, means in MEANINGS.items()
    )
    made = Parser(
        prog="python -m examples.reproduce",
        description="Run the experiments of the papers again, and hold them against the claims.",
        epilog=f"how a row ends:\n{meanings}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("rows", nargs="*", metavar="ROW", help=NAMES)
    made.add_argument("--list", action="store_true", help="show all rows and their claims")
    made.add_argument("--all", action="store_true", help="run every row")
    made.add_argument("--quick", action="store_true", help="smaller settings, minutes for all")
    made.add_argument("--page", action="store_true", help="write the page from saved results")
    seed: dict[str, Any] = {"metavar": "N", "type": _whole(0), "default": 0}
    made.add_argument("--seed", **seed, help="seed of every row (default: %(default)s)")
    jobs: dict[str, Any] = {"metavar": "N", "type": _whole(1), "default": os.cpu_count() or 1}
    made.add_argument("--jobs", **jobs, help="rows at a time (default: the cores, %(default)s)")
    out: dict[str, Any] = {"metavar": "DIR", "type": Path, "default": HERE}
    made.add_argument("--out", **out, help="where results and page go (default: %(default)s)")
    return made


def check_out(out: Path) -> None:
    """Refuse a folder that results cannot be written to, before hours are spent on them."""
    folder = out / records.RESULTS
    for path in (out, folder):
        if path.exists() and not path.is_dir():
            raise RefusedError(f"--out: {path} is a file; name a folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"room")
    except OSError as error:
        raise unwritable(error, out) from error


def unwritable(error: OSError, out: Path) -> RefusedError:
    """The refusal of a folder: by the disk, or because it is the wrong one."""
    code = 5 if error.errno in DISK else 2
    return RefusedError(f"--out: {out} cannot be written: {error.strerror or error}", code)


def check_results(out: Path) -> None:
    """Refuse to write a page of nothing."""
    if not any((out / records.RESULTS).glob("*.json")):
        raise RefusedError(f"--page: there are no results in {out}; run rows first, or give --out")


def _whole(low: int) -> Callable[[str], int]:
    def number(text: str) -> int:
        whole = text.isascii() and text.isdigit() and len(text) <= len(str(LARGEST))
        if not whole or not low <= int(text) <= LARGEST:
            raise argparse.ArgumentTypeError(f"{text} is not a whole number from {low} on")
        return int(text)

    return number
