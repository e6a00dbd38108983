"""What the user pointed at, parsed once: a path, a demo, a hub id, a timm name, a module."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memaudit.errors import ArgumentError, MemauditError, SourceError, clean, nearest
from memaudit.loading.access import SAFE, Access
from memaudit.loading.files import NOT_FOUND_HINT, SUFFIXES
from memaudit.registry import DEMOS

if TYPE_CHECKING:
    from memaudit.loading.checkpoint import Checkpoint
    from memaudit.loading.hub import Fetched
    from memaudit.loading.stored import StoredWeights

HUB_ID = re.compile(r"[\w][\w.-]*/[\w][\w.-]*(@[\w][\w./-]*)?\Z", re.ASCII)
REVISION = re.compile(r"[\w][\w./-]*\Z", re.ASCII)
#: A missing name with one of these endings was meant as a file, not as a hub id.
FILE_SUFFIXES = (*SUFFIXES, ".json")
TIMM_PREFIXES = ("timm:", "hf-hub:", "local-dir:")
DEMO_FOLDER = Path(__file__).resolve().parent.parent / "demos"


@dataclass(frozen=True)
class Source:
    """Something to audit: `kind` is path, demo, hub, timm or module.

    `revision` belongs to a hub repository; `access` is what the user allows.
    """

    kind: str
    text: str
    path: Path | None = None
    module: Any = None
    revision: str | None = None
    access: Access = SAFE

    @cached_property
    def fetched(self) -> Fetched:
        """The local copy of a hub repository, fetched once."""
        from memaudit.loading.hub import fetch_repository

        if self.kind != "hub":
            raise SourceError("E_UNSUPPORTED", "this is no hub id", source=self.text)
        name = self.text.partition("@")[0]
        return fetch_repository(name, revision=self.revision, access=self.access)

    @cached_property
    def stored(self) -> StoredWeights:
        """The weights where they are, of which a few tensors are to be read."""
        from memaudit.loading.stored import open_stored

        return open_stored(self)

    @property
    def has_checkpoint(self) -> bool:
        """Whether there are files behind it."""
        return self.kind in ("path", "demo", "hub")

    @property
    def checkpoint(self) -> Checkpoint:
        """The tensors behind a path, a demo or a hub id, opened safely and only once."""
        if isinstance(self._opened, SourceError):
            raise self._opened
        return self._opened

    @cached_property
    def _opened(self) -> Checkpoint | SourceError:
        """What came of opening it: every adapter asks, and a refusal stays one."""
        from memaudit.loading.checkpoint import open_checkpoint

        try:
            if self.kind == "hub":
                from memaudit.loading.hub import require_announced

                found = open_checkpoint(self.fetched.folder, self.access)
                require_announced(found.stamps)
                return replace(found, notes=(*self.fetched.notes, *found.notes))
            if self.path is None:
                raise SourceError("E_UNSUPPORTED", "there is no local file here")
            return open_checkpoint(self.path, self.access)
        except SourceError as error:
            return error.at(self.text)

    def opened_from(self, other: Any) -> Any:
        """Another source in which the files of this one lie: `changes` looks there, too."""
        vars(self).setdefault("_others", []).append(other)
        return other

    def changes(self) -> list[MemauditError]:
        """What happened to its files since they were read."""
        opened, others = vars(self).get("_opened"), vars(self).get("_others", [])
        here = [] if opened is None or isinstance(opened, SourceError) else opened.changes()
        if "stored" in vars(self):
            here = [*here, *self.stored.checkpoint.changes()]
        return [*here, *(change for other in others for change in other.changes())]


def parse_source(source: Any, *, revision: str | None = None, access: Access = SAFE) -> Source:
    """Decide what a source is; a path and a hub id are never guessed between silently."""
    found = _parsed(source)
    return replace(found, revision=_one_revision(found, revision), access=access)


def _one_revision(source: Source, requested: str | None) -> str | None:
    """The revision of a hub repository, which may stand behind an @ or in an argument."""
    remote = source.kind in ("hub", "timm")
    stated = source.text.partition("@")[2] if remote else ""
    if requested is not None and not remote:
        hint = "only hub repositories have revisions"
        raise ArgumentError(
            f"revision {clean(requested)!r} was given for a {source.kind}", hint=hint
        )
    if requested is not None and not REVISION.match(requested):
        raise ArgumentError(
            f"{clean(requested)!r} is no revision", hint="a branch, a tag or a commit"
        )
    if stated and requested is not None and stated != requested:
        fact = f"two revisions: {clean(stated)} behind the name and {clean(requested)}"
        raise ArgumentError(fact, hint="give one of them")
    return requested or stated or None


def _parsed(source: Any) -> Source:
    if not isinstance(source, str | Path):
        if not callable(source):
            raise ArgumentError(
                f"a source is a string, a path or a module, not {type(source).__name__}",
                hint="for a function use memaudit.wrap(function, input_size=...)",
            )
        return Source("module", type(source).__name__, module=source)
    text = str(source)
    if not text.strip():
        raise ArgumentError("the source is empty", hint="give a path, or . for this folder")
    if text.startswith("demo:"):
        return _demo(text)
    if text.startswith(TIMM_PREFIXES):
        return Source("timm", text)
    path = _expanded(text)
    if isinstance(source, Path) or _on_disk(path):
        return _existing(path, text)
    if HUB_ID.match(text) and path.suffix.lower() not in FILE_SUFFIXES:
        return Source("hub", text)
    return _existing(path, text)


def _demo(text: str) -> Source:
    name = text.removeprefix("demo:")
    if name not in DEMOS:
        raise ArgumentError(f"unknown demo {clean(name)!r}", hint=nearest(name, DEMOS))
    folder = DEMO_FOLDER / name
    return Source(
        "demo", text, path=folder if folder.is_dir() else DEMO_FOLDER / f"{name}.safetensors"
    )


def _existing(path: Path, text: str) -> Source:
    if not _on_disk(path):
        remote = text.startswith(("http:", "https:", "hf:"))
        raise SourceError(
            "E_NOT_FOUND",
            "this is an address, not a file" if remote else "no such file or folder",
            hint="for the hub write org/name" if remote else NOT_FOUND_HINT,
            source=text,
            stage="open",
        )
    return Source("path", text, path=path)


def _expanded(text: str) -> Path:
    try:
        return Path(text).expanduser()
    except RuntimeError:  # ~somebody who is unknown here: a file of that name, or none
        return Path(text)


def _on_disk(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # a name too long, or with a NUL byte
        return False
