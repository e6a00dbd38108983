"""Writing a card: both files are made in memory first, and each is replaced in one step."""

from __future__ import annotations

import os
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from memaudit.cards.eval_results import DATASET, eval_results
from memaudit.cards.presentable import presentable
from memaudit.cards.section import with_section
from memaudit.errors import MachineError, SourceError, clean
from memaudit.report_files import write_text
from memaudit.reports.markdown import Markdown

if TYPE_CHECKING:
    from memaudit.report import Report

README, FOLDER, FILE = "README.md", ".eval_results", "memaudit.yaml"
#: Nobody's card is larger; a file of another kind may be.
LARGEST = 16 << 20


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
