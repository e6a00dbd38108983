"""The test device in a process of its own, for registering it changes torch for good."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.device import twin

#: The release whose inner interfaces the device is written for.
TORCH = (2, 13)
ROOT = Path(__file__).resolve().parents[2]
BUILDING = 240


class Child:
    """The process with the device; a new one is started where a case has ended the last."""

    def __init__(self, library: Path) -> None:
        self.library = library
        self.process: subprocess.Popen[str] | None = None

    def run(self, case: str, device: str, *words: str, **options: Any) -> Any:
        """What a case found on a device."""
        asked = {"case": case, "device": device, "words": words, "options": options}
        process = self._running()
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(asked) + "\n")
        process.stdin.flush()
        line = process.stdout.readline()
        if not line:
            pytest.fail(f"the process with the device ended, code {self.close()}, in {asked}")
        answer = json.loads(line)
        if "error" in answer:
            pytest.fail(answer["error"])
        return answer["found"]

    def both(self, case: str, *words: str, **options: Any) -> tuple[Any, Any]:
        """What a case found on the CPU and on the device."""
        return tuple(self.run(case, name, *words, **options) for name in ("cpu", twin.NAME))

    def _running(self) -> subprocess.Popen[str]:
        if self.process is None:
            words = [sys.executable, "-m", "tests.device.child", str(self.library)]
            pipe = subprocess.PIPE
            self.process = subprocess.Popen(
                words, stdin=pipe, stdout=pipe, text=True, cwd=ROOT, env=environment()
            )
        return self.process

    def close(self) -> int | None:
        """End it, and give its code; without input it has nothing more to do."""
        process, self.process = self.process, None
        if process is None:
            return None
        with process:  # closes the other pipe, too
            assert process.stdin is not None
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()
            return process.wait(timeout=60)


def environment() -> dict[str, str]:
    """That of this process, with its path and one thread."""
    path = os.pathsep.join(filter(None, [str(ROOT), *sys.path]))
    return {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}


def missing() -> str | None:
    """Why the device cannot be built here.

    torch.utils.cpp_extension would tell, and import distutils into the process of all tests.
    """
    release = tuple(int(number) for number in re.findall(r"\d+", torch.__version__)[:2])
    if release < TORCH:
        return f"the test device is written for torch 2.13; this is {torch.__version__}"
    compiler = os.environ.get("CXX", "c++")
    if shutil.which(compiler) is None:
        return f"the test device needs a C++ compiler: there is no {compiler}"
    if shutil.which("ninja") is None:
        return "the test device needs ninja"
    return None


@pytest.fixture(scope="session")
def child(request: pytest.FixtureRequest, tmp_path_factory: Any) -> Iterator[Child]:
    """The process with the device, which is built once for this source and this torch."""
    reason = missing()
    if reason is not None:
        pytest.skip(reason)
    cache = getattr(request.config, "cache", None)
    folder = tmp_path_factory.mktemp("device") if cache is None else cache.mkdir("test-device")
    words = [sys.executable, "-m", "tests.device.twin", str(folder)]
    built = subprocess.run(
        words, cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=BUILDING
    )
    assert built.returncode == 0, built.stdout + built.stderr
    made = Child(Path(built.stdout.splitlines()[-1]))
    yield made
    made.close()
