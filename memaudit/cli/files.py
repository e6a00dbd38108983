"""Where the reports of a scan go: checked before any work starts, written after it."""

from __future__ import annotations

import errno
import os
import re
import tempfile
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from memaudit import registry
from memaudit.cli.output import say, to_stdout
from memaudit.errors import ArgumentError, InternalError, MachineError, MemauditError, clean
from memaudit.report_files import destination, is_stream, write_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from memaudit.interfaces import AbstractReportFormat
    from memaudit.report import Report

#: Names of stdout; as files they would be replaced, and with them what stands in /dev.
STDOUT = ("-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1")
#: Files of a model: nobody wants a report in their place.
MODEL_FILES = re.compile(
    r".*\.(safetensors|pt|pth|bin|ckpt|npz|index\.json|h5|onnx|gguf|msgpack)"
    r"|((adapter|generation|preprocessor|tokenizer)_)?config\.json"
    r"|(tokenizer|special_tokens_map|vocab)\.json",
    re.IGNORECASE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Target:
    """A report format and the file it goes to; None is stdout."""

    form: AbstractReportFormat
    path: Path | None


def parse_targets(
    reports: Iterable[str], own: Mapping[str, str | None], *, source: Path | None = None
) -> tuple[Target, ...]:
    """The targets of `--report NAME=FILE` and of formats with an option of their `own`.

    None of them is a file of the model, least of all the `source` that will be audited.
    """
    pairs = [(name, file) for name, file in own.items() if file is not None]
    pairs += [_pair(word) for word in reports]
    found = tuple(_target(name, file) for name, file in pairs)
    for target in found:
        if target.path is not None:
            check_file(target.path, source)
    _no_two_alike(found)
    return found


def write_targets(targets: Sequence[Target], report: Report) -> MemauditError | None:
    """Write every report; one that fails does not keep the others from being written.

    Ctrl-C ends a finished audit after its files are written; one that Ctrl-C has cut short already,
    or that meets a second one here, ends at once.
    """
    first: MemauditError | None = None
    stopped = False
    for target in targets:
        try:
            try:
                _deliver(target, report)
            except KeyboardInterrupt:
                if stopped or not report.complete or target.path is None:
                    raise
                stopped = True
                _deliver(target, report)
        except MemauditError as error:
            if first is not None:
                say(first.line())
            first = error
    if stopped:
        raise KeyboardInterrupt
    return first


def check_no_model_file(path: Path, source: Path | None) -> None:
    """Refuse to put a report in the place of a model's file, by whatever name it is reached."""
    if not path.is_file():
        return
    known = any(MODEL_FILES.fullmatch(name) for name in (path.name, path.resolve().name))
    if known or any(_same(path, part) for part in _parts(source)):
        raise ArgumentError(
            "the report would replace a file of a model", hint="name another file", source=path
        )


def _deliver(target: Target, report: Report) -> None:
    what = f"the {target.form.name} report"
    with (
        rendering(what, target.path),
        registry.calling("reports", target.form.name, "cannot show the report"),
    ):
        text = target.form.render(report)
    if target.path is None:
        to_stdout(text)
        return
    with suppress(OSError):  # which the writing will meet, and tell
        check_no_model_file(target.path, Path(os.path.expanduser(report.subject.source)))
    write_text(text, target.path)


def _parts(source: Path | None) -> Iterator[Path]:
    """The source and, of a folder, the model's files in it."""
    if source is None:
        return
    yield source
    if source.is_dir():
        with os.scandir(source) as entries:
            yield from [Path(e.path) for e in entries if MODEL_FILES.fullmatch(e.name)]


def _same(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except (OSError, ValueError):  # no such file; a source that is no path
        return False


def check_file(path: Path, source: Path | None) -> None:
    """Refuse a file of a model, and one that could not be written later."""
    try:
        check_no_model_file(path, source)
        if not path.parent.is_dir():
            fact = f"the folder {clean(path.parent)} does not exist"
            raise ArgumentError(fact, hint="create it first", source=path)
        if is_stream(path):
            if not os.access(path, os.W_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
            return
        if path.exists() and not path.is_file():
            hint = "name a file, or - for stdout"
            raise ArgumentError("not a regular file", hint=hint, source=path)
        with tempfile.TemporaryFile(dir=destination(path).parent):  # and leave nothing behind
            pass
    except OSError as error:
        fact = clean(error.strerror or error)
        if error.errno == errno.ENAMETOOLONG:
            raise ArgumentError(fact, hint="choose a shorter name", source=path) from error
        raise MachineError(
            "E_DISK",
            f"cannot write: {fact}",
            hint="choose a place that is writable and has room",
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
    return Target(registry.build("reports", name), None if file in STDOUT else named_file(file))


def named_file(file: str) -> Path:
    """The path behind a word, with ~ for a home; a folder is refused."""
    if file.endswith(("/", os.sep)):
        hint = f"name a file in it, as in {clean(file)}report"
        raise ArgumentError("this names a folder", hint=hint, source=file)
    try:
        return Path(file).expanduser()
    except RuntimeError as error:
        fact = "nobody of that name has a home folder here"
        raise ArgumentError(fact, hint="write the whole path", source=file) from error


def _no_two_alike(targets: Sequence[Target]) -> None:
    seen: set[str | None] = set()
    for target in targets:
        place = None if target.path is None else os.path.realpath(target.path)
        if place in seen:
            where = "stdout" if place is None else clean(target.path)
            raise ArgumentError(f"two reports go to {where}", hint="name two files")
        seen.add(place)


def page_target(file: str | None, *, compared: Sequence[Path]) -> Path | None:
    """The file that was asked for, if it can be written and is none of those that are read."""
    if file is None:
        return None
    if not file or file in STDOUT:
        hint = "name a file: stdout has the text"
        raise ArgumentError("--html needs the name of a file", hint=hint, source=file)
    path = named_file(file)
    for other in compared:
        if path.exists() and other.exists() and path.samefile(other):
            fact = "the page would replace a report that is compared"
            raise ArgumentError(fact, hint="name another file", source=path)
    check_file(path, None)
    return path


@contextmanager
def rendering(what: str, target: Path | None) -> Iterator[None]:
    """Turn a crash while `what` is made for `target` (None: stdout) into an error.

    An audit may have taken hours: a bug in one format must not keep the others from being written.
    """
    source = "stdout" if target is None else target
    try:
        yield
    except MemauditError:
        raise
    except MemoryError as error:
        fact = f"{what} needs more memory than there is"
        raise MachineError(
            "E_MEMORY", fact, hint="close other programs", source=source, stage="write"
        ) from error
    except Exception as error:
        fact = f"{what} cannot be made: {type(error).__name__}: {clean(error)}"
        hint = "run again with --debug and report it"
        raise InternalError("E_INTERNAL", fact, hint=hint, source=source, stage="write") from error
