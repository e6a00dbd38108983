"""What rich would draw, as plain text."""

from __future__ import annotations

from io import StringIO
from typing import TYPE_CHECKING

from rich.console import Console

if TYPE_CHECKING:
    from rich.console import RenderableType


def plain_text(page: RenderableType, *, width: int) -> str:
    """Lines without colours and without blanks at their ends."""
    sheet = StringIO()
    console = Console(
        file=sheet,
        width=width,
        color_system=None,
        force_terminal=False,
        force_jupyter=False,
        legacy_windows=False,
        highlight=False,
        _environ={},
    )
    console.print(page)
    return "\n".join(line.rstrip() for line in sheet.getvalue().splitlines()) + "\n"
