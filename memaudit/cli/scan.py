"""`memaudit scan` and `memaudit card`: audit a model, show and write it, decide the exit code."""

from __future__ import annotations

import re
import sys
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
    UNMEASURED,
    check_device,
    check_dtype,
    console,
    imported,
    offline,
    one_of,
    quieted,
    readable,
    say,
    say_gates,
    to_stdout,
)
from memaudit.cli.parameters import SOURCE, takes
from memaudit.errors import ArgumentError, MemauditError, SourceError, clean
from memaudit.options import DEFAULT_QUERIES, LARGEST_SEED, Option, parse_settings
from memaudit.registry import DEFAULT_PROBES

if TYPE_CHECKING:
    from memaudit.report import Report

#: What shapes a scan on the command line; with a report at hand none of it applies.
SHAPING = (
    *("horizon", "queries", "probes", "adapter", "settings", "seed", "allow_pickle"),
    *("quick", "thorough"),
)


@takes(
    *("horizon", "queries", "probes", "adapter", "device", "dtype", "revision", "settings", "text"),
    *("seed", "offline", "timeout", "trust_remote_code", "allow_pickle", "quick", "thorough"),
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
    voice = one_of({"quiet": given["quiet"], "verbose": given["verbose"]}) or "summary"
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
    try:
        report, interrupted = performed(source, arguments, progress=progress, debug=given["debug"])
    except KeyboardInterrupt:
        say(UNMEASURED)
        raise typer.Exit(INTERRUPTED) from None
    if not interrupted:
        report = replace(report, gates=judged(gates, report))
    try:
        failure = write_targets(targets, report)
        if all(target.path is not None for target in targets):
            show_report(report, voice=voice)
    except KeyboardInterrupt:
        say("interrupted while the report was written")
        raise typer.Exit(INTERRUPTED) from None
    if failure is not None:
        raise failure
    raise typer.Exit(_verdict(report, interrupted=interrupted))


def checked_arguments(given: dict[str, Any]) -> dict[str, Any]:
    """The arguments of `memaudit.scan`, or what is wrong with one, before any work starts."""
    check_device(given["device"])
    check_dtype(given["dtype"])
    if given["seed"] > LARGEST_SEED:
        raise ArgumentError(f"--seed is at most {LARGEST_SEED}")
    if given["adapter"] is not None:
        registry.find("adapters", given["adapter"])
    own = ("horizon", "seed", "text", "adapter", "device", "dtype", "revision", "offline")
    own += ("timeout", "trust_remote_code", "allow_pickle")
    level = one_of({"quick": given["quick"], "thorough": given["thorough"]}) or "standard"
    return {
        **parse_settings(given["settings"] or ()),
        **{name: given[name] for name in own},
        "level": level,
        "queries": _known("queries", given["queries"]),
        "probes": _known("probes", given["probes"]),
    }


def performed(
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


def show_report(report: Report, *, voice: str) -> None:
    """One line, a summary or all of it on stdout."""
    from memaudit.writers.terminal import one_line, show

    if voice == "quiet":
        to_stdout(readable(f"{one_line(report)}\n"))
        return
    sheet = console()
    screen = sheet.height if sys.stdout.isatty() else None  # FORCE_COLOR makes no screen
    to_stdout(readable(show(report, sheet, verbose=voice == "verbose", screen=screen)))


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
    *SHAPING,
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
    from memaudit.writers.card import check_card, matches, write_card

    voice = one_of({"quiet": given["quiet"], "verbose": given["verbose"]})
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
        fixed = {"device": "auto", "dtype": "auto", "revision": None, "text": None}
        fixed |= {"offline": True, "timeout": None, "trust_remote_code": False}
        arguments = checked_arguments({**given, **fixed})
        progress = not (given["no_progress"] or given["quiet"])
        found, interrupted = performed(
            str(folder), arguments, progress=progress, debug=given["debug"]
        )
        if interrupted:
            say("interrupted; the card was left as it was")
            raise typer.Exit(INTERRUPTED)
    done = write_card(found, folder, dataset=dataset)
    files = f"{note}{clean(done.readme)} and {clean(done.results)}"
    say(f"{files} were written; nothing was pushed" if done.changed else f"{files} say so already")
    if voice == "verbose":
        show_report(found, voice=voice)
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
    for name in SHAPING:
        origin = context.get_parameter_source(name)
        if origin is not None and origin.name == "COMMANDLINE":
            flags = {"settings": "--set", "queries": "--query", "probes": "--probe"}
            option = flags.get(name, f"--{name.replace('_', '-')}")
            fact = f"{option} is for a scan, and REPORT.json is one already"
            raise ArgumentError(fact, hint="leave out one of them")
