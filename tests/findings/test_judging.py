"""Rules that come from others, and curves without values."""

from __future__ import annotations

import numpy as np

from memaudit import registry
from memaudit.findings.judge import judge
from memaudit.memory.result import Decay, Status
from tests.handmade import (
    of_kind,
    report,
)


def test_a_broken_foreign_rule_is_named_and_the_others_still_judge(monkeypatch):
    from importlib.metadata import EntryPoint

    broken = EntryPoint("XX001", "no_such_module:Rule", "memaudit.findings")
    monkeypatch.setattr(registry, "_points", lambda kind: (broken,))
    found = judge(report(of_kind("growing")))
    assert [(f.code, f.where) for f in found] == [("MA102", ""), ("E_PLUGIN", "XX001")]
    assert "no_such_module" in found[1].message


def test_empty_curves_are_judged_without_a_crash():
    empty = np.array([])
    for kind in ("growing", "persistent", "polynomial", "undetermined", "memoryless"):
        for status in Status:
            judge(report(of_kind(kind, values=empty, status=status, decay=Decay(kind))))
