"""Failures: full disks, signals, files that change meanwhile, and what lies in the folder.

What was measured is kept, no report is torn, and an earlier report stays until it is replaced.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from memaudit.loading.source import DEMO_FOLDER
from tests.hostile.rows import QUICK, Arrange, Outcome, Row, Scene, installed, parametrized, run
from tests.hostile.small_models import whole, write

PREVIOUS = "what an earlier run has written\n"
SCAN = ("scan", "demo:lstm", *QUICK)


def again(*options: str) -> Arrange:
    """A scan whose report replaces an earlier one."""

    def arrange(scene: Scene) -> list[str]:
        (scene.output / "report.json").write_text(PREVIOUS)
        return [*SCAN, *options]

    return arrange


def intact(outcome: Outcome) -> None:
    assert (outcome.scene.output / "report.json").read_text() == PREVIOUS


def shown(outcome: Outcome) -> None:
    """The earlier report is intact, and the new one is on the terminal."""
    intact(outcome)
    assert "exponential" in outcome.stdout


def before_work(outcome: Outcome) -> None:
    intact(outcome)
    assert outcome.stdout == ""


def protected(path: str, mode: int) -> Arrange:
    """Something that may not be written to."""

    def arrange(scene: Scene) -> list[str]:
        arguments = again()(scene)
        (scene.output / path).chmod(mode)
        return [*arguments]

    return arrange


def unreadable(scene: Scene) -> list[str]:
    model = write(scene.inputs / "model.safetensors")
    model.chmod(0)
    return ["scan", str(model)]


def through_a_link(scene: Scene) -> list[str]:
    (scene.output / "deep").mkdir()
    (scene.output / "report.json").symlink_to("deep/real.json")
    return [*SCAN]


def link_kept(outcome: Outcome) -> None:
    whole(outcome)
    assert (outcome.scene.output / "report.json").is_symlink()
    assert os.listdir(outcome.scene.output / "deep") == ["real.json"]


def full_stdout(scene: Scene) -> None:
    os.dup2(os.open("/dev/full", os.O_WRONLY), 1)


def reader_gone(scene: Scene) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    os.dup2(writing, 1)


def halved(outcome: Outcome) -> None:
    """The batch was made smaller, and that is said."""
    whole(outcome)
    assert "MA004" in {finding["code"] for finding in outcome.report()["findings"]}


def disk(name: str, arrange: Arrange, check: Any = shown, **more: Any) -> Row:
    return Row(name, arrange, 5, "E_DISK", check=check, **more)


def fault(plan: str) -> dict[str, str]:
    return {"MEMAUDIT_FAULT": plan}


DISKS = [
    disk("a full disk", again(), env=fault("write.flushed=ENOSPC"), room=4000),
    disk("a read-only folder", protected(".", 0o555), before_work, unprivileged=True),
    disk("an input that may not be read", unreadable, None, unprivileged=True),
    disk("a full disk behind stdout", lambda s: list(SCAN[:2]), None, first=full_stdout),
    Row("a reader who has left", lambda s: [*SCAN], 0, check=whole, first=reader_gone),
    Row("a report through a link", through_a_link, 0, check=link_kept, writes=("deep",)),
    Row(
        "little memory", lambda s: [*SCAN, "--horizon", "4096"], 0, check=halved, room=48, slow=True
    ),
    Row("offline, and not in the cache", lambda s: ["scan", "org/name"], 5, "E_OFFLINE"),
]


def partial(outcome: Outcome) -> None:
    """The report says that it was cut short, and holds what was measured."""
    report = outcome.report()
    assert report["complete"] is False
    assert report["results"]["assumptions"]["items"]
    assert outcome.stdout.startswith("PARTIAL REPORT")


def stopped(name: str, number: signal.Signals, check: Any = partial, plan: str = "a=kill") -> Row:
    """A signal while a probe hangs, and perhaps another one later."""
    return Row(
        name,
        again("--probe", "assumptions", "--probe", "outside"),
        128 + number,
        says="interrupted",
        check=check,
        first=installed("probes", "outside = tests.hostile.outside_plugins:ProbeHangs"),
        env={**fault(plan), "OUTSIDE_SIGNAL": str(number.value)},
    )


def at(step: str, check: Any) -> Row:
    """Ctrl-C at a step of the work, once."""
    plan = fault(f"{step}=interrupt")
    return Row(f"Ctrl-C at {step}", again(), 130, "", "interrupted", check, env=plan, room=4000)


def nohup(scene: Scene) -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)


def killed_then_again(step: str) -> Callable[[list[str]], int]:
    """A run that is killed at a step, and another one that finds what it has left."""

    def command(arguments: list[str]) -> int:
        from memaudit.cli.app import main

        child = os.fork()
        if child == 0:
            os.environ.update(fault(f"{step}=kill"))
            os._exit(main(arguments))
        assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
        text = Path("report.json").read_text()
        assert text == PREVIOUS
        for left in Path().glob(".memaudit-*.tmp"):
            left.unlink()
        return main(arguments)

    return command


SIGNALS = [
    stopped("Ctrl-C", signal.SIGINT),
    stopped("SIGTERM", signal.SIGTERM),
    stopped("Ctrl-C, then SIGTERM", signal.SIGINT, intact, "write.opened=terminate"),
    at("open.read", before_work),
    Row("nohup", again(), 0, check=whole, first=nohup, env=fault("measure.pass=hangup")),
    *(
        Row(f"SIGKILL at {step}", again(), 0, check=whole, command=killed_then_again(step))
        for step in ("open.read", "measure.pass", "write.flushed")
    ),
]

LONG_AGO = 10**18


def changing(scene: Scene) -> list[str]:
    """A model that lies where files may change; nobody has touched it for long."""
    path = write(scene.output / "model.safetensors")
    os.utime(path, ns=(LONG_AGO, LONG_AGO))
    return ["scan", str(path), *QUICK]


def changing_folder(scene: Scene) -> list[str]:
    """A model of transformers in the dtype of its file, which needs no conversion."""
    copy = shutil.copytree(DEMO_FOLDER / "bert", scene.output / "bert")
    return ["scan", str(copy), *QUICK, "--dtype", "float32"]


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def rewrite(path: Path) -> None:
    """Other numbers, and the date of before."""
    with path.open("r+b") as stream:
        stream.seek(-1, os.SEEK_END)
        last = stream.read()
        stream.seek(-1, os.SEEK_END)
        stream.write(bytes([last[0] ^ 1]))
    os.utime(path, ns=(LONG_AGO, LONG_AGO))


def replace_by_fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def meanwhile(
    change: Callable[[Path], None], name: str = "model.safetensors"
) -> Callable[[Scene], None]:
    """The fault that is planned is a change of the file."""

    def first(scene: Scene) -> None:
        from memaudit import faults

        faults._fail = lambda action: change(scene.output / name)

    return first


def about_the_bytes(outcome: Outcome) -> None:
    """The report is there, says that it is incomplete, and why."""
    report = outcome.report()
    assert report["complete"] is False
    assert outcome.curves()
    assert [error["code"] for error in report["errors"]] == ["E_CHANGED"]


CHANGES = [
    Row(
        f"{name} {when}",
        changing,
        status,
        "E_CHANGED",
        check=check,
        env=fault(f"{step}=change"),
        first=meanwhile(change),
        writes=("model.safetensors",),
    )
    for when, step, status, check, changes in (
        ("while it is read", "open.read", 3, None, ("rewritten",)),
        ("during the audit", "measure.pass", 4, about_the_bytes, ("cut", "rewritten")),
        ("in the end", "measure.pass", 4, about_the_bytes, ("a FIFO",)),
    )
    for name in changes
    for change in [{"cut": cut, "rewritten": rewrite, "a FIFO": replace_by_fifo}[name]]
]

MAPPED = Row(
    "a model of transformers in float32, cut during the audit",
    changing_folder,
    4,
    "E_CHANGED",
    check=about_the_bytes,
    env=fault("measure.pass=change"),
    first=meanwhile(cut, "bert/model.safetensors"),
    slow=True,
    writes=("bert",),
)

MODULES = [f"{name}.py" for name in ("typer", "torch", "numpy", "json", "memaudit_rnn")]


def evil_modules(scene: Scene) -> list[str]:
    """A working directory with modules of well-known names."""
    for name in MODULES:
        (scene.output / name).write_text(f"open({str(scene.canary)!r}, 'w')\nraise SystemExit\n")
    return [*SCAN]


def as_a_module(arguments: list[str]) -> int:
    os.execv(sys.executable, [sys.executable, "-m", "memaudit", *arguments])


def as_a_command(arguments: list[str]) -> int:
    """The console script, which Python starts without the working directory."""
    code = "import sys; sys.path.pop(0); from memaudit.cli import main; sys.exit(main())"
    os.execv(sys.executable, [sys.executable, "-c", code, *arguments])


PLACES = [
    Row(
        f"{name} in a folder of evil modules",
        evil_modules,
        0,
        check=whole,
        command=command,
        slow=command is as_a_command,
        writes=tuple(MODULES),
    )
    for name, command in (("python -m memaudit", as_a_module), ("the command", as_a_command))
]

ROWS = [*DISKS, *SIGNALS, *CHANGES, MAPPED, *PLACES]


@parametrized(ROWS)
def test_a_failure_of_the_machine_costs_no_report(
    row: Row, capfd: pytest.CaptureFixture[str]
) -> None:
    run(row, __name__, capfd)
