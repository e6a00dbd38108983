"""What a row is: how to arrange it, how to run it, and what must come of it."""

from __future__ import annotations

import contextlib
import hashlib
import json
import multiprocessing
import os
import resource
import signal
import stat
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

#: A scan that takes a tenth of a second.
QUICK = ("--quick", "--horizon", "32", "--json", "report.json")
#: Variables of the caller that would change what a row shows.
PRIVATE = (
    "HF_TOKEN",
    "HF_ENDPOINT",
    "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD",
    "MEMAUDIT_DEBUG",
)
NOBODY = 65534
#: A process that lives for so many seconds hangs and is killed; no row comes near it.
HANGING = 300.0


@dataclass(frozen=True)
class Scene:
    """The folders of one row.

    `inputs` holds what is opened, `output` is the working directory and the only place where files
    may appear. Hostile code, if it ran, would create `canary`.
    """

    root: Path

    @property
    def inputs(self) -> Path:
        return self.root / "in"

    @property
    def output(self) -> Path:
        return self.root / "out"

    @property
    def canary(self) -> Path:
        return self.root / "canary"


@dataclass(frozen=True)
class Outcome:
    """What was seen."""

    scene: Scene
    exit: int
    stdout: str
    stderr: str

    @property
    def code(self) -> str:
        """The code of the first error line."""
        return self.stderr.partition("error[")[2].partition("]")[0]

    def report(self, name: str = "report.json") -> dict[str, Any]:
        """A JSON report that the row wrote: strict JSON, which has no NaN and no infinity."""
        return json.loads((self.scene.output / name).read_text(), parse_constant=_refuse)

    def curves(self, name: str = "report.json") -> dict[str, Any]:
        """The memory functions of that report, by query."""
        return self.report(name)["results"]["memory"]["curves"]


Arrange = Callable[[Scene], Sequence[str]]
Check = Callable[[Outcome], None]


@dataclass(frozen=True)
class Row:
    """One hostile input or failure of the machine.

    `arrange` makes the inputs and gives back the arguments of `memaudit`, which runs once with each
    of `modes` added to them. `check` asserts what else must hold; `says` stands in the error. Where
    the row needs limits, signals, a plugin or another user, it runs in a process of its own:
    `first` is called there before the command, or `command` in place of it, and `room` is the
    address space, in megabytes, beside what torch takes. `slow` rows are run before a release.
    """

    name: str
    arrange: Arrange
    exit: int
    code: str = ""
    says: str = ""
    check: Check | None = None
    modes: tuple[tuple[str, ...], ...] = ((),)
    env: Mapping[str, str] = field(default_factory=dict)
    first: Callable[[Scene], object] | None = None
    command: Callable[[list[str]], int] | None = None
    room: int = 0
    unprivileged: bool = False
    slow: bool = False
    writes: tuple[str, ...] = ()


def parametrized(rows: Sequence[Row]) -> pytest.MarkDecorator:
    """One test for each row, called by its name."""
    assert len({row.name for row in rows}) == len(rows), "two rows have one name"
    marks = {True: [pytest.mark.slow], False: []}
    every = [pytest.param(row, id=row.name, marks=marks[row.slow]) for row in rows]
    return pytest.mark.parametrize("row", every)


def run(row: Row, module: str, capfd: pytest.CaptureFixture[str]) -> None:
    """Arrange, run, and judge by what is promised for every row."""
    with tempfile.TemporaryDirectory(prefix="hostile-") as folder:
        scene = Scene(Path(folder).resolve() / "row")
        scene.inputs.mkdir(parents=True)
        scene.output.mkdir()
        arguments = [*row.arrange(scene)]
        if row.unprivileged and os.getuid() == 0:
            _hand_over(Path(folder))
        before = fingerprints(scene)
        for mode in row.modes:
            if row.first or row.command or row.room or row.unprivileged:
                outcome = _in_a_child(row, module, scene, [*arguments, *mode])
            else:
                outcome = _here(row, scene, [*arguments, *mode], capfd)
            scene.output.chmod(0o700)
            _judge(row, outcome, before)


def _judge(row: Row, outcome: Outcome, before: dict[str, str]) -> None:
    said = outcome.stdout + outcome.stderr
    assert not outcome.scene.canary.exists(), "hostile code was run"
    assert "Traceback" not in said, said
    assert (outcome.exit, outcome.code) == (row.exit, row.code), said
    assert row.says in outcome.stderr
    now = fingerprints(outcome.scene)
    assert now == before, "an input changed, or a file lies outside the output"
    left = {path.name for path in outcome.scene.output.iterdir()}
    assert left <= {"report.json", "hub", *row.writes}
    assert row.exit != 3 or "report.json" not in left, "the source was refused and has a report"
    if row.check is not None:
        row.check(outcome)


def fingerprints(scene: Scene) -> dict[str, str]:
    """Every path outside the output, with what it holds."""
    found = {}
    for folder, folders, files in os.walk(scene.root):
        if Path(folder) == scene.root:
            folders.remove("out")
        for name in [*folders, *files]:
            found[os.path.join(folder, name)] = _fingerprint(Path(folder) / name)
    return found


def _fingerprint(path: Path) -> str:
    status = path.lstat()
    if stat.S_ISLNK(status.st_mode):
        return f"link to {os.readlink(path)}"
    if not stat.S_ISREG(status.st_mode) or status.st_size > 1 << 28:  # giants are full of holes
        return f"{stat.S_IFMT(status.st_mode)} {status.st_size * stat.S_ISREG(status.st_mode)}"
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _refuse(word: str) -> None:
    raise AssertionError(f"{word} stands in the report")


def _hand_over(root: Path) -> None:
    """Give everything to a user without rights: root may write into what is read-only."""
    for folder, folders, files in os.walk(root):
        for name in [".", *folders, *files]:
            os.chown(os.path.join(folder, name), NOBODY, NOBODY, follow_symlinks=False)


def surroundings(row: Row, scene: Scene) -> dict[str, str]:
    """The variables that a row sets."""
    return {"HF_HOME": str(scene.output / "hub"), "HF_HUB_OFFLINE": "1", **row.env}


def _here(
    row: Row, scene: Scene, arguments: list[str], capfd: pytest.CaptureFixture[str]
) -> Outcome:
    from memaudit.cli.app import main

    with pytest.MonkeyPatch.context() as patch, contextlib.chdir(scene.output):
        for name in PRIVATE:
            patch.delenv(name, raising=False)
        for name, value in surroundings(row, scene).items():
            patch.setenv(name, value)
        capfd.readouterr()
        status = main(arguments)
        return Outcome(scene, status, *capfd.readouterr())


def _in_a_child(row: Row, module: str, scene: Scene, arguments: list[str]) -> Outcome:
    """Run in a fork of a process that has imported everything and done nothing else."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.hostile.warm"])
    streams = [scene.root.parent / name for name in ("stdout", "stderr")]
    child = context.Process(target=_be, args=(module, row.name, scene, arguments, streams))
    child.start()
    child.join(HANGING)
    if child.exitcode is None:
        child.kill()
        child.join()
    texts = [path.read_bytes().decode("utf-8", "replace") for path in streams]
    assert child.exitcode is not None
    return Outcome(scene, child.exitcode, *texts)


def _be(module: str, name: str, scene: Scene, arguments: list[str], streams: list[Path]) -> None:
    """The child: becomes the command, with the signals of a shell in the foreground."""
    from memaudit.cli.app import main

    row = next(row for row in import_module(module).ROWS if row.name == name)
    for number, path in enumerate(streams, start=1):
        handle = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
        os.dup2(handle, number)
        os.close(handle)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    for name in PRIVATE:
        os.environ.pop(name, None)
    os.environ.update(surroundings(row, scene))
    os.chdir(scene.output)
    if row.unprivileged and os.getuid() == 0:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    if row.first is not None:
        row.first(scene)
    if row.room:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limit = pages * resource.getpagesize() + (row.room << 20)
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    status = (row.command or main)(arguments)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def installed(kind: str, *points: str) -> Callable[[Scene], None]:
    """Installs plugins, given as NAME = MODULE:CLASS, into the process of a row."""

    def first(scene: Scene) -> None:
        site = scene.root.parent / "site"
        for number, point in enumerate(points):
            info = site / f"outside{number}-1.0.dist-info"
            info.mkdir(parents=True)
            (info / "METADATA").write_text(
                f"Metadata-Version: 2.1\nName: outside{number}\nVersion: 1.0\n"
            )
            (info / "entry_points.txt").write_text(f"[memaudit.{kind}]\n{point}\n")
        sys.path.insert(0, str(site))

    return first
