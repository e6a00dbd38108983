"""The laws of a probe."""

from __future__ import annotations

from dataclasses import fields

from memaudit.contracts import AbstractProbe, AbstractSubject, Setting
from memaudit.records import plain
from memaudit.report import Report
from memaudit.testing.law import check_plain, check_words, must
from memaudit.testing.models import HORIZON
from memaudit.testing.weights import fingerprint

#: Fields of the report that no probe may fill.
TAKEN = (
    *("subject", "settings", "memory", "layers", "findings"),
    *("complete", "errors", "timing", "environment"),
)


def check_probe(probe: AbstractProbe, subject: AbstractSubject) -> None:
    """The laws of `AbstractProbe`: a field of the report, repetition, plain JSON, no traces."""
    must(isinstance(probe, AbstractProbe), f"{probe!r} is no AbstractProbe")
    check_words(probe, "name", "summary", "fills")
    known = {field.name for field in fields(Report)}
    must(probe.fills in known, f"fills names {probe.fills}, which is no field of Report")
    must(probe.fills not in TAKEN, f"fills names {probe.fills}, which the audit fills itself")
    weights, setting = fingerprint(subject), Setting(horizon=HORIZON, level="quick")
    first, second = (plain(probe.measure(subject, setting)) for _ in range(2))
    check_plain(first, "the result")
    must(first == second, "the same setting gives another result the second time")
    must(fingerprint(subject) == weights, "measuring moves the weights")
