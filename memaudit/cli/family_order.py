"""What `memaudit family` does: check everything, audit, write, decide about the exit code."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memaudit import registry
from memaudit.cli.gates import Gate, parse_family_gates, say_gates
from memaudit.cli.output import INTERRUPTED, UNMEASURED, console, say, show, to_stdout
from memaudit.cli.scanning import CLEAN, GATE
from memaudit.cli.settings import parse_settings
from memaudit.cli.starting import calm, check_device, check_dtype, imported
from memaudit.cli.targets import Target, parse_targets, spare_model
from memaudit.errors import ArgumentError, clean
from memaudit.report_files import dumps, write_text
from memaudit.writers.progress import progress_bar
from memaudit.settings import LARGEST_SEED

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from memaudit.families.result import FamilyReport


@dataclass(frozen=True, slots=True)
class FamilyOrder:
    """The audit of a family whose arguments have all been checked."""

    sources: tuple[str, ...]
    arguments: Mapping[str, Any]
    target: Target | None
    gates: tuple[Gate, ...]


def checked_family(
    sources: Sequence[str],
    *,
    arguments: Mapping[str, Any],
    settings: Sequence[str],
    json_file: str | None,
    fail_on: Sequence[str],
) -> FamilyOrder:
    """The order, or the first thing that is wrong with it, before any work starts."""
    from memaudit.loading.access import access_from
    from memaudit.loading.source import parse_source

    check_device(arguments["device"])
    check_dtype(arguments["dtype"])
    if arguments["seed"] > LARGEST_SEED:
        raise ArgumentError(f"--seed is at most {LARGEST_SEED}")
    if arguments["adapter"] is not None:
        registry.find("adapters", arguments["adapter"])
    everything = {**_own(parse_settings(settings), arguments), **arguments}
    gates = parse_family_gates(fail_on)
    access = access_from(everything)
    found: tuple[Target, ...] = ()
    for source in sources:
        path = parse_source(source, access=access).path
        found = parse_targets((), {"json": json_file}, source=path)
    return FamilyOrder(tuple(sources), everything, next(iter(found), None), gates)


def perform_family(order: FamilyOrder, *, progress: bool, debug: bool) -> int:
    """Audit, write the report and give back the exit code."""
    if order.arguments["offline"]:  # huggingface_hub reads it when it is imported
        os.environ["HF_HUB_OFFLINE"] = os.environ["TRANSFORMERS_OFFLINE"] = "1"
    try:
        with calm(debug=debug), progress_bar(wanted=progress) as advance:
            report = _audited(order, advance)
    except KeyboardInterrupt:
        say(UNMEASURED)
        return INTERRUPTED
    try:
        _written(order, report)
    except KeyboardInterrupt:
        say("interrupted while the report was written")
        return INTERRUPTED
    if not report.complete:
        say("interrupted; the report holds the members that were measured until then")
        return INTERRUPTED
    return GATE if say_gates(gate.judge(report) for gate in order.gates) else CLEAN


def _audited(order: FamilyOrder, advance: Callable[[str, int, int], None]) -> FamilyReport:
    advance("starting", 0, 1)
    families = imported("memaudit.families.audit")
    advance("starting", 1, 1)
    try:
        return families.family(order.sources, progress=advance, **order.arguments)
    except families.FamilyInterrupted as stop:
        return stop.report


def _written(order: FamilyOrder, report: FamilyReport) -> None:
    """Write the JSON report, and show the page unless stdout is taken."""
    if order.target is not None:
        text = dumps(report.to_dict())
        if order.target.path is None:
            to_stdout(text)
            return
        for source in order.sources:
            spare_model(order.target.path, Path(os.path.expanduser(source)))
        write_text(text, order.target.path)
    from memaudit.reports.family_page import family_page
    from memaudit.reports.terminal import can_show_braille

    sheet = console()
    ascii_only = not can_show_braille(sheet)
    show(family_page(report, width=sheet.width, ascii_only=ascii_only), on=sheet)


def _own(settings: Mapping[str, Any], arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    """The settings, none of which has an option of its own."""
    for name in settings:
        if name in arguments:
            hint = f"use --{name.replace('_', '-')}"
            raise ArgumentError(f"--set cannot change {clean(name)}", hint=hint)
    return settings
