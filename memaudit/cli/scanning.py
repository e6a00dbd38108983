"""What `memaudit scan` does: check everything, audit, write, decide about the exit code."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from memaudit import registry
from memaudit.cli.conditions import Asked, Condition
from memaudit.cli.gates import Gate, judged, parse_scan_gates, say_gates
from memaudit.cli.output import INTERRUPTED, UNMEASURED, console, readable, say, show, to_stdout
from memaudit.cli.settings import parse_settings
from memaudit.cli.starting import calm, check_device, check_dtype, imported
from memaudit.cli.targets import Target, parse_targets, write_targets
from memaudit.errors import ArgumentError, MemauditError
from memaudit.writers.progress import progress_bar
from memaudit.settings import LARGEST_SEED

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from memaudit.report import Report

CLEAN, GATE, INCOMPLETE = 0, 1, 4


@dataclass(frozen=True, slots=True)
class Order:
    """A scan whose arguments have all been checked."""

    source: str
    arguments: Mapping[str, Any]
    targets: tuple[Target, ...]
    gates: tuple[Gate | Condition, ...]
    #: How much is printed: "quiet" the verdict, "verbose" the whole report, else a summary.
    voice: str = "summary"


def checked_order(
    source: str,
    *,
    arguments: Mapping[str, Any],
    queries: Sequence[str],
    probes: Sequence[str],
    settings: Sequence[str],
    levels: Mapping[str, bool],
    files: Mapping[str, str | None],
    reports: Sequence[str],
    fail_on: Sequence[str],
    voices: Mapping[str, bool] = MappingProxyType({}),
) -> Order:
    """The order, or the first thing that is wrong with it, before any work starts."""
    from memaudit.loading.access import access_from
    from memaudit.loading.source import parse_source

    check_device(arguments["device"])
    check_dtype(arguments["dtype"])
    if arguments["seed"] > LARGEST_SEED:
        raise ArgumentError(f"--seed is at most {LARGEST_SEED}")
    if arguments["adapter"] is not None:
        registry.find("adapters", arguments["adapter"])
    everything = {
        **parse_settings(settings),
        **arguments,
        "level": one_of(levels) or "standard",
        "queries": _known("queries", queries),
        "probes": _known("probes", probes),
    }
    voice = one_of(voices) or "summary"
    gates = parse_scan_gates(fail_on, _asked(everything))
    access = access_from(everything)
    parsed = parse_source(source, revision=arguments["revision"], access=access)
    targets = parse_targets(reports, files, source=parsed.path)
    return Order(source, everything, targets, gates, voice)


def perform(order: Order, *, progress: bool, debug: bool) -> int:
    """Audit, write the reports and give back the exit code."""
    try:
        report, interrupted = performed(order, progress=progress, debug=debug)
    except KeyboardInterrupt:
        say(UNMEASURED)
        return INTERRUPTED
    if not interrupted:
        report = replace(report, gates=judged(order.gates, report))
    try:
        failure = _written(order, report)
    except KeyboardInterrupt:
        say("interrupted while the report was written")
        return INTERRUPTED
    if failure is not None:
        raise failure
    return _verdict(order, report, interrupted=interrupted)


def performed(order: Order, *, progress: bool, debug: bool) -> tuple[Report, bool]:
    """The report, and whether the audit was interrupted after something had been measured."""
    if order.arguments["offline"]:  # huggingface_hub reads it when it is imported
        os.environ["HF_HUB_OFFLINE"] = os.environ["TRANSFORMERS_OFFLINE"] = "1"
    try:
        with calm(debug=debug), progress_bar(wanted=progress) as advance:
            return _audit(order, advance)
    except MemauditError as error:
        raise error.at(order.source) from error


def _written(order: Order, report: Report) -> MemauditError | None:
    """Write every report, and show one unless stdout is taken."""
    failure = write_targets(order.targets, report)
    if all(target.path is not None for target in order.targets):
        show_report(report, voice=order.voice)
    return failure


def show_report(report: Report, *, voice: str) -> None:
    """One line, a summary or all of it on stdout."""
    from memaudit.reports.overview import one_line, overview_for
    from memaudit.reports.terminal import Terminal, can_show_braille

    sheet = console()
    if voice == "quiet":
        to_stdout(readable(f"{one_line(report)}\n"))
    elif voice == "verbose":
        show(Terminal().for_console(sheet, report), on=sheet)
    else:
        screen = sheet.height if sys.stdout.isatty() else None  # FORCE_COLOR makes no screen
        braille = can_show_braille(sheet)
        show(overview_for(sheet, report, screen=screen, ascii_only=not braille), on=sheet)


def _audit(order: Order, advance: Callable[[str, int, int], None]) -> tuple[Report, bool]:
    advance("starting", 0, 1)
    audit = imported("memaudit.audit")
    advance("starting", 1, 1)
    try:
        return audit.scan(order.source, progress=advance, **order.arguments), False
    except audit.Interrupted as stop:
        return stop.report, True


def _verdict(order: Order, report: Report, *, interrupted: bool) -> int:
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


def _asked(everything: Mapping[str, Any]) -> Asked:
    """What will be measured, where nothing is named what is measured by default."""
    named = {kind: everything[kind] for kind in ("queries", "probes")}
    given = {kind: names for kind, names in named.items() if names is not None}
    return Asked(**given, horizon=everything["horizon"])


def one_of(words: Mapping[str, bool]) -> str | None:
    """The one option of several that is given; two of them contradict each other."""
    asked = [f"--{name}" for name, wanted in words.items() if wanted]
    if len(asked) > 1:
        fact = f"{' and '.join(asked)} contradict each other"
        raise ArgumentError(fact, hint="give one of them")
    return asked[0].removeprefix("--") if asked else None


def _known(kind: str, names: Sequence[str]) -> tuple[str, ...] | None:
    """The names once each, in their order; None leaves the choice to the audit."""
    for name in names:
        registry.find(kind, name)
    return tuple(dict.fromkeys(names)) or None
