"""The hub's cache on this machine: where a commit lies, and whether anything of it is missing."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from memaudit.errors import MachineError, clean
from memaudit.loading.disk.budget import human_size
from memaudit.loading.hub.listing import COMMIT, SHA256, Listed

MAIN = "main"


@dataclass(frozen=True, slots=True)
class Cache:
    """The part of the cache that belongs to one repository.

    The layout is that of huggingface_hub: blobs/ has the contents, snapshots/COMMIT/ a link to
    each under its name, refs/REVISION the commit that a branch or tag last stood for.
    """

    root: Path
    name: str

    @property
    def folder(self) -> Path:
        """Where the repository lies."""
        return self.root / "--".join(("models", *self.name.split("/")))

    def snapshot(self, commit: str) -> Path:
        """Where the files of a commit lie."""
        return self.folder / "snapshots" / commit

    def files(self, commit: str) -> list[str]:
        """The files of a commit that are here as a whole."""
        try:
            with os.scandir(self.snapshot(commit)) as entries:
                return sorted(entry.name for entry in entries if entry.is_file())
        except OSError:
            return []

    def announced(self, commit: str, name: str) -> Listed:
        """What the cache remembers of the listing: large files are stored under their SHA-256."""
        try:
            blob = os.path.basename(os.readlink(self.snapshot(commit) / name))
        except OSError:  # no link
            blob = ""
        return Listed(name, None, sha256=blob if SHA256.fullmatch(blob) else "")

    def commit_of(self, revision: str | None) -> str | None:
        """The commit that a revision stood for when it was fetched."""
        if revision is not None and COMMIT.fullmatch(revision):
            return revision if self.snapshot(revision).is_dir() else None
        try:
            with self._ref(revision).open("rb") as stream:
                text = stream.read(100).decode("ascii", "replace").strip()
        except OSError:
            return None
        return text if COMMIT.fullmatch(text) else None

    def remember(self, revision: str | None, commit: str) -> None:
        """Note the commit of a branch or tag, once every file of it is here.

        A cache that cannot be written was good enough to read from: nothing is lost but the name.
        """
        path = self._ref(revision)
        if revision == commit or self.commit_of(revision) == commit:
            return
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(prefix=f"{path.name}.", suffix=".tmp", dir=path.parent)
            try:
                with os.fdopen(handle, "w", encoding="ascii") as stream:
                    stream.write(commit)
                os.chmod(name, 0o644)
                os.replace(name, path)
            except OSError:
                os.unlink(name)

    def require_space(self, size: int) -> None:
        """Raise E_DISK when a download would not fit."""
        place = next(p for p in (self.root, *self.root.parents) if p.exists())
        try:
            free = shutil.disk_usage(place).free
        except OSError:  # a file system that does not say: the download will
            return
        if size <= free:
            return
        raise MachineError(
            "E_DISK",
            f"the download takes {human_size(size)}, and {clean(self.root)} has room for "
            f"{human_size(free)}",
            hint="free some space, or choose another folder with HF_HOME",
            stage="fetch",
        )

    def growing(self) -> int:
        """The bytes of the largest download that is under way, whoever makes it."""
        largest = 0
        with contextlib.suppress(OSError), os.scandir(self.folder / "blobs") as entries:
            for entry in entries:
                if entry.name.endswith(".incomplete"):
                    with contextlib.suppress(OSError):
                        largest = max(largest, entry.stat().st_size)
        return largest

    def _ref(self, revision: str | None) -> Path:
        return self.folder / "refs" / (MAIN if revision is None else revision)
