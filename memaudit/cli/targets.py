"""Where the reports of a scan go: checked before any work starts, written after it."""

from __future__ import annotations

import errno
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from memaudit import registry
from memaudit.cli.output import say, to_stdout
from memaudit.errors import ArgumentError, MachineError, MemauditError, clean
from memaudit.report_files import TEMPORARY, write_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from memaudit.contracts import AbstractReportFormat
    from memaudit.results import Report

STDOUT = "-"


@dataclass(frozen=True, slots=True)
class Target:
    """A report format and the file it goes to; None is stdout."""

    form: AbstractReportFormat
    path: Path | None


def parse_targets(reports: Iterable[str], json_file: str | None) -> tuple[Target, ...]:
    """The targets of `--report NAME=FILE` and `--json FILE`, each one writable."""
    pairs = [_pair(word) for word in reports]
    if json_file is not None:
        pairs.insert(0, ("json", json_file))
    found = tuple(_target(name, file) for name, file in pairs)
    for target in found:
        if target.path is not None:
            _check(target.path)
    _no_two_alike(found)
    return found


def write_targets(targets: Sequence[Target], report: Report) -> MemauditError | None:
    """Write every report; one that fails does not keep the others from being written."""
    first: MemauditError | None = None
    for target in targets:
        try:
            text = target.form.render(report)
            if target.path is None:
                to_stdout(text)
            else:
                write_text(text, target.path)
        except MemauditError as error:
            if first is not None:
                say(first.line())
            first = error
    return first


def check_writable(path: Path) -> None:
    """Refuse a file that could not be written later, without leaving anything behind."""
    folder = path.parent
    if not folder.is_dir():
        raise ArgumentError(
            f"the folder {clean(folder)} does not exist", hint="create it first", source=path
        )
    if path.exists() and not path.is_file():
        raise ArgumentError("not a regular file", hint="name a file, or - for stdout", source=path)
    with tempfile.NamedTemporaryFile(prefix=TEMPORARY, suffix=".tmp", dir=folder):
        pass


def _check(path: Path) -> None:
    try:
        check_writable(path)
    except OSError as error:
        fact = clean(error.strerror or error)
        if error.errno == errno.ENAMETOOLONG:
            raise ArgumentError(fact, hint="choose a shorter name", source=path) from error
        raise MachineError(
            "E_DISK",
            f"cannot write into {clean(path.parent)}: {fact}",
            hint="choose a folder that is writable and has room",
            source=path,
            stage="write",
        ) from error


def _pair(word: str) -> tuple[str, str]:
    name, equals, file = word.partition("=")
    if not equals or not name or not file:
        raise ArgumentError(f"--report wants NAME=FILE, got {clean(word)!r}")
    return name, file


def _target(name: str, file: str) -> Target:
    if not file:
        raise ArgumentError(f"the {clean(name)} report has an empty file name")
    known = registry.available("reports")
    if name not in known:
        hint = f"known are: {', '.join(known)}"
        raise ArgumentError(f"unknown report {clean(name)!r}", hint=hint)
    return Target(registry.build("reports", name), None if file == STDOUT else _path(file))


def _path(file: str) -> Path:
    try:
        return Path(file).expanduser()
    except RuntimeError as error:
        fact = "nobody of that name has a home folder here"
        raise ArgumentError(fact, hint="write the whole path", source=file) from error


def _no_two_alike(targets: Sequence[Target]) -> None:
    seen: set[Path | None] = set()
    for target in targets:
        place = None if target.path is None else target.path.absolute()
        if place in seen:
            where = "stdout" if place is None else clean(target.path)
            raise ArgumentError(f"two reports go to {where}", hint="name two files")
        seen.add(place)
