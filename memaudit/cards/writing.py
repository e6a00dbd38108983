"""Writing a card: both files are made in memory first, and each is replaced in one step."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from memaudit.cards.eval_results import DATASET, eval_results
from memaudit.cards.section import with_section
from memaudit.errors import MachineError, SourceError, clean
from memaudit.report_files import write_text
from memaudit.reports.markdown import Markdown

if TYPE_CHECKING:
    from memaudit.results import Report

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

    Nothing is written unless both can be made, and nothing leaves this machine.
    """
    report = presentable(report, folder)
    readme, results = folder / README, folder / FOLDER / FILE
    old = check_card(folder)
    text = with_section(old, Markdown().render(report))
    numbers = eval_results(report, dataset=dataset)
    changed = text != old or not results.is_file() or _read(results) != numbers
    _make(results.parent)
    if text != old:
        write_text(text, readme)
    write_text(numbers, results)
    return Card(readme, results, changed)


def check_card(folder: Path) -> str:
    """The README as it is; an error when a card could not be written, before any work for it."""
    readme, results = folder / README, folder / FOLDER / FILE
    for path in (readme, results.parent, results):
        _no_link(path)
    text = _read(readme)
    try:
        with_section(text, "")
    except SourceError as error:
        raise error.at(readme) from error
    return text


def presentable(report: Report, folder: Path) -> Report:
    """The report without where on this machine the model lies: by the name of its folder."""
    source = report.subject.source
    local = os.path.isabs(os.path.expanduser(source)) or os.path.exists(source)
    if not local:
        return report
    name = folder.resolve().name or "."
    return replace(report, subject=replace(report.subject, source=name))


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


def _make(folder: Path) -> None:
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        fact = f"cannot make the folder: {clean(error.strerror or error)}"
        hint = "choose a folder that is writable and has room"
        raise MachineError("E_DISK", fact, hint=hint, source=folder, stage="write") from error
