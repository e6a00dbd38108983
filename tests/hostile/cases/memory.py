"""Memory that runs short: the batch of probes is halved, the report says so, the numbers stay."""

from __future__ import annotations

import resource
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tests.hostile.case import Case, Outcome, Scene

if TYPE_CHECKING:
    from collections.abc import Callable

#: Answers of a row alone and in a batch are summed in another order: a few roundings.
TOLERANCE = 1e-12
SCAN = ("scan", "demo:lstm", "--horizon", "256", "--json", "report.json")
#: One sequence of that length needs some hundred megabytes.
ENDLESS = ("scan", "demo:lstm", "--quick", "--horizon", "262144")
LONG = ("scan", "demo:lstm", "--quick", "--horizon", "4096", "--json", "report.json")


def words(*arguments: str) -> Callable[[Scene], list[str]]:
    return lambda scene: list(arguments)


def with_room(megabytes: int) -> Callable[[list[str]], int]:
    """Run memaudit in an address space with so much room beside what is taken."""

    def command(arguments: list[str]) -> int:
        from memaudit.cli.app import main

        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limit = pages * resource.getpagesize() + (megabytes << 20)
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        return main(arguments)

    return command


def as_ever(**options) -> Callable[[Outcome], None]:
    """The curves equal those of an audit that had room, and MA004 says what happened."""

    def check(outcome: Outcome) -> None:
        import memaudit

        report = outcome.report()
        assert report["complete"]
        assert "MA004" in {finding["code"] for finding in report["findings"]}
        assert "memory ran short" in outcome.stderr
        alone = memaudit.scan("demo:lstm", **options)
        for name, curve in alone.memory.items():
            seen = outcome.curves()[name]
            off = np.abs(np.array(seen["values"]) - curve.values).max()
            assert off <= TOLERANCE * curve.values.max(), f"{name} is off by {off:.2g}"
            assert seen["decay"]["kind"] == curve.decay.kind
            assert seen["horizon"] == curve.horizon

    return check


def faulty(name: str, fault: str, **expected) -> Case:
    return Case("memory", name, words(*SCAN), env={"MEMAUDIT_FAULT": fault}, **expected)


CASES = [
    faulty(
        "the first pass fails", "measure.pass:1=MemoryError", exit=0, check=as_ever(horizon=256)
    ),
    faulty(
        "a pass in the middle fails",
        "measure.pass:5=MemoryError",
        exit=0,
        check=as_ever(horizon=256),
    ),
    faulty(
        "two passes in a row fail",
        "measure.pass:4-5=MemoryError",
        exit=0,
        check=as_ever(horizon=256),
    ),
    faulty("every pass fails", "measure.pass:1-99999=MemoryError", exit=5, code="E_MEMORY"),
    faulty("reading the file fails", "open.read=MemoryError", exit=5, code="E_MEMORY"),
    Case(
        "memory",
        "an address space that is too small for one pass",
        words(*LONG),
        exit=0,
        command=with_room(48),
        check=as_ever(level="quick", horizon=4096),
        seconds=90,
    ),
    Case(
        "memory",
        "an address space with no room at all",
        words(*ENDLESS),
        exit=5,
        code="E_MEMORY",
        command=with_room(48),
        seconds=60,
    ),
]
