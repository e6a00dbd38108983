"""`memaudit card`: put an audit into a model card, on disk."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from memaudit.cli import options
from memaudit.cli.output import INTERRUPTED, say
from memaudit.cli.parameters import flag, option
from memaudit.errors import ArgumentError, MemauditError, SourceError, clean

if TYPE_CHECKING:
    from memaudit.report import Report

#: The parameters that shape a scan; with a report at hand there is none.
SCANNING = ("horizon", "query", "probe", "adapter", "settings", "seed", "allow_pickle")
SCANNING += ("quick", "thorough")

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="The folder of a model.")]
Saved = Annotated[
    Path | None,
    typer.Argument(
        metavar="REPORT.json", help="A report from scan --json; without one, DIR is scanned."
    ),
]
Dataset = Annotated[
    str,
    option(
        "--dataset",
        metavar="ORG/NAME",
        help="The benchmark of the hub that the numbers are filed under.",
    ),
]

Force = Annotated[
    bool,
    flag(
        "--force",
        help="Write REPORT.json into the card even if it is about other weights than those of DIR.",
    ),
]
Quiet = Annotated[
    bool, flag("--quiet", "-q", help="Show no progress; one line says what was written.")
]
Verbose = Annotated[bool, flag("--verbose", "-v", help="Print the whole report, too.")]


def card(
    context: typer.Context,
    folder: Folder,
    report: Saved = None,
    *,
    dataset: Dataset = "memaudit/memory",
    force: Force = False,
    horizon: options.Horizon = 512,
    query: options.Queries = None,
    probe: options.Probes = None,
    adapter: options.Adapter = None,
    settings: options.Settings = None,
    seed: options.Seed = 0,
    allow_pickle: options.AllowPickle = False,
    quick: options.Quick = False,
    thorough: options.Thorough = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
    no_progress: options.NoProgress = False,
    debug: options.Debug = False,
) -> None:
    """Write an audit into the model card of DIR: README.md and .eval_results/memaudit.yaml.

    Only what stands between memaudit's markers in README.md changes; nothing is pushed anywhere.
    For a scan with other options, save it with scan --json and give the file.
    Exits: 0 written, 2 arguments, 3 source, 4 incomplete, 5 machine, 130 interrupted.
    """
    from memaudit.cli.scanning import INCOMPLETE, checked_order, one_of, performed, show_report

    voice = one_of({"quiet": quiet, "verbose": verbose})
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", dataset):
        raise ArgumentError(f"--dataset is {clean(dataset)!r}", hint="write it as org/name")
    _check_folder(folder)
    note = ""
    if report is not None:
        _no_scan_options(context)
        found = _saved(report)
        note = _same_weights(found, folder, force=force)
    else:
        choice = {"adapter": adapter, "device": "auto", "dtype": "auto", "revision": None}
        access = {"offline": True, "timeout": None, "trust_remote_code": False}
        order = checked_order(
            str(folder),
            arguments={
                **{"horizon": horizon, "seed": seed, "text": None, "allow_pickle": allow_pickle},
                **choice,
                **access,
            },
            queries=query or (),
            probes=probe or (),
            settings=settings or (),
            levels={"quick": quick, "thorough": thorough},
            files={},
            reports=(),
            fail_on=(),
        )
        found, interrupted = performed(order, progress=not (no_progress or quiet), debug=debug)
        if interrupted:
            say("interrupted; the card was left as it was")
            raise typer.Exit(INTERRUPTED)
    _write(found, folder, dataset, note)
    if voice == "verbose":
        show_report(found, voice=voice)
    if not found.complete:
        say("the audit is incomplete, and the card says so")
        raise typer.Exit(INCOMPLETE)


def _write(report: Report, folder: Path, dataset: str, note: str) -> None:
    from memaudit.cards import write_card

    done = write_card(report, folder, dataset=dataset)
    files = f"{note}{clean(done.readme)} and {clean(done.results)}"
    say(f"{files} were written; nothing was pushed" if done.changed else f"{files} say so already")


def _check_folder(folder: Path) -> None:
    from memaudit.cards import check_card

    if not folder.is_dir():
        fact = "not a folder" if folder.exists() else "no such folder"
        hint = "name the folder that the model and its README.md are in"
        raise SourceError("E_NOT_FOUND", fact, hint=hint, source=folder)
    check_card(folder)


def _same_weights(report: Report, folder: Path, *, force: bool) -> str:
    """Refuse a report about another model; what to say where nobody can tell."""
    from memaudit.cards import matches

    same = matches(report, folder)
    if same is None:
        return "nobody can tell whether the report is about the weights of this folder; "
    if not same and not force:
        told = clean(report.subject.sha256, limit=80)
        fact = f"no weights in it have the sha256 of those in the report, {told}"
        hint = "leave out REPORT.json to scan the folder, or give --force if you know better"
        raise SourceError("E_CHANGED", fact, hint=hint, source=folder)
    return ""


def _no_scan_options(context: typer.Context) -> None:
    for name in SCANNING:
        origin = context.get_parameter_source(name)
        if origin is not None and origin.name == "COMMANDLINE":
            option = "--set" if name == "settings" else f"--{name.replace('_', '-')}"
            fact = f"{option} is for a scan, and REPORT.json is one already"
            raise ArgumentError(fact, hint="leave out one of them")


def _saved(path: Path) -> Report:
    """A report that a card can be made of; values of a wrong type come to light while it is."""
    from memaudit.cards import eval_results
    from memaudit.report import Report
    from memaudit.report_files import corrupt, read_json
    from memaudit.reports.markdown import Markdown

    try:
        data = read_json(path)
        if data.get("kind") == "family":
            fact = "this is the report of a family, not of one model"
            raise SourceError("E_UNSUPPORTED", fact, hint="give a report of memaudit scan --json")
        report = Report.from_dict(data)
        Markdown().render(report)
        eval_results(report)
    except MemauditError as error:
        raise error.at(path) from error
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise corrupt(error).at(path) from error
    return report
