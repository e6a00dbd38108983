"""The command that measures a report again."""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING, Any

from memaudit.catalog import DEFAULT_PROBES, DEFAULT_QUERIES
from memaudit.errors import clean

if TYPE_CHECKING:
    from memaudit.results import Report

#: The settings of an audit that `--set` takes, and what they are when nobody sets them.
USUAL: dict[str, Any] = {
    **{"normalization": "iatn", "amplitudes": None, "epsilon": 1e-3, "baseline": "zero"},
    "words": None,
}
CHOSEN: dict[str, tuple[str, ...]] = {"queries": DEFAULT_QUERIES, "probes": DEFAULT_PROBES}


def command(report: Report) -> str:
    """`memaudit scan …` for a shell, or the call for what lives in Python only.

    Options of the adapter are in the notes of the report.
    """
    settings, who = report.settings, report.subject
    if who.adapter == "wrap" or (not who.sha256 and who.source.isidentifier()):
        return _call(report)
    words = ["memaudit", "scan", clean(who.source)]
    for key in ("horizon", "seed"):
        words += [f"--{key}", clean(settings[key])] if key in settings else []
    if settings.get("level") in ("quick", "thorough"):
        words.append(f"--{settings['level']}")
    if settings.get("trust_remote_code") is True:
        words.append("--trust-remote-code")
    for key, option in (("queries", "--query"), ("probes", "--probe")):
        words += [word for name in _chosen(report, key) for word in (option, clean(name))]
    for key, value in _unusual(report).items():
        text = value if isinstance(value, str) else json.dumps(value, default=str)
        words += ["--set", clean(f"{key}={text}")]
    return shlex.join([*words, "--dtype", clean(who.dtype)])


def _call(report: Report) -> str:
    """`memaudit.scan(…)` of a module or function that no file holds."""
    keys = ("horizon", "seed", "level")
    given = {key: report.settings[key] for key in keys if key in report.settings}
    given |= {key: list(names) for key in CHOSEN if (names := _chosen(report, key))}
    given |= _unusual(report)
    options = "".join(f", {clean(key)}={clean(repr(value))}" for key, value in given.items())
    return f"memaudit.scan(model{options})"


def _chosen(report: Report, key: str) -> tuple[str, ...]:
    names = tuple(report.settings.get(key) or ())
    return () if names == CHOSEN[key] else names


def _unusual(report: Report) -> dict[str, Any]:
    settings = report.settings
    return {key: settings[key] for key, usual in USUAL.items() if settings.get(key, usual) != usual}
