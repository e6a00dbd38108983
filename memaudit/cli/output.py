"""Writing to stdout and stderr: gone readers, full disks and narrow encodings are survived."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from memaudit.errors import MachineError, clean

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

#: An error line names a source, a fact and a step; each is cut before, this cuts a chain of them.
LONGEST_LINE = 3000
#: The width of text that is not read on a terminal.
PLAIN_WIDTH = 80


def say(text: str) -> None:
    """One line on stderr, whatever it holds."""
    try:
        print(f"memaudit: {clean(text, limit=LONGEST_LINE)}", file=sys.stderr, flush=True)
    except OSError:  # nobody reads it, and there is nobody else to tell
        _silence(sys.stderr)


def to_stdout(text: str) -> None:
    """Text on stdout; a reader who has left is no error, a full disk is one."""
    encoding = sys.stdout.encoding or "utf-8"
    safe = text.encode(encoding, errors="backslashreplace").decode(encoding)
    try:
        sys.stdout.write(safe)
        sys.stdout.flush()
    except BrokenPipeError:
        _silence(sys.stdout)
    except OSError as error:
        _silence(sys.stdout)
        raise MachineError(
            "E_DISK",
            f"cannot write: {clean(error.strerror or error)}",
            hint="make room, or choose another output",
            source="stdout",
            stage="write",
        ) from error


def console() -> Console:
    """A console for stdout: as wide as the terminal, or 80 columns of plain text."""
    from rich.console import Console

    terminal = sys.stdout.isatty()
    return Console(
        file=sys.stdout,
        width=None if terminal else PLAIN_WIDTH,
        highlight=False,
        soft_wrap=False,
    )


def show(*renderables: RenderableType, on: Console | None = None) -> None:
    """Render for stdout and write it in one go."""
    sheet = on or console()
    with sheet.capture() as captured:
        for item in renderables:
            sheet.print(item)
    text = captured.get()
    if not sheet.is_terminal:
        text = "".join(f"{line.rstrip()}\n" for line in text.splitlines())
    to_stdout(text)


def _silence(stream: object) -> None:
    """Send what is left in the buffers nowhere, so that the interpreter can end in peace."""
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())  # type: ignore[attr-defined]
    except (OSError, ValueError, AttributeError):  # a stream without a descriptor
        return
