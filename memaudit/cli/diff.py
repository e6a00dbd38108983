"""`memaudit diff`: what changed between two saved reports."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from memaudit.cli.options import ChangedFailOn, Debug
from memaudit.cli.output import console, readable, show, to_stdout
from memaudit.cli.parameters import flag

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from memaudit.comparing.difference import Difference
    from memaudit.errors import MemauditError
    from memaudit.report import GateResult, Report


def diff(
    before: Annotated[
        Path, typer.Argument(metavar="BEFORE.json", help="The earlier report, from scan --json.")
    ],
    after: Annotated[Path, typer.Argument(metavar="AFTER.json", help="The later report.")],
    *,
    quiet: Annotated[bool, flag("--quiet", "-q", help="Print one line, the verdict.")] = False,
    verbose: Annotated[bool, flag("--verbose", "-v", help="Show what is unchanged, too.")] = False,
    fail_on: ChangedFailOn = None,
    html: Annotated[
        str | None,
        typer.Option(
            "--html",
            metavar="FILE",
            envvar="MEMAUDIT_DIFF_HTML",  # not that of scan, whose page it would replace
            show_envvar=False,
            help="Write it as one page for a browser, too, curves on top of each other.",
        ),
    ] = None,
    debug: Debug = False,
) -> None:
    """Show what changed between two reports: memory, layers, stability, findings.

    Exits: 0 fine, whether anything changed or not; 1 gate hit; 2 arguments; 3 a file is no report.
    """
    from memaudit.cli.change_gates import parse_change_gates
    from memaudit.cli.gates import say_gates
    from memaudit.cli.pages import page_target
    from memaudit.cli.scanning import one_of
    from memaudit.comparing import compare
    from memaudit.reports.diff import diff_page
    from memaudit.reports.diff_verdict import verdict_line
    from memaudit.reports.terminal import can_show_braille

    del debug
    one_of({"quiet": quiet, "verbose": verbose})
    gates = parse_change_gates(fail_on or ())
    target = page_target(html, spared=(before, after))
    first, second = _report(before), _report(after)
    sheet, files = console(), (str(before), str(after))
    with _readable(after):
        both = compare(first, second)
        page = diff_page(
            both,
            before=files[0],
            after=files[1],
            verbose=verbose,
            ascii_only=not can_show_braille(sheet),
        )
        results = [gate.compare(first, second) for gate in gates]
    failure = None if target is None else _written(target, both, (first, second), files, results)
    if quiet:
        to_stdout(readable(f"{verdict_line(both)}\n"))
    else:
        show(page, on=sheet)
    hit = say_gates(results)
    if failure is not None:
        raise failure
    if hit:
        raise typer.Exit(1)


def _written(
    target: Path,
    difference: Difference,
    reports: tuple[Report, Report],
    files: tuple[str, str],
    gates: Sequence[GateResult],
) -> MemauditError | None:
    """Write the page; what keeps it from being made or written does not silence the text."""
    from memaudit.cli.rendering import rendering
    from memaudit.errors import MemauditError
    from memaudit.report_files import write_text
    from memaudit.reports.diff_html import diff_html

    try:
        with rendering("the page", target):
            drawn = diff_html(difference, *reports, files=files, gates=gates)
        write_text(drawn, target)
    except MemauditError as error:
        return error
    return None


def _report(path: Path) -> Report:
    """A report that can be compared with itself; one that cannot is damaged."""
    from memaudit.comparing import compare
    from memaudit.errors import SourceError
    from memaudit.report import Report
    from memaudit.report_files import read_json
    from memaudit.reports.diff import diff_text

    with _readable(path):
        data = read_json(path)
        if data.get("kind") == "family":
            fact = "this is the report of a family, not of one model"
            raise SourceError("E_UNSUPPORTED", fact, hint="give reports of memaudit scan --json")
        report = Report.from_dict(data)
        diff_text(compare(report, report), verbose=True)
    return report


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Name the file in every error; values of a wrong type come to light as late as here."""
    from memaudit.errors import MemauditError
    from memaudit.report_files import corrupt

    try:
        yield
    except MemauditError as error:
        raise error.at(path) from error
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise corrupt(error).at(path) from error
