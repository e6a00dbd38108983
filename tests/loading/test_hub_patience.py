"""How long a hub is waited for, and that nothing is left running."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from memaudit.errors import MachineError
from memaudit.loading.access import Access
from memaudit.loading.hub import STRIDE, _Follower
from tests.loading.hub_server import Hub, Repository, dripping, git_object, silence, stalling
from tests.loading.hub_visits import NAME, fetch, garbage, hub_home, refusal, repository

__all__ = ["hub_home"]
pytestmark = pytest.mark.usefixtures("hub_home")
LINUX = pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs /proc")


STALLS = {
    "listing": [silence, stalling(1000, b"{"), dripping(1000, pause=0.2)],
    "head": [silence],
    "body": [silence, stalling(9000, b"x" * 100), dripping(9000, pause=0.2)],
}


@pytest.mark.parametrize(
    ("stage", "number"), [(stage, i) for stage, found in STALLS.items() for i in range(len(found))]
)
def test_a_hub_that_stalls_is_given_up(stage: str, number: int, hub_home: Path):
    repo = Repository(NAME, {"model.safetensors": b"x" * 9000})
    with Hub(repo, **{stage: STALLS[stage][number]}) as hub:
        error = refusal(MachineError, hub, timeout=1.0)
    assert error.code == "E_NETWORK"
    assert error.fact == f"the hub at {hub.host} gave no answer for 1 s"
    assert "--timeout" in error.hint
    assert garbage(hub_home) == []


def test_a_slow_hub_that_gets_on_is_waited_for():
    content = os.urandom(6 << 17)
    repo = Repository(NAME, {"model.safetensors": content})

    def slow(answer) -> None:
        answer.begin(200, {"Content-Length": str(len(content))})
        for start in range(0, len(content), 1 << 17):
            answer.hub.over.wait(0.5)
            answer.wfile.write(content[start : start + (1 << 17)])

    with Hub(repo, body=slow) as hub:
        found = fetch(hub, timeout=2.0)
    assert (found.folder / "model.safetensors").read_bytes() == content


def test_the_clock_starts_anew_for_every_stride_of_every_task():
    watch = _Follower(Access())
    facts = {"file": "model.safetensors", "total": 9 * STRIDE, "waiting": False}
    seen = []
    for checking in (False, True):
        for done in (1, STRIDE, STRIDE + 1, 2 * STRIDE):
            watch.alive = 0.0
            watch._count({**facts, "checking": checking, "done": done})
            seen.append(watch.alive > 0)
    assert seen == [False, True, False, True] * 2


@contextmanager
def locked(home: Path, content: bytes) -> Iterator[Path]:
    """Another process has begun to fetch the file, and holds its lock."""
    folder = home / "hub" / ".locks" / "models--org--lstm"
    blobs = home / "hub" / "models--org--lstm" / "blobs"
    for made in (folder, blobs):
        made.mkdir(parents=True)
    with (folder / f"{git_object(content)}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield blobs / f"{git_object(content)}.0123abcd.incomplete"


def test_a_process_that_holds_the_file_and_does_nothing_is_named(hub_home: Path):
    content = bytes(9000)
    with (
        locked(hub_home, content),
        Hub(Repository(NAME, {"model.safetensors": content})) as hub,
    ):
        error = refusal(MachineError, hub, timeout=1.0)
    assert error.code == "E_NETWORK"
    assert error.fact == "another process is fetching model.safetensors and got no further for 1 s"


def test_a_process_that_fetches_the_file_is_waited_for(hub_home: Path):
    content = bytes(1 << 20)
    with Hub(Repository(NAME, {"model.safetensors": content})) as hub:
        done = threading.Event()

        def other_process() -> None:
            with locked(hub_home, content) as partial:
                begun.set()
                for number in range(6):
                    partial.write_bytes(bytes((number + 1) << 17))
                    done.wait(0.5)

        begun = threading.Event()
        thread = threading.Thread(target=other_process)
        thread.start()
        begun.wait(20)
        found = fetch(hub, timeout=2.0)
        done.set()
        thread.join()
    assert (found.folder / "model.safetensors").read_bytes() == content


FETCH = """
import sys
from memaudit.loading.access import Access
from memaudit.loading.hub import fetch_repository
fetch_repository("org/lstm", revision=None, access=Access())
"""


@LINUX
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_the_child_does_not_outlive_who_started_it(number: signal.Signals):
    with Hub(repository(), listing=silence) as hub:
        environment = {**os.environ, "HF_ENDPOINT": hub.url}
        parent = subprocess.Popen(
            [sys.executable, "-c", FETCH], env=environment, stderr=subprocess.DEVNULL
        )
        until(lambda: bool(hub.asked))
        children = Path(f"/proc/{parent.pid}/task/{parent.pid}/children").read_text().split()
        assert len(children) == 1
        parent.send_signal(number)
        parent.wait(20)
        until(lambda: is_gone(children[0]))


def until(done) -> None:
    for _ in range(400):
        if done():
            return
        time.sleep(0.05)
    raise AssertionError("it did not happen within 20 s")


def is_gone(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True
