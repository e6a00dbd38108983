"""Ctrl-C, SIGTERM, SIGHUP and SIGKILL: what was measured is kept, and no report is torn."""

from __future__ import annotations

import os
import signal
from collections import Counter
from pathlib import Path

from tests.hostile.case import Case, Outcome
from tests.hostile.cases.environment import PREVIOUS, run, scan, untouched, whole

WRITING = ("write.opened", "write.flushed", "write.replaced")


def planned(plan: str) -> None:
    """Set what shall fail, counted from now on."""
    from memaudit import faults

    faults._reached = Counter()
    os.environ[faults.VARIABLE] = plan


def partial(outcome: Outcome) -> None:
    """The report says that it was cut short, and holds what was measured."""
    report = outcome.report()
    assert report["complete"] is False
    assert report["results"]["assumptions"]["items"], "what was measured is lost"
    assert outcome.stdout.startswith("PARTIAL REPORT")


def at_the_last_pass(action: str, *, then: str = "", echo: float | None = None):
    """A signal when the queries run, and perhaps another one later that is no echo of it."""

    def command(arguments: list[str]) -> int:
        import memaudit
        from memaudit import faults
        from memaudit.cli.signals import Stopping

        planned("nowhere=kill")
        memaudit.scan("demo:lstm", horizon=64, level="quick")
        planned(f"measure.pass:{faults._reached['measure.pass']}={action};{then}")
        if echo is not None:
            Stopping.ECHO = echo
        return run(arguments)

    return command


def while_it_is_judged(arguments: list[str]) -> int:
    """A second Ctrl-C after the measurement and before the report."""
    from memaudit import audit
    from memaudit.cli.signals import Stopping

    def stop(report: object) -> tuple[()]:
        os.kill(os.getpid(), signal.SIGINT)
        return ()

    audit.judge = stop
    Stopping.ECHO = 0.0
    planned("measure.pass=interrupt")
    return run(arguments)


def nohup(arguments: list[str]) -> int:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    planned("measure.pass=hangup")
    return run(arguments)


def intact(outcome: Outcome) -> None:
    """The earlier report is there and nothing of the new one."""
    assert (outcome.scene.output / "report.json").read_text() == PREVIOUS


def signalled(name: str, status: int, **options) -> Case:
    return Case("environment", name, scan, exit=status, says="interrupted", **options)


SIGNALS = [
    signalled("Ctrl-C", 130, command=at_the_last_pass("interrupt"), check=partial),
    signalled("SIGTERM", 143, command=at_the_last_pass("terminate"), check=partial),
    signalled("SIGHUP", 129, command=at_the_last_pass("hangup"), check=partial),
    Case("environment", "SIGHUP under nohup", scan, exit=0, command=nohup, check=whole),
    signalled(
        "Ctrl-C while the file is opened",
        130,
        env={"MEMAUDIT_FAULT": "open.read=interrupt"},
        command=run,
        check=untouched,
    ),
    signalled(
        "Ctrl-C and its echo",
        130,
        command=at_the_last_pass("interrupt", then="write.opened=interrupt", echo=60.0),
        check=partial,
    ),
    *(
        signalled(
            f"Ctrl-C twice, the second at {step}",
            130,
            command=at_the_last_pass("interrupt", then=f"{step}=interrupt", echo=0.0),
            check=whole if step == "write.replaced" else intact,
        )
        for step in WRITING
    ),
    signalled(
        "Ctrl-C twice, the second before the report",
        130,
        command=while_it_is_judged,
        check=untouched,
    ),
    signalled(
        "Ctrl-C, then SIGTERM",
        130,
        command=at_the_last_pass("interrupt", then="write.opened=terminate"),
        check=intact,
    ),
    *(
        signalled(
            f"Ctrl-C once, at {step}",
            130,
            env={"MEMAUDIT_FAULT": f"{step}=interrupt"},
            command=run,
            check=whole,
        )
        for step in WRITING
    ),
]


def killed_then_again(step: str):
    """A run that is killed at a step, and another one that finds what it has left."""

    def command(arguments: list[str]) -> int:
        child = os.fork()
        if child == 0:
            planned(f"{step}=kill")
            run(arguments)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        assert os.WTERMSIG(status) == signal.SIGKILL, "the run was not killed"
        text = Path("report.json").read_text()
        if step == "write.replaced":
            assert text.startswith("{")
            assert text.endswith("}\n")
        else:
            assert text == PREVIOUS
        left = list(Path().glob(".memaudit-*.tmp"))
        assert len(left) == (step in WRITING[:2]), "the temporary file is not where it should be"
        return run(arguments)

    return command


KILLS = [
    Case(
        "environment",
        f"SIGKILL at {step}, and a second run",
        scan,
        exit=0,
        command=killed_then_again(step),
        check=whole,
        seconds=30,
    )
    for step in ("open.read", "open.parsed", "measure.pass", *WRITING)
]

CASES = [*SIGNALS, *KILLS]
