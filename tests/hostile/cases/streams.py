"""Full disks behind stdout, closed streams and readers that have left."""

from __future__ import annotations

import os
import sys

from tests.hostile.case import Case, Outcome
from tests.hostile.cases.environment import SCAN, run, words


def one_line(outcome: Outcome) -> None:
    """The error is one line on stderr."""
    assert outcome.stderr.count("\n") == 1


def full_stdout(arguments: list[str]) -> int:
    os.dup2(os.open("/dev/full", os.O_WRONLY), 1)
    return run(arguments)


def closed(*names: str):
    """Streams that were closed before the start, as by `>&-`."""

    def command(arguments: list[str]) -> int:
        numbers = {"stdin": 0, "stdout": 1, "stderr": 2}
        for name in names:
            os.close(numbers[name])
            setattr(sys, name, None)
        return run(arguments)

    return command


def unread(arguments: list[str]) -> int:
    """A pipe whose reader has gone."""
    reading, writing = os.pipe()
    os.close(reading)
    os.dup2(writing, 1)
    return run(arguments)


def silent(outcome: Outcome) -> None:
    assert outcome.stderr == ""


SAID = [["list"], ["explain", "MA102"], ["doctor"]]
SHOWN = [SCAN, [*SCAN, "--json", "-"]]
HELP = [["--help"], ["scan", "--help"], ["--version"]]
CASES = [
    Case(
        "environment",
        f"memaudit {' '.join(arguments)} {name}",
        words(*arguments),
        exit=status,
        code=code,
        command=command,
        check=check,
    )
    for name, command, status, code, check, commands in (
        ("on a full disk", full_stdout, 5, "E_DISK", one_line, [*SHOWN, *SAID, *HELP]),
        ("without stdout", closed("stdout"), 0, "", silent, [*SHOWN, *SAID]),
        ("without any stream", closed("stdin", "stdout", "stderr"), 0, "", silent, SHOWN[:1]),
        ("whose reader has left", unread, 0, "", silent, [*SHOWN, *SAID[:2], HELP[0]]),
    )
    for arguments in commands
]
CASES += [
    Case(
        "environment",
        "an error without stderr",
        words("scan", "nowhere.pt"),
        exit=3,
        command=closed("stderr"),
    ),
]
