"""How to get the same numbers again: the command, the settings, versions and times."""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING, Any

from memaudit.catalog import DEFAULT_PROBES, DEFAULT_QUERIES
from memaudit.errors import clean
from memaudit.reports.page.markup import tag
from memaudit.reports.page.section import Section, grid
from memaudit.reports.page.table import Table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from memaudit.reports.page.detail import Detail
    from memaudit.results import Report

#: Settings with an option of their own, and what they are unless somebody says otherwise.
OWN = ("horizon", "seed", "level", "queries", "probes", "text", "trust_remote_code")
USUAL: dict[str, Any] = {
    "normalization": "iatn",
    "amplitudes": None,
    "epsilon": 0.001,
    "baseline": "zero",
    "words": None,
}


def reproduce_section(report: Report, detail: Detail) -> Section:
    """The command, then everything that the numbers rest on."""
    who = report.subject
    model = {
        "source": who.source,
        "adapter": who.adapter,
        "family": who.family,
        "sha256 of the weights": who.sha256,
        "recurrent layers": f"{len(who.recurrences)}",
        "context": who.context,
        "longest input": who.longest,
    }
    times = {k.removesuffix("_seconds"): f"{v:.1f} s" for k, v in report.timing.items()}
    tables = [
        _pairs("Settings", report.settings, detail),
        _pairs("Model", model, detail),
        _pairs("Assumed settings", who.assumed, detail),
        _pairs("Environment", report.environment, detail),
        _pairs("Time", times, detail),
    ]
    blocks = [
        tag("pre", tag("code", command(report)), tabindex="0", aria_label="Command line"),
        grid(*(table.markup() for table in tables if table is not None)),
    ]
    lead = "With the same seed on the same machine this gives the same numbers."
    return Section("reproduce", "Reproduce", lead, blocks)


def command(report: Report) -> str:
    """The command line of an audit like this one, with what differs from the usual."""
    told, settings = report.settings, report.settings
    words = ["memaudit", "scan", report.subject.source]
    for name in ("horizon", "seed"):
        if name in told:
            words += [f"--{name}", str(told[name])]
    for option, name, usual in (
        ("--query", "queries", DEFAULT_QUERIES),
        ("--probe", "probes", DEFAULT_PROBES),
    ):
        chosen = settings.get(name)
        if isinstance(chosen, list | tuple) and tuple(chosen) != usual:
            words += [word for one in chosen for word in (option, str(one))]
    if settings.get("level") in ("quick", "thorough"):
        words.append(f"--{settings['level']}")
    if settings.get("trust_remote_code") is True:
        words.append("--trust-remote-code")
    for name, value in settings.items():
        if name not in OWN and (name not in USUAL or value != USUAL[name]):
            words += ["--set", f"{name}={_value(value)}"]
    if report.subject.adapter and settings:
        words += ["--adapter", report.subject.adapter, "--dtype", report.subject.dtype]
    return clean(" ".join(shlex.quote(clean(word)) for word in words), limit=1200)


def _value(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=str)


def _pairs(title: str, facts: Mapping[str, Any], detail: Detail) -> Table | None:
    rows = [
        (clean(name, limit=120), _word(value))
        for name, value in list(facts.items())[: detail.items]
        if value not in ("", None)
    ]
    return Table(title, ("name", "value"), rows, facts=True) if rows else None


def _word(value: Any) -> str:
    if isinstance(value, list | tuple):
        return clean(", ".join(map(str, value)), limit=600)
    return clean(value, limit=600)
