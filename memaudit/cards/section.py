"""A section between two markers of a Markdown file; everything else stays as it is."""

from __future__ import annotations

import re

from memaudit.errors import SourceError

BEGIN = "<!-- memaudit begin: written by `memaudit card`, which replaces what stands here -->"
END = "<!-- memaudit end -->"
#: Markers stand on lines of their own; the words behind the colon may be anybody's. A line may
#: end in a lone CR, and the first one begin with a byte order mark.
_FIRST, _LAST = r"(?:^|(?<=[\r\ufeff])) {0,3}", r"[ \t]*(?=[\r\n]|\Z)"
_BEGIN = re.compile(rf"{_FIRST}<!--[ \t]*memaudit begin\b[^\r\n]*?-->{_LAST}", re.M)
_END = re.compile(rf"{_FIRST}<!--[ \t]*memaudit end[ \t]*-->{_LAST}", re.M)
#: The line that begins or ends a block of code, indented as in a list or not.
_FENCE = re.compile(r"[ \t]*(`{3,}|~{3,})([^\r\n]*)")
#: Text that HTML shows as it stands, until a line closes it.
_PRE = "<pre>"
_BEGIN_PRE = re.compile(r"\ufeff? {0,3}<pre(?=[\s>])", re.I)
_END_PRE = re.compile(r"</pre>", re.I)
#: The lines around front matter.
_RULE = re.compile(r"---[ \t]*[\r\n]*")
_END_OF_LINE = re.compile(r"\r\n|\r|\n")
_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")


def with_section(text: str, section: str) -> str:
    """The text with that section between the markers, which are put at its end if there are none.

    Law: doing it twice is doing it once, and what stands outside of the markers is kept to the
    letter: front matter, line ends, a missing last line break.
    """
    block = "\n".join([BEGIN, section.strip("\n"), END])
    place = _place(text)
    if place is None:
        tail = _END_OF_LINE.sub("\n", text)
        gap = "" if not tail or tail.endswith("\n\n") else "\n" if tail.endswith("\n") else "\n\n"
        return text + (gap + block + "\n").replace("\n", _usual_end(text))
    begin, end = place
    # Those of the section itself: what was put at the end may have changed those of the text.
    ends = _END_OF_LINE.search(text, begin)
    return text[:begin] + block.replace("\n", ends[0] if ends else "\n") + text[end:]


def _usual_end(text: str) -> str:
    """How lines of the text end; behind a lone CR a line feed would become one with it."""
    if "\r\n" in text:
        return "\r\n"
    return "\r" if text.endswith("\r") or ("\r" in text and "\n" not in text) else "\n"


def _place(text: str) -> tuple[int, int] | None:
    """Where the markers begin and end, None without any; all else is unclear, and refused."""
    shown = _without_code(text)
    begins, ends = list(_BEGIN.finditer(shown)), list(_END.finditer(shown))
    if not begins and not ends:
        return None
    if len(begins) == len(ends) == 1 and begins[0].end() <= ends[0].start():
        return begins[0].start(), ends[0].end()
    lines = [f"{_line(text, m.start())} (begin)" for m in begins]
    lines += [f"{_line(text, m.start())} (end)" for m in ends]
    raise SourceError(
        "E_UNSUPPORTED",
        f"the markers of memaudit do not pair up: lines {', '.join(lines)}",
        hint="keep one begin and, below it, one end, or remove them all",
        stage="card",
    )


def _line(text: str, position: int) -> int:
    return len(_END_OF_LINE.findall(text, 0, position)) + 1


def _without_code(text: str) -> str:
    """The text with blanks where code or front matter stands: markers there are an example.

    One pass over the lines, whatever they hold. Behind code that is never closed text is text: a
    section that was put at the end must be found again.
    """
    lines = _LINE.findall(text)
    kept, code, opened = list(lines), "", 0
    begin = _front(lines)
    kept[:begin] = map(_blank, lines[:begin])
    for number in range(begin, len(lines)):
        line = lines[number]
        if not code:
            code, opened = _opens(line), number
            if code != _PRE:  # which alone may end in the line that begins it
                continue
        if _closes(code, line):
            kept[opened : number + 1] = map(_blank, lines[opened : number + 1])
            code = ""
    return "".join(kept)


def _front(lines: list[str]) -> int:
    """How many lines the front matter has; 0 where it is never closed, or holds a section."""
    if not lines or not _RULE.fullmatch(lines[0].removeprefix("\ufeff")):
        return 0
    for number, line in enumerate(lines[1:], start=1):
        if _RULE.fullmatch(line):
            return number + 1
        if line.startswith("<!--"):  # YAML is indented there: the rule above is only a rule
            return 0
    return 0


def _opens(line: str) -> str:
    """The sign that begins a block of code in this line, "" for none."""
    if match := _FENCE.match(line):
        return match[1]
    return _PRE if _BEGIN_PRE.match(line) else ""


def _closes(code: str, line: str) -> bool:
    """Whether the block ends: a fence by one as long at least, with nothing behind it."""
    if code == _PRE:
        return _END_PRE.search(line) is not None
    match = _FENCE.match(line)
    return match is not None and match[1].startswith(code) and not match[2].strip()


def _blank(line: str) -> str:
    return re.sub(r"[^\r\n]", " ", line)
