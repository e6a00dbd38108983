"""A section between two markers of a Markdown file; everything else stays as it is."""

from __future__ import annotations

import re

from memaudit.errors import SourceError

BEGIN = "<!-- memaudit begin: written by `memaudit card`, which replaces what stands here -->"
END = "<!-- memaudit end -->"
#: Markers stand on lines of their own; the words behind the colon may be anybody's.
_LAST = r"[ \t]*(?=\r?\n|\r?\Z)"
_BEGIN = re.compile(rf"^ {{0,3}}<!--[ \t]*memaudit begin\b[^\r\n]*?-->{_LAST}", re.M)
_END = re.compile(rf"^ {{0,3}}<!--[ \t]*memaudit end[ \t]*-->{_LAST}", re.M)
#: The line that begins or ends a block of code, indented as in a list or not.
_FENCE = re.compile(r"[ \t]*(`{3,}|~{3,})([^\n]*)")


def with_section(text: str, section: str) -> str:
    """The text with that section between the markers, which are put at its end if there are none.

    Law: doing it twice is doing it once, and what stands outside of the markers is kept to the
    letter: front matter, line ends, a missing last line break.
    """
    end_of_line = "\r\n" if "\r\n" in text else "\n"
    block = "\n".join([BEGIN, section.strip("\n"), END])
    place = _place(text)
    if place is None:
        tail = text.replace("\r\n", "\n")
        gap = "" if not tail or tail.endswith("\n\n") else "\n" if tail.endswith("\n") else "\n\n"
        return text + (gap + block + "\n").replace("\n", end_of_line)
    begin, end = place
    return text[:begin] + block.replace("\n", end_of_line) + text[end:]


def _place(text: str) -> tuple[int, int] | None:
    """Where the markers begin and end, None without any; all else is unclear, and refused."""
    shown = _without_code(text)
    begins, ends = list(_BEGIN.finditer(shown)), list(_END.finditer(shown))
    if not begins and not ends:
        return None
    if len(begins) == len(ends) == 1 and begins[0].end() <= ends[0].start():
        return begins[0].start(), ends[0].end()
    lines = [f"{text.count(chr(10), 0, m.start()) + 1} (begin)" for m in begins]
    lines += [f"{text.count(chr(10), 0, m.start()) + 1} (end)" for m in ends]
    raise SourceError(
        "E_UNSUPPORTED",
        f"the markers of memaudit do not pair up: lines {', '.join(lines)}",
        hint="keep one begin and, below it, one end, or remove them all",
        stage="card",
    )


def _without_code(text: str) -> str:
    """The text with blanks where code stands: markers in it are somebody's example.

    One pass over the lines, whatever they hold. A fence is closed by one of the same sign that is
    as long at least and has nothing behind it. Behind one that is never closed text is text: a
    section that was put at the end must be found again.
    """
    lines = text.splitlines(keepends=True)
    kept, fence, opened = list(lines), "", 0
    for number, line in enumerate(lines):
        match = _FENCE.match(line)
        if match is None:
            continue
        if not fence:
            fence, opened = match[1], number
        elif match[1].startswith(fence) and not match[2].strip():
            for inside in range(opened, number + 1):
                kept[inside] = re.sub(r"[^\r\n]", " ", lines[inside])
            fence = ""
    return "".join(kept)
