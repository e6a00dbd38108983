"""A report in a model card: a section in the README, and the hub's evaluation results.

Both files are made in memory first, and each is replaced in one step. Nothing leaves this machine.
"""

from __future__ import annotations

import os
import re
from contextlib import ExitStack, suppress
from dataclasses import dataclass, fields, replace
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from memaudit import __version__
from memaudit.errors import MachineError, MemauditError, SourceError, clean
from memaudit.loading.checkpoint import joint_digest
from memaudit.loading.files import SUFFIXES, Stamp, digest, open_within
from memaudit.loading.source import FILE_SUFFIXES
from memaudit.records import Record
from memaudit.report import PREFIX
from memaudit.report_files import write_text
from memaudit.writers.markdown import Markdown

if TYPE_CHECKING:
    from collections.abc import Callable

    from memaudit.report import Report

README, FOLDER, FILE = "README.md", ".eval_results", "memaudit.yaml"
#: Nobody's card is larger; a file of another kind may be.
LARGEST = 16 << 20
#: Results belong to a dataset of the hub, which makes a leaderboard of them once it is registered
#: there as a benchmark; until then they are numbers beside the model.
DATASET = "memaudit/memory"
#: The numbers that say something without the others, of the model and of every query.
NUMBERS = ("horizon", "half_life", "rate", "exponent", "margin", "radius", "capacity")
HEAD = "# Written by `memaudit card`; see https://huggingface.co/docs/hub/eval-results\n"


@dataclass(frozen=True, slots=True)
class Card:
    """What was written, and whether it was another text before."""

    readme: Path
    results: Path
    changed: bool


def write_card(report: Report, folder: Path, *, dataset: str = DATASET) -> Card:
    """Put the report into `folder/README.md`, and its numbers into `folder/.eval_results`.

    Both are written or none: what fails leaves both as they were. Nothing leaves this machine.
    """
    report = presentable(report, folder)
    readme, results = folder / README, folder / FOLDER / FILE
    old = check_card(folder)
    text = with_section(old, Markdown().render(report))
    numbers = eval_results(report, dataset=dataset)
    known = _read(results) if results.exists() else None
    with ExitStack() as undo:
        if numbers != known:
            _make(results.parent, undo)
            undo.callback(_put_back, results, known)
            write_text(numbers, results)
        if text != old:
            write_text(text, readme)
        undo.pop_all()
    return Card(readme, results, text != old or numbers != known)


def check_card(folder: Path) -> str:
    """The README as it is; an error when a card could not be written, before any work for it."""
    readme, results = folder / README, folder / FOLDER / FILE
    for path in (readme, results.parent, results):
        _no_link(path)
    if results.parent.exists() and not results.parent.is_dir():
        hint = "rename it, the results go into a folder of that name"
        raise SourceError("E_PATH", "this is no folder", hint=hint, source=results.parent)
    text = _read(readme)
    try:
        with_section(text, "")
    except SourceError as error:
        raise error.at(readme) from error
    _read(results)
    for path in (folder, readme, results.parent, results):
        _writable(path)
    return text


def _writable(path: Path) -> None:
    """Files are replaced, for which their folder must be writable; protected ones are left."""
    needed = os.W_OK | os.X_OK if path.is_dir() else os.W_OK
    if path.exists() and not os.access(path, needed):
        what = "folder" if path.is_dir() else "file"
        hint = "see its rights"
        raise MachineError("E_DISK", f"the {what} is write-protected", hint=hint, source=path)


def _no_link(path: Path) -> None:
    """A stranger's folder may hold links to files of ours; the hub's cache is nothing but links."""
    if path.is_symlink():
        hint = "work in a copy of the folder that has the file itself"
        raise SourceError("E_PATH", "this is a link, which is not followed", hint=hint, source=path)


def _read(path: Path) -> str:
    """The text as it is, line ends included; "" when there is none yet."""
    try:
        if not path.exists():
            return ""
        if not path.is_file() or path.stat().st_size > LARGEST:
            raise SourceError("E_UNSUPPORTED", "this is no text to put a section into", source=path)
        return path.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        hint = "save it as UTF-8"
        raise SourceError("E_CORRUPT", "not UTF-8 text", hint=hint, source=path) from error
    except OSError as error:
        fact = f"cannot read: {clean(error.strerror or error)}"
        raise MachineError("E_DISK", fact, hint="see its rights", source=path) from error


def _make(folder: Path, undo: ExitStack) -> None:
    if folder.is_dir():
        return
    try:
        folder.mkdir()
    except OSError as error:
        fact = f"cannot make the folder: {clean(error.strerror or error)}"
        hint = "choose a folder that is writable and has room"
        raise MachineError("E_DISK", fact, hint=hint, source=folder, stage="write") from error
    undo.callback(_remove, folder)


def _put_back(path: Path, text: str | None) -> None:
    """The file as it was; what cannot be put back is left, and the error behind it told."""
    with suppress(OSError, MachineError):
        if text is None:
            path.unlink(missing_ok=True)
        elif _read(path) != text:
            write_text(text, path)


def _remove(folder: Path) -> None:
    with suppress(OSError):
        folder.rmdir()


def eval_results(report: Report, *, dataset: str = DATASET) -> str:
    """The hub's evaluation results: an entry per number, of the model and of every query.

    A note has the settings, and the query or layer that a number comes from.
    """
    queries = {clean(name) for result in report.results.values() for name in result.measured()}
    metrics, entries = report.metrics(), []
    for metric in report.numbers():
        parts = metric.key.split("/")
        known = len(parts) == 1 or (len(parts) == 2 and parts[0] in queries)
        value = metrics.get(PREFIX + metric.key)
        if metric.layer or value is None or not known or parts[-1] not in NUMBERS:
            continue
        entries.append(
            {
                "dataset": {"id": dataset, "task_id": "_".join(parts)},
                "value": int(value) if value.is_integer() else value,
                "notes": _note(report, metric.holder if metric.holder in queries else ""),
            }
        )
    return HEAD + yaml.safe_dump(entries, sort_keys=False, allow_unicode=False, width=100)


def _note(report: Report, query: str) -> str:
    keys = ("horizon", "seed", "level")
    settings = [f"{key} {clean(report.settings[key])}" for key in keys if key in report.settings]
    settings += [f"query {clean(query)}"] if query else []
    partial = [] if report.complete else ["partial"]
    version = clean(report.environment.get("memaudit", __version__))
    return ", ".join([f"memaudit {version}", *settings, *partial])


# A section between two markers of a Markdown file; everything else stays as it is

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


# A report that others may read: nothing in it says where on this machine anything lies

#: Sources that lie nowhere: a hub id, a model of the package or of another zoo.
_ELSEWHERE = re.compile(
    r"(?!\.{1,2}(?:/|\Z))[\w.-]+(?:/[\w.-]+)?(?:@[\w./-]+)?"
    r"|(?:demo|timm|hf-hub|hf_hub):(?![~./\\]).*"
)
#: Where a path begins: a root, a home, a folder above, a drive, a share, a file: address.
_START = (
    r"(?:file:/*|(?<![\w.~/\\<])(?:~[\w.-]*[/\\]|\.{1,2}[/\\]|/(?!/)(?=[\w.~@+-]{2})|[A-Za-z]:[/\\]"
    r"|\\\\(?=\w)))"
)
#: Inside of quotation marks a path may have blanks; elsewhere marks end it before a blank only.
_QUOTED = re.compile(rf"(?<=(['\"`])){_START}[^\r\n]*?(?=\1)")
_BARE = re.compile(rf"{_START}(?:[^\s'\"`,;:()<>\[\]|]|[,;:](?=\S))*")
#: Tensors of a checkpoint, which is published, are called as they like.
NAMES = ("layer", "state", "weights")
HIDDEN = "…"
#: The last part of a home is somebody's name.
_HOMES = ("home", "users", "root")


def presentable(report: Report, folder: Path) -> Report:
    """The report by the name of the model's folder, and of every path no more than its end."""
    source, name = report.subject.source, folder.resolve().name or "."
    if _lies_here(source):
        report = replace(report, subject=replace(report.subject, source=name))
    known = {str(folder), str(folder.resolve()), source, os.path.abspath(source)}
    # Without a separator it is a word that sentences may have; the longest holds the others.
    own = sorted((p for p in known if re.search(r"[/\\]", p) and _lies_here(p)), key=len)

    def without_own(text: str) -> str:
        for place in reversed(own):
            text = text.replace(place, name)
        return without_paths(text)

    return _mapped(report, without_own)


def without_paths(text: str) -> str:
    """The text with the last part of every path in the place of the path."""
    return _BARE.sub(_end, _QUOTED.sub(_end, text))


def _lies_here(source: str) -> bool:
    """Whether a source is a file or folder, on this machine or where the report was made."""
    file = source.lower().endswith(FILE_SUFFIXES)
    return file or os.path.exists(source) or not _ELSEWHERE.fullmatch(source)


def _end(match: re.Match[str]) -> str:
    parts = [part for part in re.split(r"[/\\]+", match[0]) if part]
    if not parts or parts[-1] in ("~", ".", "..") or parts[-1].endswith(":"):
        return HIDDEN
    private = len(parts) > 1 and parts[-2].lower() in _HOMES and len(parts) <= 3
    return HIDDEN if private or parts[-1].startswith("~") else parts[-1]


def _mapped(value: Any, change: Callable[[str], str]) -> Any:
    """The same record with other texts; keys and names stay."""
    if isinstance(value, Record):
        names = (f.name for f in fields(value))  # type: ignore[arg-type]
        made = {n: _mapped(getattr(value, n), change) for n in names if n not in NAMES}
        return replace(value, **made)  # type: ignore[type-var]
    if isinstance(value, dict):
        return {key: _mapped(item, change) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_mapped(item, change) for item in value)
    return change(value) if isinstance(value, str) and not isinstance(value, Enum) else value


# Whether a report is about the weights that lie in a folder


def matches(report: Report, folder: Path) -> bool | None:
    """Whether one weight file of the folder, or all of a kind, are those of the report.

    None where nobody can say: the report does not tell its weights, or the folder has none.
    """
    wanted = report.subject.sha256
    if not wanted:
        return None
    known = False
    for suffix in SUFFIXES:
        stamps: list[Stamp] = []
        for path in _files(folder, suffix):
            stamp = _stamp(folder, path)
            if stamp is None:
                continue
            known = True
            if stamp.sha256 == wanted:
                return True
            stamps.append(stamp)
        if len(stamps) > 1 and joint_digest(stamps) == wanted:
            return True
    return False if known else None


def _files(folder: Path, suffix: str) -> list[str]:
    try:
        return sorted(p.name for p in folder.iterdir() if p.name.lower().endswith(suffix))
    except OSError as error:
        fact = f"cannot read: {clean(error.strerror or error)}"
        raise MachineError("E_DISK", fact, hint="see its rights", source=folder) from error


def _stamp(folder: Path, name: str) -> Stamp | None:
    """What the file is; None for one that is no file, or leads out of the folder."""
    try:
        with open_within(folder, name) as file:
            return Stamp.of(file, digest(file))
    except MemauditError:
        return None
