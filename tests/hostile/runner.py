"""Runs cases, each in a forked process of its own that already has torch, and judges them."""

from __future__ import annotations

import hashlib
import os
import resource
import signal
import stat
import sys
import tempfile
import time
import traceback
from dataclasses import dataclass
from importlib import import_module
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import TYPE_CHECKING

from tests.hostile.case import Outcome, Scene

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.hostile.case import Case

NOBODY = 65534
#: Variables of the caller that would change what a case shows.
PRIVATE = (
    "HF_TOKEN",
    "HF_ENDPOINT",
    "HF_HUB_OFFLINE",
    "HF_HOME",
    "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD",
)


@dataclass(frozen=True)
class Row:
    """One line of the table; no faults means green."""

    case: Case
    status: int
    code: str
    seconds: float
    megabytes: float
    faults: tuple[str, ...]


def warm_up() -> None:
    """Import what every run needs once, so that a case costs what it does and not the start."""
    import torch

    for name in (
        "audit",
        "cli.app",
        "loading.checkpoint",
        "loading.hub",
        "writers.terminal",
    ):
        import_module(f"memaudit.{name}")
    import_module("memaudit_rnn.adapter")
    torch.set_num_threads(1)
    import_module("memaudit").scan("demo:rnn", level="quick", horizon=16)


def run_all(cases: Sequence[Case], *, jobs: int) -> Iterator[Row]:
    """Every case, some at a time, in their order; the workers are forks and know the cases."""

    def work(box: Connection, turn: int) -> None:
        for case in cases[turn::jobs]:
            row = run(case)
            box.send((row.status, row.code, row.seconds, row.megabytes, row.faults))

    boxes: list[Connection] = []
    for turn in range(jobs):
        ours, theirs = Pipe(duplex=False)
        if os.fork() == 0:
            try:
                work(theirs, turn)
            finally:
                os._exit(0)
        theirs.close()
        boxes.append(ours)
    for number, case in enumerate(cases):
        yield Row(case, *boxes[number % jobs].recv())
    for _ in boxes:
        os.wait()


def run(case: Case) -> Row:
    """Arrange, run, look at what is left, and judge."""
    with tempfile.TemporaryDirectory(prefix="hostile-") as name:
        scene = Scene(Path(name).resolve())
        scene.inputs.mkdir()
        scene.output.mkdir()
        arguments = case.arrange(scene)
        if case.unprivileged:
            _hand_over(scene.root)
        before = fingerprints(scene)
        outcome = _perform(case, scene, arguments)
        faults = tuple(_faults(case, outcome, before))
        _make_removable(scene.root)
    return Row(case, outcome.status, outcome.code, outcome.seconds, outcome.megabytes, faults)


def fingerprints(scene: Scene) -> dict[str, str]:
    """Every path outside the output, with what it holds."""
    found: dict[str, str] = {}
    for folder, folders, files in os.walk(scene.root):
        for name in [*folders, *files]:
            path = Path(folder) / name
            if scene.output in (path, *path.parents) or path.name in ("stdout", "stderr"):
                continue
            found[str(path.relative_to(scene.root))] = _fingerprint(path)
    return found


def _fingerprint(path: Path) -> str:
    mode = path.lstat().st_mode
    if stat.S_ISLNK(mode):
        return f"link to {os.readlink(path)}"
    if not stat.S_ISREG(mode):
        return stat.filemode(mode)[:1]
    if path.stat().st_size > 1 << 28:  # sparse giants are recognised by their size
        return f"{path.stat().st_size} bytes"
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _hand_over(root: Path) -> None:
    if os.getuid() != 0:
        return
    for folder, folders, files in os.walk(root):
        for path in [folder, *(os.path.join(folder, name) for name in [*folders, *files])]:
            os.chown(path, NOBODY, NOBODY, follow_symlinks=False)


def _make_removable(root: Path) -> None:
    for folder, _, _ in os.walk(root):
        os.chmod(folder, 0o700)


def _perform(case: Case, scene: Scene, arguments: list[str]) -> Outcome:
    streams = [scene.root / "stdout", scene.root / "stderr"]
    handles = [os.open(p, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666) for p in streams]
    began = time.monotonic()
    child = os.fork()
    if child == 0:
        _be_the_case(case, scene, arguments, handles)
    status, usage = _await(child, until=began + 4 * case.seconds)
    seconds = time.monotonic() - began
    for handle in handles:
        os.close(handle)
    texts = [p.read_bytes().decode("utf-8", "replace") for p in streams]
    code = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
    return Outcome(scene, code, texts[0], texts[1], seconds, usage.ru_maxrss / 1024)


def _await(child: int, *, until: float) -> tuple[int, resource.struct_rusage]:
    """Wait for the child; one that hangs is killed."""
    while True:
        pid, status, usage = os.wait4(child, os.WNOHANG)
        if pid:
            return status, usage
        if time.monotonic() > until:
            os.kill(child, signal.SIGKILL)
        time.sleep(0.002)


def _be_the_case(case: Case, scene: Scene, arguments: list[str], handles: list[int]) -> None:
    """The forked child: becomes the command and never comes back."""
    status = 99
    try:
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(handles[0], 1)
        os.dup2(handles[1], 2)
        sys.stdin = open(0, closefd=False)  # noqa: SIM115
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
        for name in PRIVATE:
            os.environ.pop(name, None)
        os.environ |= {"HF_HOME": str(scene.output / "hub"), "HF_HUB_OFFLINE": "1", **case.env}
        os.chdir(scene.output)
        if case.unprivileged and os.getuid() == 0:
            os.environ["HOME"] = str(scene.output)
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
        status = (case.command or _memaudit)(arguments)
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(status)


def _memaudit(arguments: list[str]) -> int:
    from memaudit.cli.app import main

    signal.signal(signal.SIGINT, signal.default_int_handler)
    return main(arguments)


def _faults(case: Case, outcome: Outcome, before: dict[str, str]) -> list[str]:
    """Everything that is not as it must be."""
    faults: list[str] = []
    if outcome.status != case.exit:
        faults.append(f"exit {outcome.status} instead of {case.exit}")
    if outcome.code != case.code:
        faults.append(f"code {outcome.code or 'none'} instead of {case.code or 'none'}")
    if "Traceback" in outcome.stderr + outcome.stdout:
        faults.append("a traceback")
    if case.says and case.says not in outcome.stderr:
        faults.append(f"does not say {case.says!r}")
    if outcome.scene.canary.exists():
        faults.append("THE CANARY: hostile code was run")
    after = fingerprints(outcome.scene)
    if after != before:
        moved = sorted(k for k in {*after, *before} if after.get(k) != before.get(k))
        faults.append(f"inputs changed: {', '.join(moved[:3])}")
    left = sorted(p.name for p in outcome.scene.output.iterdir())
    if strange := [name for name in left if name not in ("report.json", "hub", *case.writes)]:
        faults.append(f"left in the output: {', '.join(strange[:3])}")
    if outcome.seconds > case.seconds:
        faults.append(f"took {outcome.seconds:.1f} s, more than {case.seconds:g}")
    if outcome.megabytes > case.megabytes:
        faults.append(f"took {outcome.megabytes:.0f} MB, more than {case.megabytes:g}")
    if case.check is not None:
        try:
            case.check(outcome)
        except (AssertionError, LookupError, ValueError, OSError) as error:
            faults.append(
                f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else 'failed'}"
            )
    if faults:
        faults.append(outcome.stderr.strip()[-400:])
    return faults
