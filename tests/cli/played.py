"""A played audit for the tests of the command line."""

from __future__ import annotations

from dataclasses import replace

from memaudit.report import Report
from memaudit.rules import judge
from tests.handmade import curve, report


class Interrupted(KeyboardInterrupt):
    def __init__(self, made: Report) -> None:
        self.report = made


class Stage:
    """Plays the audit: records how it was called, answers what the test wants."""

    def __init__(self) -> None:
        self.calls: list[dict] = []
        self.answer: Report | BaseException = report(curve())

    def scan(self, source, **arguments):
        self.calls.append({"source": source, **arguments})
        if isinstance(self.answer, BaseException):
            raise self.answer
        return replace(self.answer, findings=judge(self.answer))


def one_line(err: str) -> str:
    assert err.endswith("\n")
    assert err.count("\n") == 1
    return err[:-1]
