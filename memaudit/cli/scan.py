"""`memaudit scan` and `memaudit card`: audit a model, show and write it, decide the exit code."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from memaudit import registry
from memaudit.cli.files import parse_targets, write_targets
from memaudit.cli.output import (
    CLEAN,
    GATE,
    INCOMPLETE,
    INTERRUPTED,
    check_common,
    imported,
    offline,
    one_of,
    print_document,
    quieted,
    readable,
    say,
    say_gates,
    to_stdout,
)
from memaudit.cli.parameters import SOURCE, takes
from memaudit.errors import ArgumentError, MemauditError, SourceError, clean
from memaudit.options import Option, parse_settings
from memaudit.registry import DEFAULT_PROBES, DEFAULT_QUERIES

if TYPE_CHECKING:
    from memaudit.report import Report

#: Options of a scan that make no sense beside a finished report.
SCAN_OPTIONS = (
    *("horizon", "queries", "probes", "adapter", "settings", "seed", "allow_pickle"),
    *("quick", "thorough"),
)


@takes(
    *("horizon", "queries", "probes", "adapter", "device", "dtype", "revision", "settings", "text"),
    *(
        "data",
        "seed",
        "budget",
        "threads",
        "offline",
        "timeout",
        "trust_remote_code",
        "allow_pickle",
        "weights_only",
        "quick",
        "thorough",
    ),
    *("json", "html", "markdown", "output_path", "report", "fail_on"),
    *("quiet", "verbose", "no_progress", "debug"),
    source=(str, SOURCE),
)
def scan(source: str, **given: Any) -> None:
    """Audit a model: how long does it remember, and how does that memory decay?

    Exits: 0 clean, 1 gate hit, 2 arguments, 3 source, 4 incomplete, 5 machine, 130 interrupted
    (143 by SIGTERM, 129 by a lost terminal).
    """
    from memaudit.gates import judged, parse_gates
    from memaudit.loading.access import access_from
    from memaudit.loading.source import parse_source

    arguments = checked_arguments(given)
    detail = one_of({"quiet": given["quiet"], "verbose": given["verbose"]})
    gates = parse_gates(
        given["fail_on"] or (),
        probes=DEFAULT_PROBES if arguments["probes"] is None else arguments["probes"],
        queries=DEFAULT_QUERIES if arguments["queries"] is None else arguments["queries"],
        horizon=arguments["horizon"],
    )
    parsed = parse_source(
        source, revision=arguments["revision"], access=access_from(dict(arguments))
    )
    files = {name: given[name] for name in ("json", "html", "markdown")}
    files["lm-eval"] = given["output_path"]
    targets = parse_targets(given["report"] or (), files, source=parsed.path)
    progress = not (given["no_progress"] or given["quiet"])
    report, interrupted = run_scan(source, arguments, progress=progress, debug=given["debug"])
    if not interrupted:
        report = replace(report, gates=judged(gates, report))
    try:
        failure = write_targets(targets, report)
        if all(target.path is not None for target in targets):
            show_report(report, detail=detail)
    except KeyboardInterrupt:
        say("interrupted while the report was written")
        raise typer.Exit(INTERRUPTED) from None
    if failure is not None:
        raise failure
    raise typer.Exit(_verdict(report, interrupted=interrupted))


def checked_arguments(given: dict[str, Any]) -> dict[str, Any]:
    """The arguments of `memaudit.scan`, or what is wrong with one, before any work starts."""
    check_common(given)
    own = (
        "horizon",
        "seed",
        "budget",
        "threads",
        "text",
        "data",
        "adapter",
        "device",
        "dtype",
        "revision",
        "offline",
    )
    own += ("timeout", "trust_remote_code", "allow_pickle")
    given = {**given, "text": None if given["text"] is None else Path(given["text"])}
    level = one_of({"quick": given["quick"], "thorough": given["thorough"]}) or "standard"
    return {
        **parse_settings(given["settings"] or ()),
        **{name: given[name] for name in own},
        "level": level,
        "weights_only": given.get("weights_only", False),
        "queries": _known("queries", given["queries"]),
        "probes": _known("probes", given["probes"]),
    }


def run_scan(
    source: str, arguments: dict[str, Any], *, progress: bool, debug: bool
) -> tuple[Report, bool]:
    """The report, and whether the audit was interrupted after something had been measured."""
    from memaudit.writers.progress import progress_bar

    if arguments["offline"]:
        offline()
    try:
        with quieted(debug=debug), progress_bar(wanted=progress) as advance:
            advance("starting", 0, 1)
            audit = imported("memaudit.audit")
            advance("starting", 1, 1)
            try:
                return audit.scan(source, progress=advance, **arguments), False
            except audit.Interrupted as stop:
                return stop.report, True
    except MemauditError as error:
        raise error.at(source) from error


def show_report(report: Report, *, detail: str | None) -> None:
    """One line ("quiet"), a summary (None) or all of it ("verbose") on stdout."""
    from memaudit.writers.terminal import one_line

    if detail == "quiet":
        to_stdout(readable(f"{one_line(report)}\n"))
    else:
        print_document(report.document(), verbose=detail == "verbose")


def _verdict(report: Report, *, interrupted: bool) -> int:
    if interrupted:
        say("interrupted; the report holds what was measured until then")
        return INTERRUPTED
    hit = say_gates(report.gates)
    if not report.complete:
        for error in report.errors:
            place = f" {error['where']}:" if error.get("where") else ""
            say(f"error[{error['code']}]{place} {error['message']}; {error['hint']}")
        say("the audit is incomplete; the report holds what was measured")
    if hit:
        return GATE
    return CLEAN if report.complete else INCOMPLETE


def _known(kind: str, names: list[str] | None) -> list[str] | None:
    """The names of plugins that were given, each of which must exist; None for the default."""
    for name in names or ():
        registry.find(kind, name)
    return list(dict.fromkeys(names)) if names else None


@takes(
    Option(
        "dataset",
        "command",
        "The benchmark of the hub that the numbers are filed under.",
        "memaudit/memory",
        flag="--dataset",
        metavar="ORG/NAME",
    ),
    Option(
        "force",
        "command",
        "Write REPORT.json into the card even if it is about other weights than those of DIR.",
        False,
        bool,
        "--force",
    ),
    *SCAN_OPTIONS,
    *("quiet", "verbose", "no_progress", "debug"),
    context=(typer.Context, typer.Argument(hidden=True)),
    folder=(Path, typer.Argument(metavar="DIR", help="The folder of a model.")),
    report=(
        Path | None,
        typer.Argument(
            metavar="REPORT.json", help="A report from scan --json; without one, DIR is scanned."
        ),
        None,
    ),
)
def card(context: typer.Context, folder: Path, report: Path | None, **given: Any) -> None:
    """Write an audit into the model card of DIR: README.md and .eval_results/memaudit.yaml.

    Only what stands between memaudit's markers in README.md changes; nothing is pushed anywhere.
    For a scan with other options, save it with scan --json and give the file.
    Exits: 0 written, 2 arguments, 3 source, 4 incomplete, 5 machine, 130 interrupted.
    """
    from memaudit.writers.card import README, RESULTS, check_card, matches, write_card

    detail = one_of({"quiet": given["quiet"], "verbose": given["verbose"]})
    dataset = given["dataset"]
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", dataset):
        raise ArgumentError(f"--dataset is {clean(dataset)!r}", hint="write it as org/name")
    if not folder.is_dir():
        fact = "not a folder" if folder.exists() else "no such folder"
        hint = "name the folder that the model and its README.md are in"
        raise SourceError("E_NOT_FOUND", fact, hint=hint, source=folder)
    check_card(folder)
    note = ""
    if report is not None:
        _no_scan_options(context)
        found = saved_report(report)
        same = matches(found, folder)
        if same is None:
            note = "nobody can tell whether the report is about the weights of this folder; "
        elif not same and not given["force"]:
            digest = clean(found.subject.sha256, limit=80)
            fact = f"no weights in it have the sha256 of those in the report, {digest}"
            hint = "leave out REPORT.json to scan the folder, or give --force if you know better"
            raise SourceError("E_CHANGED", fact, hint=hint, source=folder)
    else:
        fixed = {"device": "auto", "dtype": "auto", "revision": None, "text": None, "data": None}
        fixed |= {
            "budget": None,
            "threads": None,
            "offline": True,
            "timeout": None,
            "trust_remote_code": False,
        }
        arguments = checked_arguments({**given, **fixed})
        progress = not (given["no_progress"] or given["quiet"])
        found, interrupted = run_scan(
            str(folder), arguments, progress=progress, debug=given["debug"]
        )
        if interrupted:
            say("interrupted; the card was left as it was")
            raise typer.Exit(INTERRUPTED)
    changed = write_card(found, folder, dataset=dataset)
    files = f"{note}{clean(folder / README)} and {clean(folder / RESULTS)}"
    say(
        f"{files} were written; nothing was pushed"
        if changed
        else f"{files} are up to date already"
    )
    if detail == "verbose":
        show_report(found, detail=detail)
    if not found.complete:
        say("the audit is incomplete, and the card says so")
        raise typer.Exit(INCOMPLETE)


def saved_report(path: Path) -> Report:
    """A report of one model from a file; every error names the file."""
    from memaudit.report import Report
    from memaudit.report_files import read_json

    try:
        data = read_json(path)
        if data.get("kind") == "family":
            fact = "this is the report of a family, not of one model"
            raise SourceError("E_UNSUPPORTED", fact, hint="give a report of memaudit scan --json")
        return Report.from_dict(data)
    except MemauditError as error:
        raise error.at(path) from error


def _no_scan_options(context: typer.Context) -> None:
    for name in SCAN_OPTIONS:
        origin = context.get_parameter_source(name)
        if origin is not None and origin.name == "COMMANDLINE":
            flags = {"settings": "--set", "queries": "--query", "probes": "--probe"}
            option = flags.get(name, f"--{name.replace('_', '-')}")
            fact = f"{option} is for a scan, and REPORT.json is one already"
            raise ArgumentError(fact, hint="leave out one of them")
