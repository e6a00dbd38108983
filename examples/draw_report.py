"""Draw a saved report as `--verbose` shows it: `python -m examples.draw_report JSON SVG`."""

from __future__ import annotations

import argparse
import io
from html import escape
from pathlib import Path

from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from rich.terminal_theme import DIMMED_MONOKAI as THEME

import memaudit
from memaudit.writers.terminal import whole

#: Width and height of a character cell, and the margin, in pixels.
CELL, LINE, MARGIN = 8.4, 18.0, 16.0
#: Row and column of the eight dots of a braille character, by bit.
DOTS = ((0, 0), (1, 0), (2, 0), (0, 1), (1, 1), (2, 1), (3, 0), (3, 1))
BRAILLE = range(0x2800, 0x2900)


def draw(report: memaudit.Report, *, width: int) -> str:
    """The report as one SVG; nothing is fetched when it is shown."""
    console = Console(
        width=width,
        file=io.StringIO(),
        force_terminal=True,
        color_system="truecolor",
        record=True,
        legacy_windows=False,
    )
    console.print(whole(report.document(), width=width))
    lines = list(Segment.split_lines(console._record_buffer))
    body = "\n".join(drawn for row, line in enumerate(lines) for drawn in _line(line, row))
    across, down = width * CELL + 2 * MARGIN, len(lines) * LINE + 2 * MARGIN
    paper, ink = _hex(THEME.background_color), _hex(THEME.foreground_color)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {across:.0f} {down:.0f}">\n'
        f'<rect width="100%" height="100%" rx="8" fill="{paper}"/>\n'
        f'<g font-family="DejaVu Sans Mono, Menlo, Consolas, monospace" font-size="14" '
        f'fill="{ink}">\n{body}\n</g>\n</svg>\n'
    )


def _line(segments: list[Segment], row: int) -> list[str]:
    column, y, parts = 0, MARGIN + (row + 0.75) * LINE, []
    for text, style, _ in segments:
        plain = "".join(" " if ord(c) in BRAILLE else c for c in text)
        x = MARGIN + column * CELL
        if plain.strip():
            length = f'textLength="{len(text) * CELL:.1f}"'
            look = f'x="{x:.1f}" y="{y:.1f}" {length} xml:space="preserve"{_look(style)}'
            parts.append(f"<text {look}>{escape(plain)}</text>")
        for at, character in enumerate(text):
            if ord(character) in BRAILLE:
                parts += _dots(ord(character) - 0x2800, x + at * CELL, y - 0.75 * LINE)
        column += len(text)
    return parts


def _dots(bits: int, x: float, y: float) -> list[str]:
    return [
        f'<circle cx="{x + (c + 0.5) * CELL / 2:.1f}" cy="{y + (r + 0.5) * LINE / 4:.1f}" r="1.2"/>'
        for bit, (r, c) in enumerate(DOTS)
        if bits >> bit & 1
    ]


def _look(style: Style | None) -> str:
    if style is None:
        return ""
    look = ' font-weight="bold"' if style.bold else ""
    if style.color is not None:
        look += f' fill="{_hex(style.color.get_truecolor(THEME))}"'
    return look + (' opacity="0.7"' if style.dim or style.italic else "")


def _hex(color: tuple[int, int, int]) -> str:
    return f"#{color[0]:02x}{color[1]:02x}{color[2]:02x}"


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("report")
    parser.add_argument("picture")
    parser.add_argument("--width", type=int, default=124)
    arguments = parser.parse_args(argv)
    report = memaudit.Report.load(arguments.report)
    Path(arguments.picture).write_text(draw(report, width=arguments.width), encoding="utf-8")


if __name__ == "__main__":
    main()
