"""`memaudit diff`: what changed between two saved reports."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import typer

from memaudit.cli.files import page_target, rendering
from memaudit.cli.output import GATE, one_of, print_document, readable, say_gates, to_stdout
from memaudit.cli.parameters import COMMANDS, takes
from memaudit.cli.scan import saved_report
from memaudit.errors import MemauditError

CHANGES = replace(
    COMMANDS["fail_on"],
    metavar="NAME<N%|new-LEVEL|…",
    help='Exit with 1 at a change: "horizon<-20%" when the horizon shrank by more than 20 %, '
    '"rate>+10%", "margin != 0%"; at a finding that is new: new-warning, new-MA201; or at whatever '
    "scan --fail-on takes, of AFTER. What only one report has hits the gate. May be repeated.",
)
PAGE = replace(
    COMMANDS["html"],
    help="Write it as one page for a browser, too, curves on top of each other.",
    env="MEMAUDIT_DIFF_HTML",  # not that of scan, whose page it would replace
)


@takes(
    replace(COMMANDS["quiet"], help="Print one line, the verdict."),
    replace(COMMANDS["verbose"], help="Show all of it, not a screen."),
    CHANGES,
    PAGE,
    "debug",
    before=(Path, typer.Argument(metavar="BEFORE.json", help="The earlier report.")),
    after=(Path, typer.Argument(metavar="AFTER.json", help="The later report.")),
)
def diff(before: Path, after: Path, **given: Any) -> None:
    """Show what changed between two reports: memory, layers, stability, findings.

    Exits: 0 fine, whether anything changed or not; 1 gate hit; 2 arguments; 3 a file is no report.
    """
    from memaudit.compare import compare
    from memaudit.gates import judged, parse_changes
    from memaudit.report_files import write_text
    from memaudit.writers.html import render_document

    one_of({"quiet": given["quiet"], "verbose": given["verbose"]})
    gates = parse_changes(given["fail_on"] or ())
    target = page_target(given["html"], compared=(before, after))
    first, second = saved_report(before), saved_report(after)
    both = replace(compare(first, second), gates=judged(gates, second, first))
    failure: MemauditError | None = None
    if target is not None:
        try:
            with rendering("the page", target):
                page = render_document(both.document())
            write_text(page, target)
        except MemauditError as error:  # the text is shown all the same
            failure = error
    if given["quiet"]:
        to_stdout(readable(f"{both.headline}\n"))
    else:
        print_document(both.document(), verbose=given["verbose"])
    hit = say_gates(both.gates)
    if failure is not None:
        raise failure
    if hit:
        raise typer.Exit(GATE)
