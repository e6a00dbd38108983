"""Bad days of the disk: full, read-only, protected, or not a disk at all."""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO

from tests.hostile.case import Case, Outcome, Scene

SCAN = ["scan", "demo:lstm", "--quick", "--horizon", "64"]
PREVIOUS = "what an earlier run has written\n"


def scan(scene: Scene) -> list[str]:
    """A small audit whose report replaces an earlier one."""
    (scene.output / "report.json").write_text(PREVIOUS)
    return [*SCAN, "--json", "report.json"]


def words(*arguments: str) -> Callable[[Scene], list[str]]:
    """Nothing but arguments."""
    return lambda scene: list(arguments)


def run(arguments: list[str]) -> int:
    """The command line itself, with the signals of a shell in the foreground."""
    from memaudit.cli.app import main

    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
    return main(arguments)


def kept(outcome: Outcome) -> None:
    """The earlier report is intact, and the new one was at least shown."""
    assert (outcome.scene.output / "report.json").read_text() == PREVIOUS
    assert "exponential" in outcome.stdout, "the terminal report is lost"


def untouched(outcome: Outcome) -> None:
    """The earlier report is intact, and no work was done."""
    assert (outcome.scene.output / "report.json").read_text() == PREVIOUS
    assert outcome.stdout == ""


def whole(outcome: Outcome) -> None:
    """The new report is there from its first to its last letter."""
    assert outcome.report()["schema"] == 2


def short_files(arguments: list[str]) -> int:
    """No file may grow beyond 32 kB: the report is longer, what is printed is not."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 15, 1 << 15))
    return run(arguments)


def long_scan(scene: Scene) -> list[str]:
    return [*scan(scene)[:-4], "--horizon", "2048", "--json", "report.json"]


def read_only_folder(scene: Scene) -> list[str]:
    arguments = imported(scan(scene))
    scene.output.chmod(0o555)
    return arguments


def protected_report(scene: Scene) -> list[str]:
    arguments = imported(scan(scene))
    (scene.output / "report.json").chmod(0o444)
    return arguments


def unreadable_input(scene: Scene) -> list[str]:
    from memaudit.loading.source import DEMO_FOLDER

    model = scene.inputs / "model.safetensors"
    model.write_bytes((DEMO_FOLDER / "lstm.safetensors").read_bytes())
    arguments = imported(["scan", str(model)])
    model.chmod(0)
    return arguments


def imported(arguments: list[str]) -> list[str]:
    """The arguments, after a run with them: nobody may not read root's Python any more."""
    from memaudit.cli.app import main

    with redirect_stdout(StringIO()), redirect_stderr(StringIO()):
        assert main([*arguments[:2], "--quick", "--horizon", "64"]) == 0
    return arguments


def link(scene: Scene) -> list[str]:
    (scene.output / "deep").mkdir()
    (scene.output / "report.json").symlink_to("deep/real.json")
    return [*SCAN, "--json", "report.json"]


def link_kept(outcome: Outcome) -> None:
    assert (outcome.scene.output / "report.json").is_symlink()
    assert [p.name for p in (outcome.scene.output / "deep").iterdir()] == ["real.json"]
    whole(outcome)


def fifo(scene: Scene) -> list[str]:
    os.mkfifo(scene.output / "pipe")
    return [*SCAN, "--json", "pipe"]


def fifo_kept(outcome: Outcome) -> None:
    assert (outcome.scene.output / "pipe").is_fifo()


def json_alone(outcome: Outcome) -> None:
    import json

    assert json.loads(outcome.stdout)["complete"] is True


def two_reports(scene: Scene) -> list[str]:
    return [*scan(scene), "--verbose", "--report", "terminal=other.txt"]


def other_kept(outcome: Outcome) -> None:
    kept(outcome)
    assert (outcome.scene.output / "other.txt").read_text() == outcome.stdout


CASES = [
    *(
        Case(
            "environment",
            f"{name} at {step}",
            scan,
            exit=5,
            code="E_DISK",
            says="cannot write",
            env={"MEMAUDIT_FAULT": f"{step}={name}"},
            check=kept,
        )
        for step, name in (
            ("write.opened", "ENOSPC"),
            ("write.opened", "EROFS"),
            ("write.flushed", "ENOSPC"),
            ("write.flushed", "EDQUOT"),
        )
    ),
    Case(
        "environment",
        "a full disk keeps the other report",
        two_reports,
        exit=5,
        code="E_DISK",
        env={"MEMAUDIT_FAULT": "write.flushed=ENOSPC"},
        check=other_kept,
        writes=("other.txt",),
    ),
    Case(
        "environment",
        "a limit on the size of files",
        long_scan,
        exit=5,
        code="E_DISK",
        says="File too large",
        command=short_files,
        check=kept,
    ),
    Case(
        "environment",
        "a read-only folder",
        read_only_folder,
        exit=5,
        code="E_DISK",
        says="Permission denied",
        unprivileged=True,
        check=untouched,
    ),
    Case(
        "environment",
        "a write-protected report",
        protected_report,
        exit=5,
        code="E_DISK",
        says="write-protected",
        unprivileged=True,
        check=untouched,
    ),
    Case(
        "environment",
        "an input that may not be read",
        unreadable_input,
        exit=5,
        code="E_DISK",
        says="not permitted",
        unprivileged=True,
    ),
    Case("environment", "a report through a link", link, exit=0, check=link_kept, writes=("deep",)),
    Case(
        "environment",
        "a report into a FIFO",
        fifo,
        exit=2,
        code="E_ARGUMENT",
        says="not a regular file",
        check=fifo_kept,
        writes=("pipe",),
    ),
    Case(
        "environment",
        "a report to /dev/stdout",
        words(*SCAN, "--json", "/dev/stdout"),
        exit=0,
        check=json_alone,
    ),
]
