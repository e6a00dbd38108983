"""The checks that plugin authors run on a report format find a careless one."""

from __future__ import annotations

import pytest

from memaudit.errors import clean
from memaudit.interfaces import AbstractReportFormat
from memaudit.testing import check_report_format


class Rows(AbstractReportFormat):
    """The names and verdicts of a report, each name written by `cell`."""

    name, summary, suffix = "rows", "names and verdicts", ".txt"

    def __init__(self, cell) -> None:
        self.cell = cell

    def render(self, report) -> str:
        pairs = [("complete", report.complete)]
        pairs += [(self.cell(name), curve.decay.kind) for name, curve in report.memory.items()]
        return "".join(f"{name} {kind}\n" for name, kind in pairs)


def test_a_careful_format_passes():
    check_report_format(Rows(clean))


@pytest.mark.parametrize(
    ("cell", "fact"),
    [
        (str, r"control characters in a name puts .*x1b"),
        (lambda name: "\n".join(map(clean, name.splitlines())), "makes a line of its own"),
        (lambda name: clean(name) + "\ud800" * ("\ud800" in name), "no valid text"),
    ],
)
def test_a_careless_format_is_found(cell, fact):
    with pytest.raises(AssertionError, match=fact):
        check_report_format(Rows(cell))
