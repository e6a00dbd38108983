"""A report that others may read: nothing in it tells where on this machine anything lies."""

from __future__ import annotations

import os
import re
from dataclasses import fields, replace
from enum import Enum
from typing import TYPE_CHECKING, Any

from memaudit.loading.source import FILE_SUFFIXES
from memaudit.records import Record

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from memaudit.report import Report

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

    def told(text: str) -> str:
        for place in reversed(own):
            text = text.replace(place, name)
        return without_paths(text)

    return _mapped(report, told)


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


def _mapped(value: Any, told: Callable[[str], str]) -> Any:
    """The same record with other texts; keys and names stay."""
    if isinstance(value, Record):
        names = (f.name for f in fields(value))  # type: ignore[arg-type]
        made = {n: _mapped(getattr(value, n), told) for n in names if n not in NAMES}
        return replace(value, **made)  # type: ignore[type-var]
    if isinstance(value, dict):
        return {key: _mapped(item, told) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_mapped(item, told) for item in value)
    return told(value) if isinstance(value, str) and not isinstance(value, Enum) else value
