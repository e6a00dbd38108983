"""The command that measures a report again."""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING, Any

from memaudit.catalog import DEFAULT_PROBES, DEFAULT_QUERIES
from memaudit.errors import clean

if TYPE_CHECKING:
    from memaudit.report import Report

#: The settings of an audit that `--set` takes, and what they are when nobody sets them.
DEFAULTS: dict[str, Any] = {
    **{"normalization": "iatn", "amplitudes": None, "epsilon": 1e-3, "baseline": "zero"},
    "words": None,
}
#: Where the value of an option is cut: lists of numbers are long.
LONGEST = 1000
DEFAULT_NAMES: dict[str, tuple[str, ...]] = {"queries": DEFAULT_QUERIES, "probes": DEFAULT_PROBES}


def command(report: Report) -> str:
    """`memaudit scan …` for a shell, or the call for what lives in Python only.

    Options of the adapter are in the notes of the report.
    """
    settings, subject = report.settings, report.subject
    in_python, options = _in_python(report), _options(report)
    if in_python or any("<" in str(value) for value in options.values()):
        return _call(report, "model" if in_python else clean(repr(subject.source)), options)
    words = ["memaudit", "scan", clean(subject.source)]
    for key in ("horizon", "seed"):
        words += [f"--{key}", clean(settings[key])] if key in settings else []
    if settings.get("level") in ("quick", "thorough"):
        words.append(f"--{settings['level']}")
    if settings.get("trust_remote_code") is True:
        words.append("--trust-remote-code")
    for key, option in (("queries", "--query"), ("probes", "--probe")):
        words += [word for name in _chosen(report, key) for word in (option, clean(name))]
    for key, value in {**_changed(report), **options}.items():
        words += ["--set", clean(f"{key}={_text(value)}", limit=LONGEST)]
    return shlex.join([*words, "--dtype", clean(subject.dtype)])


def _in_python(report: Report) -> bool:
    """Whether no file holds what was measured."""
    who = report.subject
    return who.adapter == "wrap" or (not who.sha256 and who.source.isidentifier())


def _call(report: Report, source: str, options: dict[str, Any]) -> str:
    """`memaudit.scan(…)` of a module or function, or with an option that is one."""
    keys = ("horizon", "seed", "level")
    given = {key: report.settings[key] for key in keys if key in report.settings}
    given |= {key: list(names) for key in DEFAULT_NAMES if (names := _chosen(report, key))}
    given |= _changed(report)
    words = [f"{clean(key)}={clean(repr(value))}" for key, value in given.items()]
    if source != "model":
        words.append(f"dtype={clean(repr(report.subject.dtype))}")
    pairs = (f"{clean(repr(key))}: {clean(_word(value))}" for key, value in options.items())
    words += [f"**{{{', '.join(pairs)}}}"] if options else []
    return f"memaudit.scan({', '.join([source, *words])})"


def _chosen(report: Report, key: str) -> tuple[str, ...]:
    names = tuple(report.settings.get(key) or ())
    return () if names == DEFAULT_NAMES[key] else names


def _changed(report: Report) -> dict[str, Any]:
    settings = report.settings
    return {
        key: settings[key]
        for key, default in DEFAULTS.items()
        if settings.get(key, default) != default
    }


def _options(report: Report) -> dict[str, Any]:
    """Options of probes; files from before there were any have none."""
    found = report.settings.get("probe_options")
    return found if isinstance(found, dict) else {}


def _word(value: Any) -> str:
    """A value as Python writes it; <function> stands for what only its owner has."""
    return value if isinstance(value, str) and value.startswith("<") else repr(value)


def _text(value: Any) -> str:
    """A value as `--set` reads it: JSON, or a text that is no JSON as it is."""
    if not isinstance(value, str):
        return json.dumps(value, default=str)
    try:
        json.loads(value)
    except ValueError:
        return value
    return json.dumps(value)
