"""`memaudit family`: audit models of growing size together."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from memaudit.cli.files import Target, check_no_model_file, parse_targets
from memaudit.cli.output import (
    CLEAN,
    GATE,
    INTERRUPTED,
    check_common,
    imported,
    offline,
    print_document,
    quieted,
    say,
    say_gates,
    to_stdout,
)
from memaudit.cli.parameters import takes
from memaudit.errors import ArgumentError, clean
from memaudit.options import LONGEST, SHORTEST, Option, parse_settings

if TYPE_CHECKING:
    from memaudit.families.result import FamilyReport

OWN = (
    Option(
        "target",
        "command",
        "The functional that they approximate: exp:0.9, poly:1.1 or another of `memaudit list "
        "targets`, or a file with a kernel (default: the largest member).",
        flag="--target",
        metavar="NAME|FILE",
    ),
    Option(
        "ball",
        "command",
        "How the size of a move is measured: spectral, frobenius, max-abs.",
        "spectral",
        flag="--ball",
        metavar="NAME",
    ),
    Option(
        "norm",
        "command",
        "How the size of an error is measured: sobolev, sup, l1, mse.",
        "sobolev",
        flag="--norm",
        metavar="NAME",
    ),
    Option(
        "group",
        "command",
        "The weights that move: recurrent, input, readout, all.",
        "all",
        flag="--group",
        metavar="NAME",
    ),
    Option("draws", "command", "Random moves of every size.", 30, int, "--draws", "N", low=1),
    Option(
        "ascent",
        "command",
        "Steps of gradient ascent after them; 0 for none.",
        10,
        int,
        "--ascent",
        "N",
        low=0,
    ),
    Option(
        "betas",
        "command",
        "A size of the moves; may be repeated (default: 21 from 0.001 to 1).",
        None,
        float,
        "--beta",
        "X",
        repeated=True,
    ),
    Option(
        "steps",
        "command",
        "Steps of the inputs.",
        100,
        int,
        "--steps",
        "N",
        low=SHORTEST,
        high=LONGEST,
    ),
)
OPENING = ("adapter", "device", "dtype", "seed", "offline", "timeout", "trust_remote_code")
OPENING += ("allow_pickle",)


@takes(
    *OWN,
    *OPENING,
    *("settings", "json", "fail_on", "no_progress", "debug"),
    sources=(
        list[str],
        typer.Argument(
            metavar="SOURCE...",
            help="Models of growing size: files, folders, hub ids, timm:NAME or demo:NAME.",
            show_default=False,
        ),
    ),
)
def family(sources: list[str], **given: Any) -> None:
    """Audit models of growing size: do larger ones stand smaller moves of their weights?

    Exits: 0 clean, 1 gate hit, 2 arguments, 3 source, 5 machine, 130 interrupted
    (143 by SIGTERM, 129 by a lost terminal).
    """
    from memaudit.writers.progress import progress_bar

    arguments, target, gates = _checked(sources, given)
    if arguments["offline"]:
        offline()
    with quieted(debug=given["debug"]), progress_bar(wanted=not given["no_progress"]) as advance:
        advance("starting", 0, 1)
        families = imported("memaudit.families.audit")
        advance("starting", 1, 1)
        try:
            report = families.family(sources, progress=advance, **arguments)
        except families.FamilyInterrupted as stop:
            report = stop.report
    try:
        _written(report, target, sources)
    except KeyboardInterrupt:
        say("interrupted while the report was written")
        raise typer.Exit(INTERRUPTED) from None
    if not report.complete:
        say("interrupted; the report holds the members that were measured until then")
        raise typer.Exit(INTERRUPTED)
    raise typer.Exit(GATE if say_gates(gate.judge(report) for gate in gates) else CLEAN)


def _checked(
    sources: list[str], given: dict[str, Any]
) -> tuple[dict[str, Any], Target | None, Any]:
    """Arguments, where the report goes and the gates, or what is wrong, before any work starts."""
    from memaudit.gates import parse_family_gates
    from memaudit.loading.access import access_from
    from memaudit.loading.source import parse_source

    check_common(given)
    own = {name: given[name] for name in (*(option.name for option in OWN), *OPENING)}
    own["betas"] = own["betas"] or None
    settings = parse_settings(given["settings"] or ())
    for name in settings:
        if name in own:
            hint = f"use --{name.replace('_', '-')}"
            raise ArgumentError(f"--set cannot change {clean(name)}", hint=hint)
    arguments = {**settings, **own}
    gates = parse_family_gates(given["fail_on"] or ())
    access = access_from(dict(arguments))
    found: tuple[Target, ...] = ()
    for source in sources:
        path = parse_source(source, access=access).path
        found = parse_targets((), {"json": given["json"]}, source=path)
    return arguments, next(iter(found), None), gates


def _written(report: FamilyReport, target: Target | None, sources: list[str]) -> None:
    """Write the JSON report, and show it unless stdout is taken."""
    from memaudit.report_files import dumps, write_text

    if target is not None:
        text = dumps(report.to_dict())
        if target.path is None:
            to_stdout(text)
            return
        for source in sources:
            check_no_model_file(target.path, Path(os.path.expanduser(source)))
        write_text(text, target.path)
    print_document(report.document(), verbose=True)
