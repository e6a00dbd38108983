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


def command(report: Report) -> str:
    """`memaudit scan …` for a shell; options of the adapter are in the notes of the report."""
    settings = report.settings
    words = ["memaudit", "scan", clean(report.subject.source)]
    for key in ("horizon", "seed"):
        words += [f"--{key}", clean(settings[key])] if key in settings else []
    if settings.get("level") in ("quick", "thorough"):
        words.append(f"--{settings['level']}")
    for option, key, usual in (
        ("--query", "queries", DEFAULT_QUERIES),
        ("--probe", "probes", DEFAULT_PROBES),
    ):
        names = tuple(settings.get(key) or usual)
        words += [w for name in names for w in (option, clean(name))] if names != usual else []
    for key, usual in USUAL.items():
        value = settings.get(key, usual)
        if value != usual:
            text = value if isinstance(value, str) else json.dumps(value)
            words += ["--set", clean(f"{key}={text}")]
    return shlex.join([*words, "--dtype", clean(report.subject.dtype)])
